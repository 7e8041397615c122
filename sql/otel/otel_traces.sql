-- The table of spans as created by the OpenTelemetry Collector's ClickHouse exporter, for stores before the first write of a
-- collector. IF NOT EXISTS: a table created by the exporter is kept.
CREATE TABLE IF NOT EXISTS otel_traces
(
    Timestamp          DateTime64(9)                       CODEC(Delta(8), ZSTD(1)), -- the span's start
    TraceId            String                              CODEC(ZSTD(1)),           -- 32 hex digits
    SpanId             String                              CODEC(ZSTD(1)),           -- 16 hex digits
    ParentSpanId       String                              CODEC(ZSTD(1)),           -- empty: the trace's root
    TraceState         String                              CODEC(ZSTD(1)),
    SpanName           LowCardinality(String)              CODEC(ZSTD(1)),
    SpanKind           LowCardinality(String)              CODEC(ZSTD(1)),           -- Server, Client, Internal, ...
    ServiceName        LowCardinality(String)              CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName          String                              CODEC(ZSTD(1)),
    ScopeVersion       String                              CODEC(ZSTD(1)),
    SpanAttributes     Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration           UInt64                              CODEC(T64, ZSTD(1)),      -- nanoseconds
    StatusCode         LowCardinality(String)              CODEC(ZSTD(1)),           -- Unset, Ok, Error
    StatusMessage      String                              CODEC(ZSTD(1)),
    Events Nested
    (
        Timestamp  DateTime64(9),
        Name       LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested
    (
        TraceId    String,
        SpanId     String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp))
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1;
