-- Collections that stopped a process between two times, for `underspan explain`.
SELECT
    tid,
    thread_name,
    generation,
    collected,
    frozen_threads,
    -- trigger: the innermost known function, with the last two names of the file
    replaceRegexpOne(arrayFirst(f -> f NOT IN ('<gone>', '<unread>', '<cut>'), py_stack),
        '\\(.*?([^/]*/[^/]*)\\)$', '(\\1)') AS place,
    toUnixTimestamp64Micro(start_time) AS begin_us,
    toUnixTimestamp64Micro(end_time) AS end_us
FROM ebpf_gc_pause
WHERE pid = {pid:UInt32}
    AND host = {host:String} AND container_id = {container_id:String}
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 MINUTE
ORDER BY start_time
LIMIT 10000
