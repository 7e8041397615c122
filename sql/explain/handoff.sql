-- In which Python code a thread picked a connection up, for `underspan explain`: the row that request_time_parts found.
SELECT
    queue,
    tid,
    thread_name,
    -- the innermost function that is known, its file by its last two names
    replaceRegexpOne(arrayFirst(f -> f NOT IN ('<gone>', '<unread>', '<cut>'), py_stack),
        '\\(.*?([^/]*/[^/]*)\\)$', '(\\1)') AS place
FROM ebpf_handoff
WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
    AND end_time = fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') AND start_time > end_time - INTERVAL 1 DAY
LIMIT 1
