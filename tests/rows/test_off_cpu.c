// SPDX-License-Identifier: Apache-2.0
/* off_cpu: from a struct off_cpu_event to a row of ebpf_off_cpu, from sums to the profile. */
#include "row_test.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "events/off_cpu.h"
#include "interpreter.h"

#define OFF_CPU                                                                                    \
	{                                                                                          \
		.waker = { .tid = 70004,                                                           \
			   .host_tid = 4200004,                                                    \
			   .pid = 70003,                                                           \
			   .host_pid = 4200003,                                                    \
			   .ident = 0x7f0011223355,                                                \
			   .comm = "waker" },                                                      \
		.lock = 0x7f0011224470,                                                            \
		.syscall = SYS_futex,                                                              \
		.cause = OFF_CPU_CAUSE_net,                                                        \
		.state = 'S',                                                                      \
		.idle = 1,                                                                         \
		.waker_syscall = SYS_write,                                                        \
	}

static const struct off_cpu_event ordinary = {
	.header = ROW_HEADER,
	.runq_ns = 5000000001,
	.kernel = { 1, 2 },
	.off = OFF_CPU,
	.cpu = 100001,
};

#define WHY                                                                                        \
	"'state':'S','cause':'net','idle':1,'syscall':'futex','kernel_stack':"                     \
	"['[kernel]','[kernel]'],'user_stack':[],'py_stack':[],"
#define WAKER                                                                                      \
	"'waker_pid':70003,'waker_tid':70004,'waker_host_tid':4200004,'waker_comm':'waker',"       \
	"'waker_thread_name':'','waker_stack':[]"

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("off_cpu", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_off_cpu'," ROW_COMMON
		   ",'runq_ns':5000000001,'state':'S','cause':'net','idle':1,'syscall':'futex',"
		   "'kernel_stack':['[kernel]','[kernel]'],'user_stack':[],'py_stack':[],"
		   "'waker_pid':70003,'waker_tid':70004,'waker_host_tid':4200004,"
		   "'waker_comm':'waker','waker_thread_name':'','waker_stack':[],'cpu':100001,"
		   "'lock_address':139638264185968}");
	assert_int_equal(row_counts("ebpf_off_cpu").unnamed, 0);
}

/* Without system call, waker and stack. */
static void nothing_known(void **state)
{
	struct off_cpu_event event = { .header = ROW_HEADER, .off.syscall = -1, .off.state = 'R' };

	(void)state;
	row_feed("off_cpu", &event, sizeof(event));
	row_expect("{'table':'ebpf_off_cpu'," ROW_COMMON
		   ",'runq_ns':0,'state':'R','cause':'other','idle':0,'syscall':'',"
		   "'kernel_stack':[],'user_stack':[],'py_stack':[],'waker_pid':0,"
		   "'waker_tid':0,'waker_host_tid':0,'waker_comm':'','waker_thread_name':'',"
		   "'waker_stack':[],'cpu':0,'lock_address':0}");
}

#define KERNEL_4  "'[kernel]','[kernel]','[kernel]','[kernel]'"
#define KERNEL_24 KERNEL_4 "," KERNEL_4 "," KERNEL_4 "," KERNEL_4 "," KERNEL_4 "," KERNEL_4

#define UNKNOWN_4  "'[unknown]','[unknown]','[unknown]','[unknown]'"
#define UNKNOWN_16 UNKNOWN_4 "," UNKNOWN_4 "," UNKNOWN_4 "," UNKNOWN_4

/* Stacks of an unknown process: all frames unknown. */
static void all_bits_set(void **state)
{
	struct off_cpu_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("off_cpu", &event, sizeof(event));
	row_expect("{'table':'ebpf_off_cpu'," ROW_MAX_COMMON
		   ",'runq_ns':18446744073709551615,'state':'" ROW_REPLACED "','cause':'',"
		   "'idle':255,'syscall':'','kernel_stack':[" KERNEL_24 "],"
		   "'user_stack':[" UNKNOWN_16 "," UNKNOWN_16 "],'py_stack':[],"
		   "'waker_pid':4294967295,'waker_tid':4294967295,"
		   "'waker_host_tid':4294967295,'waker_comm':'" ROW_16_REPLACED "',"
		   "'waker_thread_name':'','waker_stack':[" UNKNOWN_16 "],'cpu':4294967295,"
		   "'lock_address':18446744073709551615}");
}

