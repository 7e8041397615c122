-- Services that have rows of a table in the window, the one asked for and then those with most rows, for a note where it has none.
SELECT toString(service) AS name, count() AS row_count
FROM {table:Identifier}
WHERE end_time >= {from:DateTime64(6, 'UTC')} AND end_time < {to:DateTime64(6, 'UTC')}
    AND start_time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND start_time < {to:DateTime64(6, 'UTC')}
    AND ({host:String} = '' OR host = {host:String}) AND service != ''
GROUP BY name
ORDER BY name = {service:String} DESC, row_count DESC, name
LIMIT 10
