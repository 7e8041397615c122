// SPDX-License-Identifier: Apache-2.0
/* handoff: from a struct handoff_event to a row of ebpf_handoff. */
#include "row_test.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/handoff.h"
#include "interpreter.h"
#include "workers/readers.h"

static const struct handoff_event ordinary = {
	.header = ROW_HEADER,
	.client_wait_ns = 5000000001,
	.handoff_ns = 5000000002,
	.main_ident = 0x7f0011223355,
	.fd = 100003,
	.main_tid = 70003,
	.main_host_tid = 4200003,
	.local_port = 8000,
	.peer_port = 40001,
	.peer_ip = { 0x20, 1, 0xd, 0xb8, [15] = 0x17 },
	.main_comm = "main",
	.queue = HANDOFF_QUEUE_KEEPALIVE,
	.pickup = HANDOFF_PICKUP_read,
	.family = AF_INET6,
};

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("handoff", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_handoff'," ROW_COMMON
		   ",'queue':'keepalive','pickup':'read','client_wait_ns':5000000001,"
		   "'handoff_ns':5000000002,'fd':100003,'main_tid':70003,'main_thread_name':'',"
		   "'local_port':8000,'peer_ip':'2001:db8::17','peer_port':40001,'py_stack':[]}");
	assert_int_equal(row_counts("ebpf_handoff").rows, 1);
	assert_int_equal(row_counts("ebpf_handoff").unnamed, 0);
}

/* A frame count without frames is not a stack. */
static void all_bits_set(void **state)
{
	struct handoff_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("handoff", &event, sizeof(event));
	row_expect("{'table':'ebpf_handoff'," ROW_MAX_COMMON
		   ",'queue':'','pickup':'','client_wait_ns':18446744073709551615,"
		   "'handoff_ns':18446744073709551615,'fd':4294967295,'main_tid':4294967295,"
		   "'main_thread_name':'','local_port':65535,"
		   "'peer_ip':'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff','peer_port':65535,"
		   "'py_stack':[]}");
}

static void feed_peer(const uint8_t ip[16], uint16_t port, uint8_t family)
{
	struct handoff_event event = ordinary;

	memcpy(event.peer_ip, ip, sizeof(event.peer_ip));
	event.peer_port = port;
	event.family = family;
	event.local_port = family == AF_UNIX ? 0 : 8000;
	event.queue = HANDOFF_QUEUE_ACCEPT;
	row_feed("handoff", &event, sizeof(event));
}

static void expect_peer(const char *ip, unsigned int port, unsigned int local_port)
{
	row_expectf("{'table':'ebpf_handoff'," ROW_COMMON
		    ",'queue':'accept','pickup':'read','client_wait_ns':5000000001,"
		    "'handoff_ns':5000000002,'fd':100003,'main_tid':70003,'main_thread_name':'',"
		    "'local_port':%u,'peer_ip':'%s','peer_port':%u,'py_stack':[]}",
		    local_port, ip, port);
}

static void peers(void **state)
{
	static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 203, 0, 113, 255 },
			     compatible[16] = { [12] = 203, 0, 113, 255 },
			     link_local[16] = { 0xfe, 0x80, [14] = 1, 2 }, none[16] = { 0 };

	(void)state;
	feed_peer(mapped, 1, AF_INET);
	feed_peer(compatible, 2, AF_INET6);
	feed_peer(link_local, 65535, AF_INET6);
	feed_peer(none, 0, AF_UNIX);
	expect_peer("::ffff:203.0.113.255", 1, 8000);
	expect_peer("::203.0.113.255", 2, 8000);
	expect_peer("fe80::102", 65535, 8000);
	expect_peer("::", 0, 0);
}

