-- What the agent counted about itself, a row per tracker and interval; likewise for the tables of sums
-- (off_cpu_profile, ...), for finding processes ("processes") and for the agent's own tables ("agent").
-- seen = filtered + sampled + lost_ring + lost_state + bad_event + rows + the change of pending, and
-- rows + recovered = inserted + dropped_* + the change of queued_rows (lost_crash are of another run): a table without
-- rows and without losses here had no events. When the agent has ended in order, pending is 0.
-- Rows that lack something: rows_gone with "<gone>" in a stack, code that died before it was read; rows_unread with "<unread>", code
-- or a function that was not read in time; rows_unnamed with a Python process's thread, its own or another one, without a name.
-- columns_left_out: so many columns of the tracker's rows have no place in its table: `underspan schema --check` names them.
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
