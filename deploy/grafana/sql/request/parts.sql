-- Where did the time of the request go? A bar per part, in the order of the request: before the handler, thread or event loop, client.
-- hidden: no span shows the part. A part that was not measured has no figure.
SELECT
    toString(ebpf_request.request_id) AS request,
    concat(toString(method), ' ', path) AS what,
    of.1 AS part,
    of.2 / 1e6 AS ms,
    if(of.2 IS NULL, concat('not measured (', of.4, ')'), if(of.3, 'hidden', '')) AS note,
    round(100 * of.2 / nullIf(duration_ns, 0), 1) AS percent
FROM ebpf_request
ARRAY JOIN arrayFilter(p -> isNull(p.2) OR p.2 > 0,
    [
        ('accept queue: connected, not accepted', toNullable(accept_queue_ns), 1, 'accept'),
        ('client: had not sent its request', toNullable(client_wait_ns), 0, 'arrival'),
        ('queue: bytes there, not read', toNullable(queue_ns), 1, 'arrival'),
        ('pool: read, no thread ran it', toNullable(pool_wait_ns), 1, ''),
        ('CPU', toNullable(cpu_ns), 0, ''),
        ('run queue: ready, no CPU free', toNullable(runq_ns), 1, ''),
        ('throttled: CPU quota used up', toNullable(throttled_ns), 1, ''),
        ('GIL: another thread had it', toNullable(gil_ns), 1, 'gil'),
        ('GC: collections of its own', toNullable(gc_own_ns), 0, 'gc'),
        ('GC: collections of other threads', toNullable(gc_sibling_ns), 1, 'gc'),
        ('lock', toNullable(lock_ns), 0, ''),
        ('network', toNullable(net_ns), 0, ''),
        ('disk', toNullable(disk_ns), 0, ''),
        ('page faults', toNullable(fault_ns), 0, ''),
        ('asleep', toNullable(sleep_ns), 0, ''),
        ('pipe', toNullable(pipe_ns), 0, ''),
        ('child process', toNullable(child_ns), 0, ''),
        ('off the CPU otherwise', toNullable(other_ns), 0, ''),
        ('awaited: event loop had nothing to do', toNullable(await_ns), 0, ''),
        ('loop busy: several requests open', toNullable(loop_busy_ns), 1, ''),
        ('client: did not take the answer', toNullable(client_slow_ns), 0, '')
    ]) AS of
WHERE
#include "this_request.inc"
ORDER BY start_time, request, indexOf(['accept queue: connected, not accepted', 'client: had not sent its request', 'queue: bytes there, not read', 'pool: read, no thread ran it', 'CPU', 'run queue: ready, no CPU free', 'throttled: CPU quota used up', 'GIL: another thread had it', 'GC: collections of its own', 'GC: collections of other threads', 'lock', 'network', 'disk', 'page faults', 'asleep', 'pipe', 'child process', 'off the CPU otherwise', 'awaited: event loop had nothing to do', 'loop busy: several requests open', 'client: did not take the answer'], part)
LIMIT 500
