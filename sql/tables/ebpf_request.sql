-- Requests of HTTP/1 servers, from the kernel: a row per request of request.min_duration_us or longer, and a sample of shorter
-- requests (weight).
-- duration_ns is the sum of the parts (<part>_ns), to the nanosecond. A part that was not measured is NULL, with a reason in
-- not_measured.
-- queue_depth: requests of the same port with unread bytes at this request's arrival; NULL: unknown, as for requests waiting
-- inside a process for a pool thread. busy_threads: threads with a request when this one was read; NULL: a loop or reader that
-- had handed further requests to a pool, whose threads are not counted.
CREATE TABLE IF NOT EXISTS ebpf_request
(
#include "tables/thread_columns.inc"
    request_id UInt64 CODEC(ZSTD),
    family LowCardinality(String),
    server_port UInt16 CODEC(ZSTD),
    peer_ip IPv6 CODEC(ZSTD),
    peer_port UInt16 CODEC(ZSTD),
    fd UInt32 CODEC(ZSTD),
    netns UInt32 CODEC(ZSTD),
    method LowCardinality(String),
    path String CODEC(ZSTD),
    status Nullable(UInt16) CODEC(ZSTD),
    bytes_in UInt64 CODEC(ZSTD),
    bytes_out UInt64 CODEC(ZSTD),
    parent_span_id String CODEC(ZSTD),
    model LowCardinality(String),
    link LowCardinality(String),
    end_by LowCardinality(String),
    outcome LowCardinality(String),
    connection_request UInt32 CODEC(ZSTD),
    queue_depth Nullable(UInt32) CODEC(ZSTD),
    busy_threads Nullable(UInt32) CODEC(ZSTD),
    open_requests UInt32 CODEC(ZSTD),
    accept_queue_ns Nullable(UInt64) CODEC(ZSTD),
    client_wait_ns Nullable(UInt64) CODEC(ZSTD),
    queue_ns Nullable(UInt64) CODEC(ZSTD),
    pool_wait_ns UInt64 CODEC(ZSTD),
    cpu_ns UInt64 CODEC(ZSTD),
    runq_ns UInt64 CODEC(ZSTD),
    throttled_ns UInt64 CODEC(ZSTD),
    gil_ns Nullable(UInt64) CODEC(ZSTD),
    gc_own_ns Nullable(UInt64) CODEC(ZSTD),
    gc_sibling_ns Nullable(UInt64) CODEC(ZSTD),
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
    net_peer_ip IPv6 CODEC(ZSTD),
    net_peer_port UInt16 CODEC(ZSTD),
    net_peer_path String CODEC(ZSTD),
    net_peer_ns UInt64 CODEC(ZSTD),
    body_wait_ns Nullable(UInt64) CODEC(ZSTD),
    not_measured Array(LowCardinality(String)) CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    server_ms Float64 ALIAS (duration_ns - ifNull(client_wait_ns, 0) - client_slow_ns) / 1e6,
    hidden_ms Float64 ALIAS (ifNull(accept_queue_ns, 0) + ifNull(queue_ns, 0) + pool_wait_ns + runq_ns + throttled_ns + ifNull(gil_ns, 0) + ifNull(gc_sibling_ns, 0) + loop_busy_ns) / 1e6,
    -- `explain` finds a request by either id without reading the days of all others
    INDEX by_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_request_id request_id TYPE bloom_filter(0.001) GRANULARITY 1
)
#include "tables/thread_engine.inc"
