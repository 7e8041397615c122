-- Which request is this, of which service, and how did it end? By request_id or trace_id, within a day of the window; each request of a trace
-- is a row. busy_threads: threads of the process that served further requests at the read, NULL: not known.
SELECT
    start_time AS time, toString(ebpf_request.request_id) AS request_id, trace_id, service, host, namespace, pod, container, pid, tid, thread_name,
    method, path, status, outcome, model,
    round(duration_ns / 1e6, 1) AS total_ms, round(server_ms, 1) AS server_ms, round(hidden_ms, 1) AS hidden_ms,
    queue_depth, busy_threads, open_requests,
    if(empty(ebpf_request.not_measured), 'all was measured', arrayStringConcat(ebpf_request.not_measured, ' ')) AS not_measured,
    concat('underspan explain ', toString(ebpf_request.request_id)) AS explain,
    encodeURLComponent(toString(ebpf_request.service)) AS service_key
FROM ebpf_request
WHERE
#include "this_request.inc"
ORDER BY start_time, request_id
LIMIT 100
