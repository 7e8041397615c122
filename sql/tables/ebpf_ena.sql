-- Allowances of the EC2 instance, as the network driver counts what was queued or dropped because one was exceeded: a row
-- per interface and reading, every second, also when all was well. Intervals of an interface do not overlap, so deltas add up.
-- *_exceeded is the increase from start_time to end_time, *_exceeded_total the driver's own count since its last reset.
-- NULL: the driver has no such counter, or there is nothing to compare with (the first reading; reset = 1: the counters began
-- anew between the two, *_total is what came since). conntrack_allowance_available is a level, not a count.
-- Interfaces are those of the agent's own network namespace (on a host and in the DaemonSet the host's): one that was moved
-- into a container's namespace is not read while it is there, and its health row says that it is gone. To go there takes
-- setns(), which the agent's sandbox (RestrictNamespaces, no CAP_SYS_ADMIN but for uprobes) refuses. AWS's CNI leaves the ENIs
-- on the host and gives pods veth pairs; for a namespace with an ENI of its own there can be an agent of its own:
-- nsenter --net=/proc/PID/ns/net underspan run --trackers=ena.
-- source: ioctl, read by underspan; fexit, the driver reported it to the program `asked_by`; with several ena.driver
-- that is seen for the first.
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
