// SPDX-License-Identifier: Apache-2.0
/* loop_stall: from a struct loop_stall_event to a row of ebpf_loop_stall. */
#include "row_test.h"

#include <string.h>
#include <unistd.h>

#include "events/loop_stall.h"
#include "interpreter.h"

/* 7654321 ns in all, of which 1000000 asleep and 54321 in the run queue */
static const struct loop_stall_event ordinary = {
	.header = ROW_HEADER,
	.runq_ns = 54321,
	.part_ns = { [LOOP_GIL] = 100000,
		     [LOOP_LOCK] = 200000,
		     [LOOP_NET] = 300000,
		     [LOOP_DISK] = 150000,
		     [LOOP_SLEEP] = 150000,
		     [LOOP_OTHER] = 100000 },
	.stack_at_ns = 5000000001,
	.waiting = 17,
	.kind = LOOP_UVLOOP,
	.split = 1,
	.gil_known = 1,
	.waiting_known = 1,
};

#define OWN_PARTS                                                                                  \
	",'cpu_ns':6600000,'runq_ns':54321,'gil_ns':100000,'lock_ns':200000,'net_ns':300000,"      \
	"'disk_ns':150000,'sleep_ns':150000,'other_ns':100000,'waiting':17,"

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("loop_stall", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_loop_stall'," ROW_COMMON ",'loop':'uvloop'" OWN_PARTS
		   "'stack_at_ns':null,'py_stack':[]}");
	assert_int_equal(row_counts("ebpf_loop_stall").rows, 1);
}

/* The sum of the parts wraps around; frames that are not there are no stack. */
static void all_bits_set(void **state)
{
	struct loop_stall_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("loop_stall", &event, sizeof(event));
	row_expect("{'table':'ebpf_loop_stall'," ROW_MAX_COMMON
		   ",'loop':'','cpu_ns':6,'runq_ns':18446744073709551615,"
		   "'gil_ns':18446744073709551615,'lock_ns':18446744073709551615,"
		   "'net_ns':18446744073709551615,'disk_ns':18446744073709551615,"
		   "'sleep_ns':18446744073709551615,'other_ns':18446744073709551615,"
		   "'waiting':4294967295,'stack_at_ns':null,'py_stack':[]}");
}

/* Without context switches only the sum of the times asleep is known; without glibc, no GIL. */
static void what_is_not_measured(void **state)
{
	struct loop_stall_event event = ordinary;

	(void)state;
	event.gil_known = event.waiting_known = 0;
	event.part_ns[LOOP_GIL] = 0;
	row_feed("loop_stall", &event, sizeof(event));
	row_expect("{'table':'ebpf_loop_stall'," ROW_COMMON
		   ",'loop':'uvloop','cpu_ns':6700000,'runq_ns':54321,'gil_ns':null,"
		   "'lock_ns':200000,'net_ns':300000,'disk_ns':150000,'sleep_ns':150000,"
		   "'other_ns':100000,'waiting':null,'stack_at_ns':null,'py_stack':[]}");
	event.split = 0;
	memset(event.part_ns, 0, sizeof(event.part_ns));
	event.part_ns[LOOP_OTHER] = 1000000;
	row_feed("loop_stall", &event, sizeof(event));
	row_expect("{'table':'ebpf_loop_stall'," ROW_COMMON
		   ",'loop':'uvloop','cpu_ns':6600000,'runq_ns':54321,'gil_ns':null,"
		   "'lock_ns':null,'net_ns':null,'disk_ns':null,'sleep_ns':null,"
		   "'other_ns':1000000,'waiting':null,'stack_at_ns':null,'py_stack':[]}");
}

/* The parts add up although they come from several clocks: the largest gives way. */
static void parts_longer_than_the_stall(void **state)
{
	struct loop_stall_event event = ordinary;

	(void)state;
	memset(event.part_ns, 0, sizeof(event.part_ns));
	event.part_ns[LOOP_SLEEP] = 7654321;
	event.part_ns[LOOP_NET] = 7;
	event.runq_ns = 5;
	row_feed("loop_stall", &event, sizeof(event));
	row_expect("{'table':'ebpf_loop_stall'," ROW_COMMON
		   ",'loop':'uvloop','cpu_ns':0,'runq_ns':5,'gil_ns':0,'lock_ns':0,"
		   "'net_ns':7,'disk_ns':0,'sleep_ns':7654309,'other_ns':0,'waiting':17,"
		   "'stack_at_ns':null,'py_stack':[]}");
}

static void every_loop(void **state)
{
	static const char *const names[LOOP_KIND_MAX + 1] = { "",	"asyncio", "uvloop",
							      "gevent", "trio",	   "" };
	struct loop_stall_event event = ordinary;

	(void)state;
	for (uint8_t i = 0; i <= LOOP_KIND_MAX; i++) {
		event.kind = i;
		row_feed("loop_stall", &event, sizeof(event));
		row_expectf("{'table':'ebpf_loop_stall'," ROW_COMMON ",'loop':'%s'" OWN_PARTS
			    "'stack_at_ns':null,'py_stack':[]}",
			    names[i]);
	}
}

static void stack_of_this_process(void **state)
{
	struct loop_stall_event event = ordinary;
	struct python_frame frames[2];

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "MainThread");
	frames[0] = interpreter_call("resize", "shop/images.py", 70);
	frames[1] = interpreter_call("upload", "shop/views.py", 7);
	event.header.host_pid = (uint32_t)getpid();
	event.py_stack.n = 2;
	row_feed_more("loop_stall", &event, sizeof(event), frames, sizeof(frames));
	row_expect("{'table':'ebpf_loop_stall','host':'test','container_id':'$CONTAINER',"
		   "'pod_uid':'$POD','pid':70001,'tid':70002,'host_pid':$PID,'host_tid':4200002,"
		   "'comm':'worker','thread_name':'MainThread'," ROW_TIMES
		   ",'loop':'uvloop'" OWN_PARTS "'stack_at_ns':5000000001,"
		   "'py_stack':['resize (shop/images.py:72)','upload (shop/views.py:9)']}");
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),	ROW_TEST(all_bits_set),
	ROW_TEST(what_is_not_measured), ROW_TEST(parts_longer_than_the_stall),
	ROW_TEST(every_loop),		ROW_TEST(stack_of_this_process),
};
ROW_GROUP("loop_stall", tests)