static void every_pickup(void **state)
{
	static const char *const names[HANDOFF_PICKUP_MAX + 1] = {
		"recvfrom",    "recvmsg",     "recvmmsg", "read",   "readv",	  "poll",
		"ppoll",       "epoll_ctl",   "ioctl",	  "fcntl",  "setsockopt", "getsockopt",
		"getsockname", "getpeername", "write",	  "writev", "sendto",	  "sendmsg",
		"sendmmsg",    "sendfile",    "shutdown", "",
	};
	struct handoff_event event = ordinary;

	(void)state;
	for (uint8_t i = 0; i <= HANDOFF_PICKUP_MAX; i++) {
		event.pickup = i;
		row_feed("handoff", &event, sizeof(event));
		row_expectf("{'table':'ebpf_handoff'," ROW_COMMON
			    ",'queue':'keepalive','pickup':'%s','client_wait_ns':5000000001,"
			    "'handoff_ns':5000000002,'fd':100003,'main_tid':70003,"
			    "'main_thread_name':'','local_port':8000,'peer_ip':'2001:db8::17',"
			    "'peer_port':40001,'py_stack':[]}",
			    names[i]);
	}
}

/* ---- this process as a Python ---- */

static struct handoff_event of_this_process(uint16_t n_frames)
{
	struct handoff_event event = ordinary;

	event.header.host_pid = (uint32_t)getpid();
	event.py_stack.n = n_frames;
	return event;
}

#define OWN_COMMON                                                                                 \
	"'host':'test','container_id':'$CONTAINER','pod_uid':'$POD','pid':70001,'tid':70002,"      \
	"'host_pid':$PID,'host_tid':4200002,'comm':'worker',"
#define OWN_EVENT                                                                                  \
	",'queue':'keepalive','pickup':'read','client_wait_ns':5000000001,"                        \
	"'handoff_ns':5000000002,'fd':100003,'main_tid':70003,"
#define PEER "'local_port':8000,'peer_ip':'2001:db8::17','peer_port':40001,"

/* The line of the instruction; internal frames of the interpreter are omitted. */
static void names_and_stack(void **state)
{
	struct handoff_event event = of_this_process(3);
	struct python_frame frames[3];

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "web-1");
	interpreter_add_thread(event.main_ident, event.main_tid, "say \"\\hi\x1b[31m\n\x7f");
	frames[0] = interpreter_call("handle", "shop/views.py", 212);
	frames[1] = interpreter_call("shim", "none.py", 1);
	frames[1].code |= INTERPRETER_OWN_FRAME;
	frames[2] = interpreter_call("run", "/usr/lib/python3.9/threading.py", 890);
	row_feed_more("handoff", &event, sizeof(event), frames, sizeof(frames));
	row_expect("{'table':'ebpf_handoff'," OWN_COMMON
		   "'thread_name':'web-1'," ROW_TIMES OWN_EVENT
		   "'main_thread_name':'say \\\"\\\\hi\\u001b[31m\\u000a\\u007f'," PEER
		   "'py_stack':['handle (shop/views.py:214)',"
		   "'run (/usr/lib/python3.9/threading.py:892)']}");
	assert_int_equal(row_counts("ebpf_handoff").unnamed, 0);
	assert_int_equal(row_counts("ebpf_handoff").unread, 0);
}

/* Thread unknown to threading; freed code; truncated stack. */
static void no_name_and_code_that_is_gone(void **state)
{
	struct handoff_event event = of_this_process(2);
	struct python_frame frames[2];

	(void)state;
	interpreter_begin();
	event.py_stack.cut = 1;
	frames[0] = interpreter_call("dead", "dead.py", 1);
	interpreter_drop_code(&frames[0]);
	frames[1] = interpreter_call("outer", "a.py", 10);
	frames[1].ip = 0;
	row_feed_more("handoff", &event, sizeof(event), frames, sizeof(frames));
	row_expect("{'table':'ebpf_handoff'," OWN_COMMON "'thread_name':''," ROW_TIMES OWN_EVENT
		   "'main_thread_name':''," PEER
		   "'py_stack':['<gone>','outer (a.py:10)','<cut>']}");
	assert_int_equal(row_counts("ebpf_handoff").gone, 1);
	assert_int_equal(row_counts("ebpf_handoff").unnamed, 1);
	assert_int_equal(row_counts("ebpf_handoff").unread, 0);
}

