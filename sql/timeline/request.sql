-- Requests with all parts, for `underspan timeline --since`: the longest first, as a file holds only so many of each kind.
SELECT
#include "timeline/thread.inc"
    toString(p.request_id) AS request_id, p.trace_id AS trace_id, p.span_id AS span_id, p.method AS method, substring(p.path, 1, 500) AS path,
    p.status AS status, p.model AS model, p.outcome AS outcome, p.server_port AS server_port, p.busy_threads AS busy_threads,
    p.queue_depth AS queue_depth,
    p.accept_queue_ns AS accept_queue_ns, p.client_wait_ns AS client_wait_ns, p.queue_ns AS queue_ns, p.pool_wait_ns AS pool_wait_ns, p.cpu_ns AS cpu_ns, p.runq_ns AS runq_ns,
    p.throttled_ns AS throttled_ns, p.gil_ns AS gil_ns, p.gc_own_ns AS gc_own_ns, p.gc_sibling_ns AS gc_sibling_ns, p.lock_ns AS lock_ns, p.net_ns AS net_ns,
    p.disk_ns AS disk_ns, p.fault_ns AS fault_ns, p.sleep_ns AS sleep_ns, p.pipe_ns AS pipe_ns, p.child_ns AS child_ns, p.other_ns AS other_ns,
    p.await_ns AS await_ns, p.loop_busy_ns AS loop_busy_ns, p.client_slow_ns AS client_slow_ns
FROM ebpf_request AS p
#include "window/chosen.inc"
ORDER BY duration_ns DESC, start_us, host_tid
LIMIT {limit:UInt32}
