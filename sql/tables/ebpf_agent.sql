-- What the agent counted about itself, a row per tracker and interval.
-- seen = filtered + lost_ring + lost_state + bad_event + rows, and
-- rows = inserted + dropped_memory + dropped_refused + the change of queued_rows: a table without
-- rows and without losses here had no events.
CREATE TABLE IF NOT EXISTS ebpf_agent
(
    host LowCardinality(String),
    version LowCardinality(String),
    tracker LowCardinality(String),
    start_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    end_time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    seen UInt64 CODEC(ZSTD),
    filtered UInt64 CODEC(ZSTD),
    lost_ring UInt64 CODEC(ZSTD),
    lost_state UInt64 CODEC(ZSTD),
    bad_event UInt64 CODEC(ZSTD),
    rows UInt64 CODEC(ZSTD),
    read_fail UInt64 CODEC(ZSTD),
    inserted UInt64 CODEC(ZSTD),
    dropped_memory UInt64 CODEC(ZSTD),
    dropped_refused UInt64 CODEC(ZSTD),
    queued_rows UInt64 CODEC(ZSTD),
    retries UInt64 CODEC(ZSTD),
    bytes_sent UInt64 CODEC(ZSTD)
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (host, tracker, start_time)
TTL toDateTime(start_time) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
