-- The requests with most of a column ({by}: server_ms or a part), for `underspan requests`.
SELECT
    toString(r.request_id) AS request_id,
    r.trace_id AS trace_id, r.parent_span_id AS parent_span_id, r.host AS host, r.container_id AS container_id, r.pod_uid AS pod_uid,
    r.pid AS pid, r.tid AS tid, r.host_pid AS host_pid, r.host_tid AS host_tid, r.comm AS comm, r.thread_name AS thread_name,
    toUnixTimestamp64Micro(r.start_time) AS start_us, toUnixTimestamp64Micro(r.end_time) AS end_us,
    r.duration_ns AS duration_ns, toFloat64(r.weight) AS weight,
    r.family AS family, r.server_port AS server_port, r.netns AS netns, r.peer_ip AS peer_ip, r.peer_port AS peer_port, r.method AS method,
    r.path AS path, r.status AS status, r.bytes_in AS bytes_in, r.bytes_out AS bytes_out, r.model AS model, r.link AS link,
    r.end_by AS end_by, r.outcome AS outcome, r.connection_request AS connection_request, r.queue_depth AS queue_depth,
    r.busy_threads AS busy_threads, r.open_requests AS open_requests,
    r.accept_queue_ns AS accept_queue_ns, r.client_wait_ns AS client_wait_ns, r.queue_ns AS queue_ns, r.pool_wait_ns AS pool_wait_ns,
    r.cpu_ns AS cpu_ns, r.runq_ns AS runq_ns, r.throttled_ns AS throttled_ns, r.gil_ns AS gil_ns, r.gc_own_ns AS gc_own_ns,
    r.gc_sibling_ns AS gc_sibling_ns, r.lock_ns AS lock_ns, r.net_ns AS net_ns, r.disk_ns AS disk_ns, r.fault_ns AS fault_ns,
    r.sleep_ns AS sleep_ns, r.pipe_ns AS pipe_ns, r.child_ns AS child_ns, r.other_ns AS other_ns, r.await_ns AS await_ns,
    r.loop_busy_ns AS loop_busy_ns, r.client_slow_ns AS client_slow_ns,
    r.net_peer_ip AS net_peer_ip, r.net_peer_port AS net_peer_port, r.net_peer_path AS net_peer_path,
    r.net_peer_ns AS net_peer_ns, r.not_measured AS not_measured
FROM ebpf_request AS r
#include "requests/chosen.inc"
    -- the parts are read of the few that are shown
    AND r.request_id IN
    (
        SELECT request_id
        FROM ebpf_request AS r
#include "requests/chosen.inc"
            AND {by:Identifier} > 0
        ORDER BY {by:Identifier} DESC
        LIMIT {top:UInt32}
    )
ORDER BY {by:Identifier} DESC, r.end_time DESC
LIMIT {top:UInt32}