/* A frame too few, a frame too many, half a frame: not a stack of this event. */
static void frames_that_do_not_fit(void **state)
{
	static const size_t sizes[] = { 1, 3 };
	struct handoff_event event = of_this_process(2);
	struct python_frame frames[3];

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "web-1");
	interpreter_add_thread(event.main_ident, event.main_tid, "main");
	for (size_t i = 0; i < 3; i++)
		frames[i] = interpreter_call("handle", "views.py", 1);
	row_feed_more("handoff", &event, sizeof(event), frames, sizeof(frames[0]) * 2 - 8);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		row_feed_more("handoff", &event, sizeof(event), frames,
			      sizes[i] * sizeof(frames[0]));
	for (size_t i = 0; i < ARRAY_SIZE(sizes) + 1; i++)
		row_expect("{'table':'ebpf_handoff'," OWN_COMMON
			   "'thread_name':'web-1'," ROW_TIMES OWN_EVENT
			   "'main_thread_name':'main'," PEER "'py_stack':[]}");
}

/*
 * Reads of the process stall for two seconds: the row is deferred, further rows pass, then the row
 * is sent with placeholders.
 */
static void a_process_that_does_not_answer(void **state)
{
	struct handoff_event event = of_this_process(1);
	struct python_frame frame;

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "web-1");
	frame = interpreter_call("handle", "views.py", 1);
	row_block_reader((uint32_t)getpid());
	row_feed_more("handoff", &event, sizeof(event), &frame, sizeof(frame));
	row_feed("handoff", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_handoff'," ROW_COMMON OWN_EVENT "'main_thread_name':''," PEER
		   "'py_stack':[]}");
	for (int i = 0; i < READERS_PATIENCE; i++) {
		row_tick();
		row_expect_none();
		row_clock_advance(101 * NSEC_PER_MSEC);
	}
	row_tick();
	row_clock_advance(101 * NSEC_PER_MSEC);
	row_tick();
	row_expect("{'table':'ebpf_handoff'," OWN_COMMON "'thread_name':''," ROW_TIMES OWN_EVENT
		   "'main_thread_name':''," PEER "'py_stack':['<unread>']}");
	assert_int_equal(row_counts("ebpf_handoff").unread, 1);
	assert_int_equal(row_counts("ebpf_handoff").unnamed, 1);
	row_unblock_reader();
}

/* The same with an answer in time. */
static void a_process_that_answers_late(void **state)
{
	struct handoff_event event = of_this_process(1);
	struct python_frame frame;

	(void)state;
	interpreter_begin();
	interpreter_add_thread(event.header.ident, event.header.tid, "web-1");
	interpreter_add_thread(event.main_ident, event.main_tid, "main");
	frame = interpreter_call("handle", "views.py", 1);
	row_block_reader((uint32_t)getpid());
	row_feed_more("handoff", &event, sizeof(event), &frame, sizeof(frame));
	row_clock_advance(NSEC_PER_SEC);
	row_tick();
	row_expect_none();
	row_unblock_reader();
	row_expect("{'table':'ebpf_handoff'," OWN_COMMON
		   "'thread_name':'web-1'," ROW_TIMES OWN_EVENT "'main_thread_name':'main'," PEER
		   "'py_stack':['handle (views.py:3)']}");
	assert_int_equal(row_counts("ebpf_handoff").unread, 0);
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),
	ROW_TEST(all_bits_set),
	ROW_TEST(peers),
	ROW_TEST(every_pickup),
	ROW_TEST(names_and_stack),
	ROW_TEST(no_name_and_code_that_is_gone),
	ROW_TEST(frames_that_do_not_fit),
	ROW_TEST(a_process_that_does_not_answer),
	ROW_TEST(a_process_that_answers_late),
};
ROW_GROUP("handoff", tests)
