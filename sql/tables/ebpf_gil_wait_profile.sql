-- All waits for the GIL, however short, summed in the kernel: a row per interval (start_time to end_time),
-- waiting thread (pid, tid) and thread that held the GIL when the wait began (holder_tid).
CREATE TABLE IF NOT EXISTS ebpf_gil_wait_profile
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
    holder_tid UInt32 CODEC(Delta, ZSTD),
    holder_host_tid UInt32 CODEC(Delta, ZSTD),
    waits UInt64 CODEC(ZSTD),
    wait_ns UInt64 CODEC(ZSTD),
    runq_ns UInt64 CODEC(ZSTD),
    forced_ns UInt64 CODEC(ZSTD),
    max_ns UInt64 CODEC(ZSTD),
    wait_ms Float64 ALIAS wait_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
