-- Threads that changed their names: comm is the old one.
CREATE TABLE IF NOT EXISTS ebpf_thread_rename
(
#include "tables/thread_columns.inc"
    new_comm String COMMENT 'the name from then on' CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
