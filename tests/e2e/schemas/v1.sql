CREATE TABLE IF NOT EXISTS ebpf_agent
(
    host LowCardinality(String),
    version LowCardinality(String),
    tracker LowCardinality(String),
    start_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    end_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    seen UInt64 CODEC(ZSTD),
    filtered UInt64 CODEC(ZSTD),
    sampled UInt64 CODEC(ZSTD),
    lost_ring UInt64 CODEC(ZSTD),
    lost_state UInt64 CODEC(ZSTD),
    bad_event UInt64 CODEC(ZSTD),
    rows UInt64 CODEC(ZSTD),
    pending UInt64 CODEC(ZSTD),
    read_fail UInt64 CODEC(ZSTD),
    stack_late UInt64 CODEC(ZSTD),
    stack_state UInt64 CODEC(ZSTD),
    stack_moved UInt64 CODEC(ZSTD),
    stack_room UInt64 CODEC(ZSTD),
    stack_share UInt64 CODEC(ZSTD),
    rows_gone UInt64 CODEC(ZSTD),
    rows_unread UInt64 CODEC(ZSTD),
    rows_unnamed UInt64 CODEC(ZSTD),
    recovered UInt64 CODEC(ZSTD),
    inserted UInt64 CODEC(ZSTD),
    dropped_memory UInt64 CODEC(ZSTD),
    dropped_spool UInt64 CODEC(ZSTD),
    dropped_corrupt UInt64 CODEC(ZSTD),
    dropped_refused UInt64 CODEC(ZSTD),
    lost_crash UInt64 CODEC(ZSTD),
    queued_rows UInt64 CODEC(ZSTD),
    spooled_rows UInt64 CODEC(ZSTD),
    retries UInt64 CODEC(ZSTD),
    bytes_sent UInt64 CODEC(ZSTD),
    bpf_ns UInt64 CODEC(ZSTD),
    bpf_hits UInt64 CODEC(ZSTD),
    agent_ns UInt64 CODEC(ZSTD),
    sampling_level UInt64 CODEC(ZSTD),
    skip_shift UInt64 CODEC(ZSTD)
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (host, tracker, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_cpu_throttle
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
    cgroup LowCardinality(String),
    cgroup_id UInt64 CODEC(ZSTD),
    cgroup_level UInt32 CODEC(ZSTD),
    quota_us UInt64 CODEC(ZSTD),
    period_us UInt64 CODEC(ZSTD),
    throttled_ns UInt64 CODEC(ZSTD),
    throttled_periods UInt32 CODEC(ZSTD),
    periods UInt32 CODEC(ZSTD),
    throttled_ns_total UInt64 CODEC(Delta, ZSTD),
    throttled_periods_total UInt32 CODEC(Delta, ZSTD),
    periods_total UInt32 CODEC(Delta, ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_ena
(
    host LowCardinality(String),
    interface LowCardinality(String),
    ifindex UInt32 CODEC(Delta, ZSTD),
    driver LowCardinality(String),
    start_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    end_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    bw_in_allowance_exceeded Nullable(UInt64) CODEC(ZSTD),
    bw_in_allowance_exceeded_total Nullable(UInt64) CODEC(Delta, ZSTD),
    bw_out_allowance_exceeded Nullable(UInt64) CODEC(ZSTD),
    bw_out_allowance_exceeded_total Nullable(UInt64) CODEC(Delta, ZSTD),
    pps_allowance_exceeded Nullable(UInt64) CODEC(ZSTD),
    pps_allowance_exceeded_total Nullable(UInt64) CODEC(Delta, ZSTD),
    conntrack_allowance_exceeded Nullable(UInt64) CODEC(ZSTD),
    conntrack_allowance_exceeded_total Nullable(UInt64) CODEC(Delta, ZSTD),
    linklocal_allowance_exceeded Nullable(UInt64) CODEC(ZSTD),
    linklocal_allowance_exceeded_total Nullable(UInt64) CODEC(Delta, ZSTD),
    conntrack_allowance_available Nullable(UInt64) CODEC(Delta, ZSTD),
    reset UInt8,
    source LowCardinality(String),
    asked_by LowCardinality(String)
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (host, interface, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_gc_pause
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
    generation Int8,
    reason LowCardinality(String),
    collected UInt64 CODEC(ZSTD),
    uncollectable UInt64 CODEC(ZSTD),
    frozen_threads UInt32 CODEC(ZSTD),
    sibling_threads UInt32 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    method LowCardinality(String),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_gil_wait
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
    runq_ns UInt64 CODEC(ZSTD),
    forced_ns UInt64 CODEC(ZSTD),
    holder_tid UInt32 CODEC(Delta, ZSTD),
    holder_host_tid UInt32 CODEC(Delta, ZSTD),
    holder_thread_name LowCardinality(String),
    holder_py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    holders Array(Tuple(tid UInt32, ns UInt64, thread_name String)) CODEC(ZSTD),
    dropper_tid UInt32 CODEC(Delta, ZSTD),
    dropper_host_tid UInt32 CODEC(Delta, ZSTD),
    dropper_thread_name LowCardinality(String),
    sleeps UInt32 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    method LowCardinality(String),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
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
CREATE TABLE IF NOT EXISTS ebpf_handoff
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
    queue LowCardinality(String),
    pickup LowCardinality(String),
    client_wait_ns UInt64 CODEC(ZSTD),
    handoff_ns UInt64 CODEC(ZSTD),
    fd UInt32 CODEC(ZSTD),
    main_tid UInt32 CODEC(Delta, ZSTD),
    main_thread_name LowCardinality(String),
    local_port UInt16 CODEC(ZSTD),
    peer_ip IPv6 CODEC(ZSTD),
    peer_port UInt16 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    client_wait_ms Float64 ALIAS client_wait_ns / 1e6,
    handoff_ms Float64 ALIAS handoff_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_off_cpu
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
    runq_ns UInt64 CODEC(ZSTD),
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
    cpu UInt32 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    off_cpu_ms Float64 ALIAS duration_ns / 1e6,
    runq_ms Float64 ALIAS runq_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
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
CREATE TABLE IF NOT EXISTS ebpf_tcp_accept
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
    family LowCardinality(String),
    local_ip IPv6 CODEC(ZSTD),
    local_port UInt16 CODEC(ZSTD),
    remote_ip IPv6 CODEC(ZSTD),
    remote_port UInt16 CODEC(ZSTD),
    netns UInt32 CODEC(ZSTD),
    srtt_us UInt32 CODEC(ZSTD),
    snd_cwnd UInt32 CODEC(ZSTD),
    total_retrans UInt32 CODEC(ZSTD),
    tcp_state LowCardinality(String),
    kind LowCardinality(String),
    listen_ip IPv6 CODEC(ZSTD),
    queue_len UInt32 CODEC(ZSTD),
    queue_max UInt32 CODEC(ZSTD),
    handshake_rtt_us UInt32 CODEC(ZSTD),
    drops UInt32 CODEC(ZSTD),
    overflows UInt32 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_tcp_connect
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
    family LowCardinality(String),
    local_ip IPv6 CODEC(ZSTD),
    local_port UInt16 CODEC(ZSTD),
    remote_ip IPv6 CODEC(ZSTD),
    remote_port UInt16 CODEC(ZSTD),
    netns UInt32 CODEC(ZSTD),
    srtt_us UInt32 CODEC(ZSTD),
    snd_cwnd UInt32 CODEC(ZSTD),
    total_retrans UInt32 CODEC(ZSTD),
    tcp_state LowCardinality(String),
    outcome LowCardinality(String),
    errno UInt16 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_tcp_connect_closed
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
    family LowCardinality(String),
    local_ip IPv6 CODEC(ZSTD),
    local_port UInt16 CODEC(ZSTD),
    remote_ip IPv6 CODEC(ZSTD),
    remote_port UInt16 CODEC(ZSTD),
    netns UInt32 CODEC(ZSTD),
    srtt_us UInt32 CODEC(ZSTD),
    snd_cwnd UInt32 CODEC(ZSTD),
    total_retrans UInt32 CODEC(ZSTD),
    tcp_state LowCardinality(String),
    closed_by LowCardinality(String),
    bytes_sent UInt64 CODEC(ZSTD),
    bytes_received UInt64 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE TABLE IF NOT EXISTS ebpf_tcp_loss
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
    kind LowCardinality(String),
    ended_by LowCardinality(String),
    owner LowCardinality(String),
    family LowCardinality(String),
    local_ip IPv6 CODEC(ZSTD),
    local_port UInt16 CODEC(ZSTD),
    remote_ip IPv6 CODEC(ZSTD),
    remote_port UInt16 CODEC(ZSTD),
    netns UInt32 CODEC(ZSTD),
    srtt_us UInt32 CODEC(ZSTD),
    snd_cwnd UInt32 CODEC(ZSTD),
    total_retrans UInt32 CODEC(ZSTD),
    tcp_state LowCardinality(String),
    stalled_ns UInt64 CODEC(ZSTD),
    stalls UInt32 CODEC(ZSTD),
    segments UInt32 CODEC(ZSTD),
    timeouts UInt32 CODEC(ZSTD),
    probes UInt32 CODEC(ZSTD),
    lost_out UInt32 CODEC(ZSTD),
    snd_wnd UInt32 CODEC(ZSTD),
    rcv_wnd UInt32 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    stalled_ms Float64 ALIAS stalled_ns / 1e6
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (pid, tid, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
CREATE VIEW IF NOT EXISTS request_time AS
WITH
    server AS
    (
        SELECT
            TraceId, SpanId, ParentSpanId, ServiceName, SpanName,
            if(ResourceAttributes['k8s.node.name'] != '',
                ResourceAttributes['k8s.node.name'], ResourceAttributes['host.name']) AS host,
            if(ResourceAttributes['k8s.pod.uid'] != '',
                ResourceAttributes['k8s.pod.uid'], ResourceAttributes['container.id']) AS container,
            toUInt32OrZero(if(SpanAttributes['process.pid'] != '',
                SpanAttributes['process.pid'], ResourceAttributes['process.pid'])) AS pid,
            toUInt32OrZero(SpanAttributes['thread.id']) AS tid,
            intDiv(toUnixTimestamp64Nano(Timestamp), 1000) AS start_us,
            start_us + intDiv(Duration, 1000) AS end_us,
            lagInFrame(start_us) OVER
                (PARTITION BY host, container, pid, tid ORDER BY start_us
                 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS previous_us
        FROM otel_traces
        WHERE Timestamp >= {from:DateTime64(6, 'UTC')} AND Timestamp <= {to:DateTime64(6, 'UTC')}
            AND SpanKind IN ('Server', 'SPAN_KIND_SERVER') AND SpanAttributes['thread.id'] != ''
    ),
    client AS
    (
        SELECT
            TraceId, SpanId,
            intDiv(toUnixTimestamp64Nano(Timestamp), 1000) AS start_us,
            intDiv(Duration, 1000) AS duration_us
        FROM otel_traces
        WHERE Timestamp >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND Timestamp <= {to:DateTime64(6, 'UTC')}
            AND SpanKind IN ('Client', 'SPAN_KIND_CLIENT')
    ),
    handoff AS
    (
        SELECT
            host, if(pod_uid != '', pod_uid, container_id) AS container, pid, tid,
            toUnixTimestamp64Micro(end_time) AS end_us,
            end_us - intDiv(handoff_ns, 1000) AS start_us,
            intDiv(client_wait_ns, 1000) AS client_wait_us,
            queue
        FROM ebpf_handoff
        WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time <= {to:DateTime64(6, 'UTC')}
    ),
    gc AS
    (
        SELECT
            host, if(pod_uid != '', pod_uid, container_id) AS container, pid, tid,
            toUnixTimestamp64Micro(start_time) AS start_us,
            toUnixTimestamp64Micro(end_time) AS end_us
        FROM ebpf_gc_pause
        WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE
            AND start_time <= {to:DateTime64(6, 'UTC')} + INTERVAL 10 MINUTE
    ),
    picked AS
    (
        SELECT
            s.TraceId AS TraceId, s.SpanId AS SpanId, s.ParentSpanId AS ParentSpanId,
            s.ServiceName AS ServiceName, s.SpanName AS SpanName,
            s.host AS host, s.container AS container, s.pid AS pid, s.tid AS tid,
            s.start_us AS start_us, s.end_us AS end_us,
            h.end_us > s.previous_us AS found,
            if(found, h.start_us, s.start_us) AS wait_us,
            if(found, h.end_us, s.start_us) AS pickup_us,
            if(found, h.queue, '') AS queue,
            if(found, h.client_wait_us, 0) AS client_wait_us
        FROM server AS s
        ASOF LEFT JOIN handoff AS h
            ON s.host = h.host AND s.container = h.container AND s.pid = h.pid AND s.tid = h.tid
            AND s.start_us >= h.end_us
    ),
    whole AS
    (
        SELECT
            p.* EXCEPT (ParentSpanId),
            if(c.duration_us > 0, least(c.start_us, p.wait_us), p.wait_us) AS begin_us,
            if(c.duration_us > 0, c.duration_us, p.end_us - p.wait_us) AS total_us,
            greatest(begin_us + total_us, p.end_us) AS done_us
        FROM picked AS p
        LEFT JOIN client AS c ON c.TraceId = p.TraceId AND c.SpanId = p.ParentSpanId
    ),
    parts AS
    (
        SELECT
            w.TraceId AS TraceId, w.SpanId AS SpanId, any(w.ServiceName) AS ServiceName, any(w.SpanName) AS SpanName,
            any(w.host) AS host, any(w.container) AS container, any(w.pid) AS pid, any(w.tid) AS tid,
            any(w.begin_us) AS begin_us, any(w.start_us) AS start_us, any(w.total_us) AS total_us,
            any(w.queue) AS queue, any(w.client_wait_us) AS client_wait_us,
            any(w.end_us - w.start_us) AS span_us,
            sum(greatest(0, least(g.end_us, w.done_us) - greatest(g.start_us, w.begin_us)) AS overlap_us) AS gc_us,
            sumIf(overlap_us, g.tid != w.tid OR g.start_us < w.pickup_us) AS gc_others_us,
            any(w.pickup_us - w.wait_us)
                - sum(greatest(0, least(g.end_us, w.pickup_us) - greatest(g.start_us, w.wait_us))) AS handoff_us,
            span_us
                - sum(greatest(0, least(g.end_us, w.end_us) - greatest(g.start_us, w.start_us))) AS handler_us
        FROM whole AS w
        LEFT JOIN gc AS g ON g.host = w.host AND g.container = w.container AND g.pid = w.pid
        GROUP BY w.TraceId, w.SpanId
    )
SELECT
    TraceId AS trace_id, SpanId AS span_id, ServiceName AS service, SpanName AS span_name,
    host, container, pid, tid,
    fromUnixTimestamp64Micro(begin_us, 'UTC') AS begin_time,
    fromUnixTimestamp64Micro(start_us, 'UTC') AS span_time,
    queue,
    total_us / 1000 AS total_ms,
    handoff_us / 1000 AS handoff_ms,
    gc_us / 1000 AS gc_ms,
    gc_others_us / 1000 AS gc_others_ms,
    handler_us / 1000 AS handler_ms,
    (total_us - handoff_us - gc_us - handler_us) / 1000 AS rest_ms,
    span_us / 1000 AS span_ms,
    client_wait_us / 1000 AS client_wait_ms
FROM parts;
