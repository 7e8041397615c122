// SPDX-License-Identifier: Apache-2.0
/* gc_pause: from a struct gc_pause_event to a row of ebpf_gc_pause. */
#include "row_test.h"

#include <string.h>
#include <unistd.h>

#include "events/gc_pause.h"
#include "interpreter.h"

static const struct gc_pause_event ordinary = {
	.header = ROW_HEADER,
	.collected = 5000000001,
	.uncollectable = 5000000002,
	.long_lived = 5000000003,
	.long_lived_known = 1,
	.binary_id = 9,
	.frozen_threads = 100001,
	.sibling_threads = 100002,
	.generation = 2,
	.reason = GC_REASON_HEAP,
	.method = 3,
};

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("gc_pause", &ordinary, sizeof(ordinary));
	row_expect(
		"{'table':'ebpf_gc_pause'," ROW_COMMON
		",'generation':2,'reason':'heap','collected':5000000001,"
		"'uncollectable':5000000002,'long_lived':5000000003,'frozen_threads':100001,'sibling_threads':100002,"
		"'py_stack':[],'method':'scan'}");
	/* interpreter probes fired: counts as unnamed even for an unknown process
	 */
	assert_int_equal(row_counts("ebpf_gc_pause").unnamed, 1);
}

/* An unreadable generation is -1. */
static void all_bits_set(void **state)
{
	struct gc_pause_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("gc_pause", &event, sizeof(event));
	row_expect(
		"{'table':'ebpf_gc_pause'," ROW_MAX_COMMON
		",'generation':-1,'reason':'','collected':18446744073709551615,"
		"'uncollectable':18446744073709551615,'long_lived':18446744073709551615,'frozen_threads':null,"
		"'sibling_threads':4294967295,'py_stack':[],'method':''}");
}

static void every_name(void **state)
{
	static const char *const reasons[] = { "", "heap", "shutdown", "manual", "" };
	static const char *const methods[] = { "", "usdt", "symbol", "scan", "" };
	static const int8_t generations[] = { 0, 1, -128, 127, -1 };
	struct gc_pause_event event = ordinary;

	(void)state;
	for (uint8_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		event.reason = event.method = i;
		event.generation = generations[i];
		row_feed("gc_pause", &event, sizeof(event));
		row_expectf(
			"{'table':'ebpf_gc_pause'," ROW_COMMON
			",'generation':%d,'reason':'%s','collected':5000000001,"
			"'uncollectable':5000000002,'long_lived':5000000003,'frozen_threads':100001,"
			"'sibling_threads':100002,'py_stack':[],'method':'%s'}",
			generations[i], reasons[i], methods[i]);
	}
}

static void stack_of_this_process(void **state)
{
	struct gc_pause_event event = ordinary;
	struct python_frame frame;

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "web-1");
	frame = interpreter_call("load", "models.py", 70);
	event.header.host_pid = (uint32_t)getpid();
	event.stack.n = 1;
	row_feed_more("gc_pause", &event, sizeof(event), &frame, sizeof(frame));
	row_expect(
		"{'table':'ebpf_gc_pause','host':'test','container_id':'$CONTAINER',"
		"'pod_uid':'$POD','pid':70001,'tid':70002,'host_pid':$PID,'host_tid':4200002,"
		"'comm':'worker','thread_name':'web-1'," ROW_TIMES
		",'generation':2,'reason':'heap','collected':5000000001,"
		"'uncollectable':5000000002,'long_lived':5000000003,'frozen_threads':100001,'sibling_threads':100002,"
		"'py_stack':['load (models.py:72)'],'method':'scan'}");
	assert_int_equal(row_counts("ebpf_gc_pause").unnamed, 0);
}

/* A refused process uses the probed file: counted, no row. */
static void a_refused_process(void **state)
{
	(void)state;
	interpreter_refuse(ROW_UNKNOWN_PID);
	row_feed("gc_pause", &ordinary, sizeof(ordinary));
	row_feed("gc_pause", &ordinary, sizeof(ordinary));
	row_expect_none();
	assert_int_equal(row_of_refused("gc_pause"), 2);
	assert_int_equal(row_counts("ebpf_gc_pause").rows, 0);
	assert_int_equal(row_bad_events("gc_pause"), 0);
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),	 ROW_TEST(all_bits_set),      ROW_TEST(every_name),
	ROW_TEST(stack_of_this_process), ROW_TEST(a_refused_process),
};
ROW_GROUP("gc_pause", tests)
