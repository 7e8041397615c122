-- Allowances of the EC2 instance: the network driver counts packets queued or dropped because an allowance was exceeded. A row
-- per interface and second, with or without increases. Intervals of an interface do not overlap, so deltas add up.
-- *_exceeded: increase from start_time to end_time; *_exceeded_total: the driver's count since the last reset. NULL: the driver
-- has no such counter, or no earlier value (the first reading; reset = 1: the counters began anew, *_total is the count since).
-- conntrack_allowance_available is a level, not a count.
-- Interfaces are in the agent's network namespace (on a host and in the DaemonSet: the host's). An interface moved into a
-- container's namespace is not read there, and the health row says so: reading would need setns(), which the agent's sandbox
-- (RestrictNamespaces, no CAP_SYS_ADMIN except for uprobes) refuses. AWS's CNI keeps the ENIs on the host and gives pods veth
-- pairs; for a namespace with an ENI run a further agent:
--   nsenter --net=/proc/PID/ns/net underspan run --trackers=ena
-- source: ioctl, read by underspan; fexit, reported by the driver to the program `asked_by` (with several ena.driver: the first
-- driver only).
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
