-- The spans of the last {seconds} seconds of any kind, where none is a server's, for `underspan doctor --spans`.
SELECT count() AS spans, uniqExact(service) AS services, min(trace_id) AS trace_id
FROM otel_span
WHERE time >= now64(6, 'UTC') - toIntervalSecond({seconds:UInt64})
