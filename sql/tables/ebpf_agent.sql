-- Counters of the agent, a row per tracker and interval; also for tables of sums (off_cpu_profile, ...), for discovery
-- ("processes") and for the agent's own tables ("agent").
-- seen = filtered + sampled + lost_ring + lost_state + bad_event + rows + the change of pending, and rows + recovered = inserted
-- + dropped_* + the change of queued_rows (lost_crash belongs to an earlier run). A table without rows and without losses here
-- had no events. After an orderly end of the agent, pending is 0.
-- Incomplete rows: rows_gone have "<gone>" in a stack (code freed before the read), rows_unread "<unread>" (code or a function
-- not read in time), rows_unnamed a Python thread without a name.
-- columns_left_out: number of columns of the tracker's rows missing in the table; `underspan schema --check` names the columns.
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
    columns_left_out UInt64 CODEC(ZSTD),
    bytes_sent UInt64 CODEC(ZSTD),
    bpf_ns Nullable(UInt64) CODEC(ZSTD),
    bpf_hits Nullable(UInt64) CODEC(ZSTD),
    agent_ns Nullable(UInt64) CODEC(ZSTD),
    sampling_level UInt64 CODEC(ZSTD),
    skip_shift UInt64 CODEC(ZSTD)
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (host, tracker, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
