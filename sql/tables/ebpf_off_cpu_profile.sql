-- All intervals off the CPU, however short, summed in the kernel: a row per interval of the sums (start_time to
-- end_time), thread, user stack, system call, cause and waker, and of these by Python stack. kernel_stack is that of the
-- first of them. py_stack is sampled, once in 20 ms of a sum or less often where there are many: intervals belong to the
-- next stack that is taken of their sum, to the row without one until there is, so that times always add up; time spent
-- preempted has none, and of a process that ended before end_time it is '<gone>' or empty. idle goes by py_stack and system
-- call, as in ebpf_off_cpu. What found no room in the kernel's map is in rows with host_pid 0, a row a cause.
CREATE TABLE IF NOT EXISTS ebpf_off_cpu_profile
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
    count UInt64 CODEC(ZSTD),
    off_ns UInt64 CODEC(ZSTD),
    runq_ns UInt64 CODEC(ZSTD),
    min_ns UInt64 CODEC(ZSTD),
    max_ns UInt64 CODEC(ZSTD),
    state LowCardinality(String),
    cause LowCardinality(String),
    idle UInt8,
    syscall LowCardinality(String),
    kernel_stack Array(LowCardinality(String)) CODEC(ZSTD),
    user_stack Array(LowCardinality(String)) CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    waker_pid UInt32 CODEC(Delta, ZSTD),
    waker_tid UInt32 CODEC(Delta, ZSTD),
    waker_host_tid UInt32 CODEC(Delta, ZSTD),
    waker_comm LowCardinality(String),
    waker_thread_name LowCardinality(String),
    waker_stack Array(LowCardinality(String)) CODEC(ZSTD),
    off_ms Float64 ALIAS off_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
