-- Version of the tables and views in the database: a row per upgrade by `underspan schema --apply`; the largest version counts.
-- Without this table the version is 1, or the database has no tables.
CREATE TABLE IF NOT EXISTS ebpf_schema
(
    version UInt32,
    applied_at DateTime64(6, 'UTC') DEFAULT now64(6),
    applied_by String
)
ENGINE = MergeTree
ORDER BY version;
