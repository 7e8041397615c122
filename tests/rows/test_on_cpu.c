// SPDX-License-Identifier: Apache-2.0
/* on_cpu: from a struct on_cpu_event to a row of ebpf_on_cpu. */
#include "row_test.h"

#include <string.h>
#include <unistd.h>

#include "events/on_cpu.h"
#include "interpreter.h"

static const struct on_cpu_event ordinary = { .header = ROW_HEADER, .cpu = 3 };

/* The clock's period, 1 s / 19, before the sample. */
#define SAMPLE_TIMES                                                                               \
	"'start_time':1700005000078479,'end_time':1700005000131111,'duration_ns':52631578,"        \
	"'trace_id':'','span_id':'','weight':1," ROW_NAMES

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("on_cpu", &ordinary, sizeof(ordinary));
	row_expect(
		"{'table':'ebpf_on_cpu','host':'test','container_id':'','pod_uid':'','pid':70001,"
		"'tid':70002,'host_pid':4200001,'host_tid':4200002,'comm':'worker',"
		"'thread_name':''," SAMPLE_TIMES ",'cpu':3,'py_stack':[]}");
	assert_int_equal(row_counts("ebpf_on_cpu").rows, 1);
}

/* Frames that are not there are no stack. */
static void all_bits_set(void **state)
{
	struct on_cpu_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("on_cpu", &event, sizeof(event));
	row_expect("{'table':'ebpf_on_cpu','host':'test','container_id':'','pod_uid':'',"
		   "'pid':4294967295,'tid':4294967295,'host_pid':4294967295,"
		   "'host_tid':4294967295,'comm':'" ROW_16_REPLACED "','thread_name':'',"
		   "'start_time':1699999999947368,'end_time':1699999999999999,"
		   "'duration_ns':52631578,'trace_id':'','span_id':'',"
		   "'weight':2.14748365e+09," ROW_MAX_NAMES ",'cpu':4294967295,'py_stack':[]}");
}

static void stack_of_this_process(void **state)
{
	struct on_cpu_event event = ordinary;
	struct python_frame frames[2];

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "MainThread");
	frames[0] = interpreter_call("resize", "shop/images.py", 70);
	frames[1] = interpreter_call("upload", "shop/views.py", 7);
	event.header.host_pid = (uint32_t)getpid();
	event.py_stack.n = 2;
	row_feed_more("on_cpu", &event, sizeof(event), frames, sizeof(frames));
	row_expect(
		"{'table':'ebpf_on_cpu','host':'test','container_id':'$CONTAINER',"
		"'pod_uid':'$POD','pid':70001,'tid':70002,'host_pid':$PID,'host_tid':4200002,"
		"'comm':'worker','thread_name':'MainThread'," SAMPLE_TIMES
		",'cpu':3,'py_stack':['resize (shop/images.py:72)','upload (shop/views.py:9)']}");
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),
	ROW_TEST(all_bits_set),
	ROW_TEST(stack_of_this_process),
};
ROW_GROUP("on_cpu", tests)
