-- The Python code in which a thread picked a connection up, for `underspan explain`: the row found by request_time_parts.
SELECT
    queue,
    tid,
    thread_name,
    -- the innermost known function, with the last two names of the file
    replaceRegexpOne(arrayFirst(f -> f NOT IN ('<gone>', '<unread>', '<cut>'), py_stack),
        '\\(.*?([^/]*/[^/]*)\\)$', '(\\1)') AS place
FROM ebpf_handoff
WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
    AND end_time = fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') AND start_time > end_time - INTERVAL 1 DAY
LIMIT 1