static void every_cause(void **state)
{
	static const char *const names[OFF_CPU_CAUSE_MAX + 1] = {
		"other",      "preempt", "gil",	 "lock", "net",	  "disk",
		"page_fault", "sleep",	 "poll", "pipe", "child", "",
	};
	struct off_cpu_event event = ordinary;

	(void)state;
	for (uint8_t i = 0; i <= OFF_CPU_CAUSE_MAX; i++) {
		/* for these causes only the Python stack shows idleness */
		bool by_stack = i == OFF_CPU_CAUSE_lock || i == OFF_CPU_CAUSE_pipe;

		event.off.cause = i;
		row_feed("off_cpu", &event, sizeof(event));
		row_expectf("{'table':'ebpf_off_cpu'," ROW_COMMON
			    ",'runq_ns':5000000001,'state':'S','cause':'%s','idle':%d,"
			    "'syscall':'futex','kernel_stack':['[kernel]','[kernel]'],"
			    "'user_stack':[],'py_stack':[]," WAKER ",'cpu':100001,"
			    "'lock_address':139638264185968}",
			    names[i], by_stack ? 0 : 1);
	}
}

/* ---- this process as a Python ---- */

#define OWN_COMMON                                                                                 \
	"'host':'test','container_id':'$CONTAINER','pod_uid':'$POD','pid':70001,'tid':70002,"      \
	"'host_pid':$PID,'host_tid':4200002,'comm':'worker','thread_name':'pool-1'," ROW_TIMES

/* The leaf is an address inside a function, other frames are return addresses. */
static void name_addresses(struct off_cpu *off)
{
	off->user[0] = (uintptr_t)row_test_begin;
	off->user[1] = (uintptr_t)row_expect + 2;
	off->waker_user[0] = (uintptr_t)row_clock_advance;
}

static void names_and_stacks(void **state)
{
	struct off_cpu_event event = ordinary;
	struct python_frame frames[2];

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "pool-1");
	interpreter_add_thread(event.off.waker.ident, event.off.waker.tid, "giver");
	frames[0] = interpreter_call("get", "/usr/lib/python3.9/queue.py", 170);
	frames[1] = interpreter_call("_worker", "/usr/lib/python3.9/concurrent/futures/thread.py",
				     80);
	event.header.host_pid = event.off.waker.host_pid = (uint32_t)getpid();
	event.off.cause = OFF_CPU_CAUSE_lock;
	event.off.idle = 0;
	event.py_stack.n = 2;
	name_addresses(&event.off);
	row_feed_more("off_cpu", &event, sizeof(event), frames, sizeof(frames));
	row_expect("{'table':'ebpf_off_cpu'," OWN_COMMON
		   ",'runq_ns':5000000001,'state':'S','cause':'lock','idle':1,'syscall':'futex',"
		   "'kernel_stack':['[kernel]','[kernel]'],"
		   "'user_stack':['row_test_begin','row_expect'],"
		   "'py_stack':['get (/usr/lib/python3.9/queue.py:172)',"
		   "'_worker (/usr/lib/python3.9/concurrent/futures/thread.py:82)'],"
		   "'waker_pid':70003,'waker_tid':70004,'waker_host_tid':4200004,"
		   "'waker_comm':'waker','waker_thread_name':'giver',"
		   "'waker_stack':['row_clock_advance'],'cpu':100001,"
		   "'lock_address':139638264185968}");
	assert_int_equal(row_counts("ebpf_off_cpu").unread, 0);
	assert_int_equal(row_counts("ebpf_off_cpu").unnamed, 0);
}

/* ---- the profile ---- */

#define SUM                                                                                        \
	",'count':5000000001,'off_ns':5000000002,'runq_ns':5000000003,'min_ns':5000000004,"        \
	"'max_ns':5000000005,"

