-- Requests of the ledger with a given trace id or request id, for `underspan explain`: ids and times for the next questions.
-- Each condition uses an index of ebpf_request.
SELECT toString(ebpf_request.request_id) AS request_id, trace_id, pid, toUnixTimestamp64Micro(start_time) AS from_us
FROM ebpf_request
WHERE trace_id = {trace_id:String} AND trace_id != ''
UNION ALL
SELECT toString(ebpf_request.request_id) AS request_id, trace_id, pid, toUnixTimestamp64Micro(start_time) AS from_us
FROM ebpf_request
WHERE ebpf_request.request_id = {request_id:UInt64} AND ebpf_request.request_id != 0 AND (trace_id != {trace_id:String} OR trace_id = '')
ORDER BY from_us DESC
LIMIT 1000
