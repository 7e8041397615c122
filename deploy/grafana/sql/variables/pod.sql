-- Which names of a pod are there to choose from? The value is the name percent-encoded, so that none can end a string of SQL.
SELECT encodeURLComponent(toString(pod)) AS value, toString(pod) AS text
FROM ebpf_request_profile
WHERE $__timeFilter(start_time) AND pod != ''
GROUP BY pod
ORDER BY text
LIMIT 2000
