// SPDX-License-Identifier: Apache-2.0
/* cpu_throttle: from BPF's state of a process's quota to rows. */
#include "row_test.h"

#include <string.h>

/* Seconds of CLOCK_MONOTONIC. */
#define S(seconds) ((seconds) * NSEC_PER_SEC)

/*
 * A process started at 4999 s, in a cgroup first seen at 4999.5 s. A window of periods, from 5000.1
 * to 5000.4 s, with 5000000001 ns and 100001 periods.
 */
static struct cpu_throttle_event ordinary(void)
{
	struct cpu_throttle_event event = {
		.header = ROW_HEADER,
		.group = 0xffff888000000001,
		.cgroup_id = 5000000011,
		.quota_ns = 50000000000000,
		.period_ns = 60000000000000,
		.now = { 5000001001, 300003, 100011 },
		.periods = { .first = { 1000, 100001, 10 },
			     .first_ns = S(4999) + NSEC_PER_SEC / 2,
			     .last = { 5000001001, 300003, 100011 },
			     .n_windows = 1,
			     .windows = { { S(5000) + 100 * NSEC_PER_MSEC,
					    S(5000) + 400 * NSEC_PER_MSEC,
					    { 1000, 100001, 10 },
					    { 5000001001, 300003, 100011 } } } },
		.level = 100004,
		.name = "web",
	};

	event.header.tid = event.header.host_tid = 0;
	event.header.start_ns = S(4999);
	event.header.end_ns = S(5001);
	return event;
}

static void take(const struct cpu_throttle_event *event)
{
	struct tracker_output output = row_output("cpu_throttle");

	cpu_throttle_take(&output, event);
}

/* State of a process is removed with the process. */
static void process_ends(void)
{
	struct cpu_throttle_event event = ordinary();

	event.ended = 1;
	cpu_throttle_take(NULL, &event);
}

#define COMMON                                                                                     \
	"{'table':'ebpf_cpu_throttle','host':'test','container_id':'','pod_uid':'','pid':70001,"   \
	"'tid':0,'host_pid':4200001,'host_tid':0,'comm':'worker','thread_name':'',"
#define QUOTA                                                                                      \
	",'trace_id':'','span_id':'','weight':1," ROW_NAMES                                        \
	",'cgroup':'web','cgroup_id':5000000011,"                                                  \
	"'cgroup_level':100004,'quota_us':50000000000,'period_us':60000000000,"

static void ordinary_event(void **state)
{
	struct cpu_throttle_event event = ordinary();

	(void)state;
	take(&event);
	row_expect(COMMON "'start_time':1700005000100000,'end_time':1700005000400000,"
			  "'duration_ns':300000000" QUOTA "'throttled_ns':5000000001,"
			  "'throttled_periods':100001,'periods':200002,"
			  "'throttled_ns_total':5000001001,'throttled_periods_total':100011,"
			  "'periods_total':300003}");
	assert_int_equal(row_counts("ebpf_cpu_throttle").rows, 1);
	/* unchanged counters make no row */
	event.header.end_ns = S(5002);
	take(&event);
	row_expect_none();
	/* increased counters without window: the timer was not seen; the row starts at the last
	 * row's end */
	event.header.end_ns = S(5003);
	event.now.throttled_ns += 7;
	event.now.throttled_periods += 2;
	event.now.periods += 3;
	event.periods.n_windows = 0;
	take(&event);
	row_expect(COMMON "'start_time':1700005000400000,'end_time':1700005003000000,"
			  "'duration_ns':2600000000" QUOTA
			  "'throttled_ns':7,'throttled_periods':2,'periods':3,"
			  "'throttled_ns_total':5000001008,'throttled_periods_total':100013,"
			  "'periods_total':300006}");
	process_ends();
}

/* Two windows: the first uses the counters at its end, the last the current counters. */
static void two_windows(void **state)
{
	struct cpu_throttle_event event = ordinary();
	struct cpu_throttle_window *windows = event.periods.windows;

	(void)state;
	event.periods.n_windows = 2;
	windows[0].after = (struct cpu_throttle_totals){ 1500, 100002, 11 };
	windows[1] = (struct cpu_throttle_window){ S(5000) + 500 * NSEC_PER_MSEC,
						   S(5000) + 600 * NSEC_PER_MSEC,
						   { 1500, 100005, 11 },
						   { 1900, 100006, 12 } };
	event.now = event.periods.last = (struct cpu_throttle_totals){ 2500, 100007, 13 };
	take(&event);
	row_expect(COMMON "'start_time':1700005000100000,'end_time':1700005000400000,"
			  "'duration_ns':300000000" QUOTA
			  "'throttled_ns':500,'throttled_periods':1,'periods':1,"
			  "'throttled_ns_total':1500,'throttled_periods_total':11,"
			  "'periods_total':100002}");
	row_expect(COMMON "'start_time':1700005000500000,'end_time':1700005000600000,"
			  "'duration_ns':100000000" QUOTA
			  "'throttled_ns':1000,'throttled_periods':2,'periods':5,"
			  "'throttled_ns_total':2500,'throttled_periods_total':13,"
			  "'periods_total':100007}");
	process_ends();
}

/* A name of maximum length, not valid UTF-8. */
static void an_ugly_cgroup(void **state)
{
	struct cpu_throttle_event event = ordinary();

	(void)state;
	memset(event.name, 'x', sizeof(event.name));
	memcpy(event.name, "a\"\\\n\xff\xc2\x85", 7);
	event.level = 0;
	event.quota_ns = 1999; /* whole microseconds only */
	event.period_ns = 999;
	take(&event);
	row_expect(COMMON
		   "'start_time':1700005000100000,'end_time':1700005000400000,"
		   "'duration_ns':300000000,'trace_id':'','span_id':'','weight':1," ROW_NAMES
		   ",'cgroup':'a\\\"\\\\\\u000a" ROW_REPLACED "\\u0085"
		   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
		   "xxxxxxxxxxxxx','cgroup_id':5000000011,"
		   "'cgroup_level':0,'quota_us':1,'period_us':0,"
		   "'throttled_ns':5000000001,'throttled_periods':100001,'periods':200002,"
		   "'throttled_ns_total':5000001001,'throttled_periods_total':100011,"
		   "'periods_total':300003}");
	process_ends();
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),
	ROW_TEST(two_windows),
	ROW_TEST(an_ugly_cgroup),
};
ROW_GROUP("cpu_throttle", tests)
