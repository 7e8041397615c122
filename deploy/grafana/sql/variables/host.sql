-- Which hosts have an agent? The value is the name percent-encoded, so that none can end a string of SQL.
SELECT encodeURLComponent(toString(host)) AS value, toString(host) AS text
FROM ebpf_agent
WHERE $__timeFilter(start_time) AND host != ''
GROUP BY host
ORDER BY text
LIMIT 2000
