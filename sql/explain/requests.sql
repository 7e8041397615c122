-- The requests of a trace, or a request by id, for `underspan explain`: rows of the view request, with the parts in order of the
-- waterfall (part, part_ms, and begin part_at_ms; parts of a thread's time are shares without an order in time).
WITH
    [
        ('accept_queue', accept_queue_ms), ('client_wait', client_wait_ms), ('queue', queue_ms), ('pool_wait', toNullable(pool_wait_ms)),
        ('cpu', toNullable(cpu_ms)), ('runq', toNullable(runq_ms)), ('throttled', toNullable(throttled_ms)), ('gil', gil_ms),
        ('gc_own', gc_own_ms), ('gc_sibling', gc_sibling_ms), ('lock', toNullable(lock_ms)), ('net', toNullable(net_ms)),
        ('disk', toNullable(disk_ms)), ('fault', toNullable(fault_ms)), ('sleep', toNullable(sleep_ms)), ('pipe', toNullable(pipe_ms)),
        ('child', toNullable(child_ms)), ('other', toNullable(other_ms)), ('await', toNullable(await_ms)),
        ('loop_busy', toNullable(loop_busy_ms)), ('client_slow', toNullable(client_slow_ms))
    ] AS parts,
    arrayFilter(p -> isNotNull(p.2), parts) AS known,
    arrayMap(p -> assumeNotNull(p.2), known) AS took
SELECT
    * REPLACE (toString(request_id) AS request_id, toString(host) AS host, replaceOne(toString(peer_ip), '::ffff:', '') AS peer_ip,
        replaceOne(toString(net_peer_ip), '::ffff:', '') AS net_peer_ip),
    toUnixTimestamp64Micro(start_time) AS from_us, toUnixTimestamp64Micro(handled_time) AS handled_us, toUnixTimestamp64Micro(end_time) AS to_us,
    -- the wait for a thread, if it is a tenth of the request (as causes are), otherwise the whole request
    if(handled_us - from_us > greatest(1000, intDiv(to_us - from_us, 10) - 1), handled_us, to_us) AS waited_to_us,
    arrayMap(p -> p.1, known) AS part, took AS part_ms, arrayMap((sum, ms) -> sum - ms, arrayCumSum(took), took) AS part_at_ms,
    arrayMap(p -> p.1, arrayFilter(p -> isNull(p.2), parts)) AS part_missing
FROM request(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
WHERE (trace_id = {trace_id:String} AND trace_id != '') OR toString(request_id) = {request_id:String}
ORDER BY from_us, request_id
LIMIT 101
