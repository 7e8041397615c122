// SPDX-License-Identifier: Apache-2.0
/* gil_wait: from a struct gil_wait_event to a row of ebpf_gil_wait, from sums to the profile. */
#include "row_test.h"

#include <string.h>
#include <unistd.h>

#include "events/gil_wait.h"
#include "interpreter.h"

static const struct gil_wait_event ordinary = {
	.header = ROW_HEADER,
	.runq_ns = 5000000001,
	.forced_ns = 5000000002,
	.holders = { { 70003, 4200003, 0x7f0011223355, 5000000003 },
		     { 70004, 4200004, 0x7f0011223366, 5000000004 },
		     /* not known: */ { 0, 0, 0, 5000000005 },
		     /* over the maximum: */ { 1, 2, 3, 4 } },
	.dropper_ident = 0x7f0011223366,
	.dropper_tid = 70004,
	.dropper_host_tid = 4200004,
	.sleeps = 100001,
	.n_holders = 3,
	.method = GIL_METHOD_SCHED,
};

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("gil_wait", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_gil_wait'," ROW_COMMON
		   ",'runq_ns':5000000001,'forced_ns':5000000002,'holder_tid':70003,"
		   "'holder_host_tid':4200003,'holder_thread_name':'','holder_py_stack':[],"
		   "'holders':[{'tid':70003,'ns':5000000003,'thread_name':''},"
		   "{'tid':70004,'ns':5000000004,'thread_name':''},"
		   "{'tid':0,'ns':5000000005,'thread_name':''}],"
		   "'dropper_tid':70004,'dropper_host_tid':4200004,'dropper_thread_name':'',"
		   "'sleeps':100001,'py_stack':[],'method':'sched'}");
	assert_int_equal(row_counts("ebpf_gil_wait").unnamed, 1);
}

#define MAX_HOLDER   "{'tid':4294967295,'ns':18446744073709551615,'thread_name':''}"
#define MAX_3HOLDERS MAX_HOLDER "," MAX_HOLDER "," MAX_HOLDER

/* Holders are limited to the array's size. */
static void all_bits_set(void **state)
{
	struct gil_wait_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("gil_wait", &event, sizeof(event));
	row_expect("{'table':'ebpf_gil_wait'," ROW_MAX_COMMON
		   ",'runq_ns':18446744073709551615,'forced_ns':18446744073709551615,"
		   "'holder_tid':4294967295,'holder_host_tid':4294967295,"
		   "'holder_thread_name':'','holder_py_stack':[],"
		   "'holders':[" MAX_3HOLDERS "," MAX_3HOLDERS "," MAX_HOLDER "," MAX_HOLDER "],"
		   "'dropper_tid':4294967295,'dropper_host_tid':4294967295,"
		   "'dropper_thread_name':'','sleeps':4294967295,'py_stack':[],'method':''}");
}

static void nobody_had_it(void **state)
{
	struct gil_wait_event event = { .header = ROW_HEADER, .method = GIL_METHOD_CALLSITE };

	(void)state;
	event.header.end_ns = event.header.start_ns;
	row_feed("gil_wait", &event, sizeof(event));
	row_expect("{'table':'ebpf_gil_wait','host':'test','container_id':'','pod_uid':'',"
		   "'pid':70001,'tid':70002,'host_pid':4200001,'host_tid':4200002,"
		   "'comm':'worker','thread_name':'','start_time':1700005000123456,"
		   "'end_time':1700005000123456,'duration_ns':0,'trace_id':'','span_id':'',"
		   "'weight':1," ROW_NAMES
		   ",'runq_ns':0,'forced_ns':0,'holder_tid':0,'holder_host_tid':0,"
		   "'holder_thread_name':'','holder_py_stack':[],'holders':[],'dropper_tid':0,"
		   "'dropper_host_tid':0,'dropper_thread_name':'','sleeps':0,'py_stack':[],"
		   "'method':'callsite'}");
}

/* ---- this process as a Python ---- */

#define OWN_COMMON                                                                                 \
	"'host':'test','container_id':'$CONTAINER','pod_uid':'$POD','pid':70001,'tid':70002,"      \
	"'host_pid':$PID,'host_tid':4200002,'comm':'worker',"

static void begin_python(void)
{
	interpreter_begin();
	interpreter_add_thread(0x7f0011223344, 70002, "waiter");
	interpreter_add_thread(0x7f0011223355, 70003, "holder");
	interpreter_add_thread(0x7f0011223366, 70004, "dropper");
}

