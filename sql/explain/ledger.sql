-- The requests of the ledger that carried a trace id, or the one with an id of its own, for `underspan explain`: where to look for
-- the rest. Each condition is answered by an index of ebpf_request.
SELECT toString(ebpf_request.request_id) AS request_id, trace_id, pid, toUnixTimestamp64Micro(start_time) AS from_us
FROM ebpf_request
WHERE trace_id = {trace_id:String} AND trace_id != ''
UNION ALL
SELECT toString(ebpf_request.request_id) AS request_id, trace_id, pid, toUnixTimestamp64Micro(start_time) AS from_us
FROM ebpf_request
WHERE ebpf_request.request_id = {request_id:UInt64} AND ebpf_request.request_id != 0 AND (trace_id != {trace_id:String} OR trace_id = '')
ORDER BY from_us
LIMIT 1000
