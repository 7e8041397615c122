-- Which version of these tables and views the database has: a row for each time `underspan schema --apply` brought it to
-- one; the largest counts. Without this table it is version 1, or there is nothing yet.
CREATE TABLE IF NOT EXISTS ebpf_schema
(
    version UInt32,
    applied_at DateTime64(6, 'UTC') DEFAULT now64(6),
    applied_by String
)
ENGINE = MergeTree
ORDER BY version;
