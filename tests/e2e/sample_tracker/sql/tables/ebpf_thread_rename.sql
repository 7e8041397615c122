-- Threads that changed their names: comm is the old one.
CREATE TABLE IF NOT EXISTS ebpf_thread_rename
(
    host LowCardinality(String),
    container_id LowCardinality(String),
    pod_uid LowCardinality(String),
    pid UInt32 CODEC(Delta, ZSTD),
    tid UInt32 CODEC(Delta, ZSTD),
    host_pid UInt32 CODEC(Delta, ZSTD),
    host_tid UInt32 CODEC(Delta, ZSTD),
    comm LowCardinality(String),
    thread_name LowCardinality(String),
    start_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    end_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    duration_ns UInt64 CODEC(ZSTD),
    trace_id String CODEC(ZSTD),
    span_id String CODEC(ZSTD),
    weight Float32 DEFAULT 1,
    new_comm String CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
