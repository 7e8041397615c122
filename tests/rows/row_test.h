/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row tests: input is a record of a tracker's ring buffer, output a line of JSON. All code in
 * between is the agent's: size check, rows.c, hooks of the tracker, enrich.c, reader threads,
 * json.c. Without root and BPF; the clock is frozen.
 */
#ifndef UNDERSPAN_ROW_TEST_H
#define UNDERSPAN_ROW_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "trackers/own_rows.h"
#include "trackers/trackers.h"

/* ---- groups of tests: one file per tracker ---- */

struct row_group {
	const char *name;
	const struct CMUnitTest *tests;
	size_t n;
	struct row_group *next;
};
void row_group_add(struct row_group *group);

int row_test_begin(void **state);
int row_test_end(void **state); /* fails if an unexpected row is left */

#define ROW_TEST(test) cmocka_unit_test_setup_teardown(test, row_test_begin, row_test_end)
#define ROW_GROUP(name_, tests_)                                                                   \
	__attribute__((constructor)) static void add_group(void)                                   \
	{                                                                                          \
		static struct row_group group = { .name = (name_),                                 \
						  .tests = (tests_),                               \
						  .n = sizeof(tests_) / sizeof((tests_)[0]) };     \
                                                                                                   \
		row_group_add(&group);                                                             \
	}

/* ---- the clock ---- */

/* 5000 s after the host's start; the wall clock is 1,700,000,000 s ahead of CLOCK_MONOTONIC. */
#define ROW_NOW_NS   5000000000000ULL
#define ROW_START_NS 5000123456789ULL
#define ROW_END_NS   5000131111110ULL

uint64_t row_clock(void);
void row_clock_advance(uint64_t ns);
void row_wall_clock_step(int64_t ns);
void row_suspend(uint64_t ns); /* suspend of the host: CLOCK_MONOTONIC stops */

/* ---- events ---- */

/* Not a process: pids end at 4194304. */
enum { ROW_UNKNOWN_PID = 4200001 };

/* A thread of an unknown process, and its columns. */
#define ROW_HEADER                                                                                 \
	{                                                                                          \
		.start_ns = ROW_START_NS,                                                          \
		.end_ns = ROW_END_NS,                                                              \
		.cgroup_id = 1,                                                                    \
		.ident = 0x7f0011223344,                                                           \
		.pid = 70001,                                                                      \
		.tid = 70002,                                                                      \
		.host_pid = ROW_UNKNOWN_PID,                                                       \
		.host_tid = 4200002,                                                               \
		.comm = "worker",                                                                  \
		.pidns = 4026532001,                                                               \
	}
#define ROW_COMMON                                                                                 \
	"'host':'test','container_id':'','pod_uid':'','pid':70001,'tid':70002,"                    \
	"'host_pid':4200001,'host_tid':4200002,'comm':'worker','thread_name':''," ROW_TIMES
#define ROW_TIMES                                                                                  \
	"'start_time':1700005000123456,'end_time':1700005000131111,'duration_ns':7654321,"         \
	"'trace_id':'','span_id':'','weight':1," ROW_NAMES
/* The service of this process, and the name of a thread of no process. */
#define ROW_SERVICE "worker"
#define ROW_NAMES   ROW_NAMES_OF(ROW_SERVICE)
#define ROW_NAMES_OF(service)                                                                      \
	"'boot_id':'boot-1','pidns':4026532001,'service':'" service                                \
	"','namespace':'','pod':'','container':''"
#define ROW_NO_NAMES                                                                               \
	"'boot_id':'boot-1','pidns':0,'service':'','namespace':'','pod':'','container':''"

/* Sets all bits of the event, starting at the boot: extreme values. */
#define ROW_SET_ALL_BITS(event) (memset(&(event), 0xff, sizeof(event)), (event).header.start_ns = 0)
#define ROW_MAX_COMMON                                                                             \
	"'host':'test','container_id':'','pod_uid':'','pid':4294967295,'tid':4294967295,"          \
	"'host_pid':4294967295,'host_tid':4294967295,'comm':'" ROW_16_REPLACED                     \
	"','thread_name':'','start_time':1700000000000000,'end_time':1699999999999999,"            \
	"'duration_ns':18446744073709551615,'trace_id':'','span_id':'','weight':2.14748365e+09," ROW_MAX_NAMES
#define ROW_16_MARKS "????????????????"
#define ROW_MAX_NAMES                                                                              \
	"'boot_id':'boot-1','pidns':4294967295,'service':'" ROW_16_MARKS                           \
	"','namespace':'','pod':'',"                                                               \
	"'container':''"

#define ROW_REPLACED	"\xef\xbf\xbd"
#define ROW_4_REPLACED	ROW_REPLACED ROW_REPLACED ROW_REPLACED ROW_REPLACED
#define ROW_16_REPLACED ROW_4_REPLACED ROW_4_REPLACED ROW_4_REPLACED ROW_4_REPLACED

/* Feeds a record of the tracker's ring buffer: the event and trailing data. */
void row_feed(const char *tracker, const void *event, size_t size);
void row_feed_more(const char *tracker, const void *event, size_t size, const void *extra,
		   size_t extra_size);

/* For rows made by a tracker, see own_rows.h. */
struct tracker_output row_output(const char *tracker);
struct running_tracker *row_tracker(const char *name);
struct tracker_set *row_set(void);
const struct rows *row_rows(void);
struct pipeline *row_pipeline(void);

/* ---- rows ---- */

/*
 * Expects the next row to be this line exactly, without newline. ' means ", $PID this process,
 * $CONTAINER and $POD its container and pod. Waits for pending look-ups.
 */
void row_expect(const char *line);
__attribute__((format(printf, 1, 2))) void row_expectf(const char *format, ...);
/* Expects no row; deferred rows stay deferred. */
void row_expect_none(void);
/* Drops existing rows; drops rows up to the first containing `text`. */
void row_forget(void);
void row_skip_to(const char *text);
/* Collects results of look-ups like the collector, ten times a second: completed rows are sent. */
void row_tick(void);

/* Counters of a table since the start of the test. */
struct row_counts {
	uint64_t rows, gone, unread, unnamed;
};
struct row_counts row_counts(const char *table);
/* Records of a wrong size, and of refused processes, since the start of the test. */
uint64_t row_bad_events(const char *tracker);
uint64_t row_of_refused(const char *tracker);

/* Reports the process's exit or exec() as to the collector. */
void row_process_gone(uint32_t host_pid);

/* Stalls the reader of this process until released. */
void row_block_reader(uint32_t host_pid);
void row_unblock_reader(void);

#endif
