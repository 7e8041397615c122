-- Probes of each process, the method, or the reason for none. A row appears when a process has lived for half a second, and at
-- each change; a process that ended or called exec() before, as forked subprocesses do, has no row. host_pid 0: whether the
-- tracker runs on the host, or observes the network interface named in `binary`.
-- live = 1 with a reason: active; the reason names missing data (a refused Python has rows of trackers that do not need the
-- interpreter, without Python stacks and thread names) or a cost (method 'every system call').
-- tracker 'python': whether the state of the interpreter was found at the build's offsets (used for names, stacks and the GIL),
-- checked within seconds of the start; without this state a process has no rows that need the interpreter.
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
