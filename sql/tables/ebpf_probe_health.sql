-- What is probed in which process, how it was found, or why it is not probed. Rows of a
-- process come when it has lived for half a second, and when what they say changes: one that ended before that, or ran
-- another program, as subprocesses do that a Python forks, has none. host_pid 0: whether the tracker runs on the host at all, or observes the network interface
-- whose name is in `binary`.
-- live = 1 with a reason: it works, and the reason is what its rows lack (a Python that is refused has rows of whatever
-- needs nothing of its interpreter, without Python stacks and names of threads) or what it costs (method 'every system call').
-- tracker 'python': whether the state of the interpreter was found where its build keeps it (names, stacks and the GIL
-- are read there), looked at within seconds of its start; a process in which it was not has no rows that need it.
CREATE TABLE IF NOT EXISTS ebpf_probe_health
(
    host LowCardinality(String),
    container_id LowCardinality(String),
    pod_uid LowCardinality(String),
    host_pid UInt32 CODEC(Delta, ZSTD),
    time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    tracker LowCardinality(String),
    live UInt8,
    method LowCardinality(String),
    python_version LowCardinality(String),
    binary LowCardinality(String),
    build_id LowCardinality(String),
    reason LowCardinality(String)
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (host, host_pid, time)
TTL toDateTime(time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
