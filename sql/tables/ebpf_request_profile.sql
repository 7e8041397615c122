-- All requests, summed in the kernel: a row per interval (start_time to end_time), process, port, method, class of status and
-- model.
-- histogram[i + 1] counts requests from 2^(i-1) up to 2^i microseconds; the first element counts those below one microsecond,
-- the last those above all limits.
CREATE TABLE IF NOT EXISTS ebpf_request_profile
(
#include "tables/thread_columns.inc"
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
#include "tables/thread_engine.inc"
