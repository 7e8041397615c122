-- All requests, summed in the kernel: a row per interval (start_time to end_time), process, port, method, class of status and model.
-- histogram[i + 1] counts requests of 2^(i-1) up to 2^i microseconds, the first those below one microsecond, the last everything longer.
CREATE TABLE IF NOT EXISTS ebpf_request_profile
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
    server_port UInt16 CODEC(ZSTD),
    method LowCardinality(String),
    status_class LowCardinality(String),
    model LowCardinality(String),
    count UInt64 CODEC(ZSTD),
    duration_sum_ns UInt64 CODEC(ZSTD),
    accept_queue_ns UInt64 CODEC(ZSTD),
    client_wait_ns UInt64 CODEC(ZSTD),
    queue_ns UInt64 CODEC(ZSTD),
    pool_wait_ns UInt64 CODEC(ZSTD),
    cpu_ns UInt64 CODEC(ZSTD),
    runq_ns UInt64 CODEC(ZSTD),
    throttled_ns UInt64 CODEC(ZSTD),
    gil_ns UInt64 CODEC(ZSTD),
    gc_own_ns UInt64 CODEC(ZSTD),
    gc_sibling_ns UInt64 CODEC(ZSTD),
    lock_ns UInt64 CODEC(ZSTD),
    net_ns UInt64 CODEC(ZSTD),
    disk_ns UInt64 CODEC(ZSTD),
    fault_ns UInt64 CODEC(ZSTD),
    sleep_ns UInt64 CODEC(ZSTD),
    pipe_ns UInt64 CODEC(ZSTD),
    child_ns UInt64 CODEC(ZSTD),
    other_ns UInt64 CODEC(ZSTD),
    await_ns UInt64 CODEC(ZSTD),
    loop_busy_ns UInt64 CODEC(ZSTD),
    client_slow_ns UInt64 CODEC(ZSTD),
    min_ns UInt64 CODEC(ZSTD),
    max_ns UInt64 CODEC(ZSTD),
    histogram Array(UInt64) CODEC(ZSTD),
    not_measured Array(LowCardinality(String)) CODEC(ZSTD)
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
