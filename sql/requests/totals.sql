-- How many requests, and for how many a part was not measured and why, for `underspan requests`.
-- Which requests: they ended in the window, of the host, the pids (of their namespace or the host's), the path's prefix; the lines
-- behind --service: apply where a service is asked for, those behind --spans: where the database also has spans. All files of this
-- folder choose alike.
WITH toFloat64(weight) AS w
SELECT
    sum(w) AS requests, count() AS row_count,
    sumIf(w, accept_queue_ns IS NULL) AS accept_queue_unmeasured, sumIf(w, client_wait_ns IS NULL) AS client_wait_unmeasured,
    sumIf(w, queue_ns IS NULL) AS queue_unmeasured, sumIf(w, gil_ns IS NULL) AS gil_unmeasured,
    sumIf(w, gc_own_ns IS NULL) AS gc_own_unmeasured, sumIf(w, gc_sibling_ns IS NULL) AS gc_sibling_unmeasured,
    sumMap(arrayMap(reason -> toString(reason), not_measured), arrayMap(reason -> w, not_measured)) AS reasons
FROM ebpf_request
WHERE end_time >= {from:DateTime64(6, 'UTC')} AND end_time < {to:DateTime64(6, 'UTC')}
    AND start_time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND start_time < {to:DateTime64(6, 'UTC')}
    AND ({host:String} = '' OR host = {host:String})
    AND ({path:String} = '' OR startsWith(path, {path:String}))
    AND (empty({pids:Array(UInt32)}) OR has({pids:Array(UInt32)}, pid) OR has({pids:Array(UInt32)}, host_pid))
    --service: AND (service = {service:String}
    --spans:       OR (toString(host), toString(container_id), pid) IN (SELECT host, container_id, pid FROM otel_span
    --spans:           WHERE service = {service:String} AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
    --spans:       OR (toString(boot_id), pidns, pid) IN (SELECT boot_id, pidns, pid FROM otel_span
    --spans:           WHERE boot_id != '' AND service = {service:String} AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
    --spans:       OR (trace_id, parent_span_id) IN (SELECT trace_id, parent_id FROM otel_span
    --spans:           WHERE service = {service:String} AND kind = 'server' AND parent_id != ''
    --spans:               AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
    --service: )
