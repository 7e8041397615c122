-- Services that have rows of a table in the window, most rows first, for a note where the service asked for has none.
SELECT toString(service) AS name, count() AS row_count
FROM {table:Identifier}
WHERE end_time >= {from:DateTime64(6, 'UTC')} AND end_time < {to:DateTime64(6, 'UTC')}
    AND start_time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND start_time < {to:DateTime64(6, 'UTC')}
    AND ({host:String} = '' OR host = {host:String}) AND service != ''
GROUP BY name
ORDER BY row_count DESC, name
LIMIT 10