static const struct off_cpu_profile ordinary_sum = {
	.first = { .header = ROW_HEADER, .kernel = { 1, 2 }, .off = OFF_CPU },
	.sum = { .count = 5000000001,
		 .off_ns = 5000000002,
		 .runq_ns = 5000000003,
		 .min_ns = 5000000004,
		 .max_ns = 5000000005 },
};

static void add_sum(const struct off_cpu_profile_key *key, const struct off_cpu_profile *sum)
{
	static const struct sched_sums of = { .start_ns = ROW_START_NS, .end_ns = ROW_END_NS };
	struct tracker_output output = row_output("off_cpu");

	off_cpu_add_sum(&output, &of, key, sum);
}

static void sums(void **state)
{
	static const struct off_cpu_profile_key key = { .host_tid = 4200002 };
	struct off_cpu_profile sum = ordinary_sum;

	(void)state;
	sum.first.header.start_ns = sum.first.header.end_ns =
		0; /* times of the interval are used */
	add_sum(&key, &sum);
	row_expect("{'table':'ebpf_off_cpu_profile'," ROW_COMMON SUM WHY WAKER "}");
	assert_int_equal(row_counts("ebpf_off_cpu_profile").rows, 1);
	assert_int_equal(row_counts("ebpf_off_cpu").rows, 0);
}

/* A sum fully attributed to stacks makes no row. */
static void an_empty_sum(void **state)
{
	struct off_cpu_profile sum = ordinary_sum;

	(void)state;
	sum.sum.count = sum.sum.off_ns = 0;
	add_sum(NULL, &sum);
	row_expect_none();
}

/* Overflow rows have no process. */
static void the_rest(void **state)
{
	const struct off_cpu_profile rest = {
		.first = { .header.cgroup_id = 1, .off = { .cause = 7, .syscall = -1 } },
		.sum = { .count = 1, .off_ns = 2, .runq_ns = 3, .min_ns = 4, .max_ns = 5 },
	};

	(void)state;
	add_sum(NULL, &rest);
	row_expect("{'table':'ebpf_off_cpu_profile','host':'test','container_id':'','pod_uid':'',"
		   "'pid':0,'tid':0,'host_pid':0,'host_tid':0,'comm':'','thread_name':'',"
		   "'start_time':1700005000123456,'end_time':1700005000131111,"
		   "'duration_ns':7654321,'trace_id':'','span_id':'','weight':1," ROW_NO_NAMES
		   ",'count':1,'off_ns':2,'runq_ns':3,'min_ns':4,'max_ns':5,'state':'',"
		   "'cause':'sleep','idle':0,'syscall':'','kernel_stack':[],'user_stack':[],"
		   "'py_stack':[],'waker_pid':0,'waker_tid':0,'waker_host_tid':0,"
		   "'waker_comm':'','waker_thread_name':'','waker_stack':[]}");
}

static void a_sum_with_names(void **state)
{
	struct off_cpu_profile sum = ordinary_sum;

	(void)state;
	interpreter_begin();
	interpreter_add_thread(sum.first.header.ident, sum.first.header.tid, "pool-1");
	sum.first.header.host_pid = (uint32_t)getpid();
	name_addresses(&sum.first.off);
	sum.first.off.waker_user[0] = 0;
	add_sum(NULL, &sum);
	row_expect("{'table':'ebpf_off_cpu_profile'," OWN_COMMON SUM
		   "'state':'S','cause':'net','idle':1,'syscall':'futex','kernel_stack':"
		   "['[kernel]','[kernel]'],'user_stack':['row_test_begin','row_expect'],"
		   "'py_stack':[]," WAKER "}");
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event), ROW_TEST(nothing_known),    ROW_TEST(all_bits_set),
	ROW_TEST(every_cause),	  ROW_TEST(names_and_stacks), ROW_TEST(sums),
	ROW_TEST(an_empty_sum),	  ROW_TEST(the_rest),	      ROW_TEST(a_sum_with_names),
};
ROW_GROUP("off_cpu", tests)