/* The waiter's frames come first, then the first holder's. */
static void names_and_two_stacks(void **state)
{
	struct gil_wait_event event = ordinary;
	struct python_frame frames[3];

	(void)state;
	begin_python();
	event.header.host_pid = (uint32_t)getpid();
	event.method = GIL_METHOD_UPROBE;
	event.py_stack.n = 1;
	event.holder_py_stack.n = 2;
	event.holder_py_stack.cut = 1;
	frames[0] = interpreter_call("wait", "w.py", 10);
	frames[1] = interpreter_call("hold", "h.py", 20);
	frames[2] = interpreter_call("main", "h.py", 30);
	row_feed_more("gil_wait", &event, sizeof(event), frames, sizeof(frames));
	row_expect("{'table':'ebpf_gil_wait'," OWN_COMMON "'thread_name':'waiter'," ROW_TIMES
		   ",'runq_ns':5000000001,'forced_ns':5000000002,'holder_tid':70003,"
		   "'holder_host_tid':4200003,'holder_thread_name':'holder',"
		   "'holder_py_stack':['hold (h.py:22)','main (h.py:32)','<cut>'],"
		   "'holders':[{'tid':70003,'ns':5000000003,'thread_name':'holder'},"
		   "{'tid':70004,'ns':5000000004,'thread_name':'dropper'},"
		   "{'tid':0,'ns':5000000005,'thread_name':''}],"
		   "'dropper_tid':70004,'dropper_host_tid':4200004,"
		   "'dropper_thread_name':'dropper','sleeps':100001,"
		   "'py_stack':['wait (w.py:12)'],'method':'uprobe'}");
	assert_int_equal(row_counts("ebpf_gil_wait").unnamed, 0);
}

/* Frames of a single stack: ambiguous owner. */
static void frames_that_do_not_fit(void **state)
{
	struct gil_wait_event event = { .header = ROW_HEADER };
	struct python_frame frame;

	(void)state;
	begin_python();
	event.header.host_pid = (uint32_t)getpid();
	event.py_stack.n = event.holder_py_stack.n = 1;
	frame = interpreter_call("wait", "w.py", 10);
	row_feed_more("gil_wait", &event, sizeof(event), &frame, sizeof(frame));
	row_expect("{'table':'ebpf_gil_wait'," OWN_COMMON "'thread_name':'waiter'," ROW_TIMES
		   ",'runq_ns':0,'forced_ns':0,'holder_tid':0,'holder_host_tid':0,"
		   "'holder_thread_name':'','holder_py_stack':[],'holders':[],'dropper_tid':0,"
		   "'dropper_host_tid':0,'dropper_thread_name':'','sleeps':0,'py_stack':[],"
		   "'method':''}");
}

static void a_refused_process(void **state)
{
	(void)state;
	interpreter_refuse(ROW_UNKNOWN_PID);
	row_feed("gil_wait", &ordinary, sizeof(ordinary));
	row_expect_none();
	assert_int_equal(row_of_refused("gil_wait"), 1);
	assert_int_equal(row_counts("ebpf_gil_wait").rows, 0);
}

/* ---- the profile ---- */

static void add_sum(const struct gil_profile *sum)
{
	static const struct sched_sums of = { .start_ns = ROW_START_NS, .end_ns = ROW_END_NS };
	const struct gil_profile_key key = { .host_tid = 4200002, .holder_tid = 70003 };
	struct tracker_output output = row_output("gil_wait");

	gil_wait_add_sum(&output, &of, &key, sum);
}

static void sums(void **state)
{
	struct gil_profile sum = {
		.header = ROW_HEADER,
		.waits = 5000000001,
		.wait_ns = 5000000002,
		.runq_ns = 5000000003,
		.forced_ns = 5000000004,
		.max_ns = 5000000005,
		.holder_host_tid = 4200003,
	};

	(void)state;
	sum.header.start_ns = sum.header.end_ns = 0; /* times of the interval are used */
	add_sum(&sum);
	row_expect("{'table':'ebpf_gil_wait_profile'," ROW_COMMON
		   ",'holder_tid':70003,'holder_host_tid':4200003,'waits':5000000001,"
		   "'wait_ns':5000000002,'runq_ns':5000000003,'forced_ns':5000000004,"
		   "'max_ns':5000000005}");
	assert_int_equal(row_counts("ebpf_gil_wait_profile").rows, 1);
	assert_int_equal(row_counts("ebpf_gil_wait").rows, 0);
}

/* The row is deferred for the name, although its map entry is gone. */
static void sum_with_a_name(void **state)
{
	struct gil_profile sum = { .header = ROW_HEADER, .waits = 1 };

	(void)state;
	begin_python();
	sum.header.host_pid = (uint32_t)getpid();
	add_sum(&sum);
	memset(&sum, 0, sizeof(sum));
	row_expect("{'table':'ebpf_gil_wait_profile'," OWN_COMMON
		   "'thread_name':'waiter'," ROW_TIMES
		   ",'holder_tid':70003,'holder_host_tid':0,'waits':1,'wait_ns':0,'runq_ns':0,"
		   "'forced_ns':0,'max_ns':0}");
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),
	ROW_TEST(all_bits_set),
	ROW_TEST(nobody_had_it),
	ROW_TEST(names_and_two_stacks),
	ROW_TEST(frames_that_do_not_fit),
	ROW_TEST(a_refused_process),
	ROW_TEST(sums),
	ROW_TEST(sum_with_a_name),
};
ROW_GROUP("gil_wait", tests)
