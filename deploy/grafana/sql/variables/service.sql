-- Which names of a service are there to choose from? The value is the name percent-encoded, so that none can end a string of SQL.
SELECT encodeURLComponent(toString(service)) AS value, toString(service) AS text
FROM ebpf_request_profile
WHERE $__timeFilter(start_time) AND service != ''
GROUP BY service
ORDER BY text
LIMIT 2000
