// SPDX-License-Identifier: Apache-2.0
/*
 * Properties of all trackers' events: wrong sizes, weights, times, hostile thread names, deferred
 * rows.
 */
#include "row_test.h"

#include <string.h>
#include <unistd.h>

#include "events/tcp_connect.h"
#include "interpreter.h"
#include "rows/enrich.h"
#include "tcp_rows.h"
#include "workers/readers.h"

static void feed(const struct event_header *header)
{
	struct tcp_connect_event event = { .header = *header, .connection = TCP_CONNECTION };

	row_feed("tcp_connect", &event, sizeof(event));
}

#define BEGIN "{'table':'ebpf_tcp_connect','host':'test',"
#define IDS                                                                                        \
	"'container_id':'','pod_uid':'','pid':70001,'tid':70002,'host_pid':4200001,"               \
	"'host_tid':4200002,"
#define END "," TCP_COLUMNS_OF_IT ",'outcome':'failed','errno':0}"

/* ---- sizes ---- */

/* Records too small or too large are counted and make no row. */
static void records_of_a_wrong_size(void **state)
{
	static _Alignas(8) char record[64 << 10];

	(void)state;
	for (size_t i = 0; all_trackers[i]; i++) {
		const struct tracker *t = all_trackers[i];
		const size_t sizes[] = { 0,
					 1,
					 sizeof(struct event_header),
					 t->event_size - 1,
					 t->event_size + t->extra_max + 1,
					 sizeof(record) };

		for (size_t j = 0; j < ARRAY_SIZE(sizes); j++) {
			row_feed(t->name, record, sizes[j]);
			assert_int_equal(row_bad_events(t->name), j + 1);
		}
		row_expect_none();
		assert_int_equal(row_counts(t->table.name).rows, 0);
		row_feed(t->name, record, t->event_size);
		row_feed(t->name, record, t->event_size + t->extra_max);
		assert_int_equal(row_bad_events(t->name), ARRAY_SIZE(sizes));
		assert_int_equal(row_counts(t->table.name).rows, 2);
		row_forget();
	}
}

/* ---- weights ---- */

/* `weight`: reciprocal of the sampling probability defined in include/events/event.h. */
static void expect_weight(uint64_t duration_ns, uint8_t level, uint8_t shift, const char *weight)
{
	struct event_header header = ROW_HEADER;

	header.end_ns = header.start_ns + duration_ns;
	header.sampling_level = level;
	header.skip_shift = shift;
	feed(&header);
	row_expectf(BEGIN IDS "'comm':'worker','thread_name':'','start_time':1700005000123456,"
			      "'end_time':%llu,'duration_ns':%llu,'trace_id':'','span_id':'',"
			      "'weight':%s," ROW_NAMES END,
		    1700005000123456ULL + (duration_ns + 789) / 1000,
		    (unsigned long long)duration_ns, weight);
}

static void weights(void **state)
{
	(void)state;
	expect_weight(500000, 0, 0, "1");
	/* level 1: all from 2 ms on, half of those up to 1 ms */
	expect_weight(2000000, 1, 0, "1");
	expect_weight(1500000, 1, 0, "1.33333337");
	expect_weight(1000000, 1, 0, "2");
	expect_weight(0, 1, 0, "2");
	/* additionally one in eight is sampled */
	expect_weight(0, 1, 3, "16");
	/* level 12, the last: probability grows up to 4.096 s */
	expect_weight(0, 12, 0, "4096");
	expect_weight(1024000000, 12, 0, "4");
	expect_weight(4096000000, 12, 0, "1");
	expect_weight(0, 13, 0, "1"); /* invalid level */
	expect_weight(0, 12, 31, "8.79609302e+12");
}

/* ---- times ---- */

static void no_duration(void **state)
{
	struct event_header header = ROW_HEADER;

	(void)state;
	header.end_ns = header.start_ns;
	feed(&header);
	row_expect(BEGIN IDS "'comm':'worker','thread_name':'','start_time':1700005000123456,"
			     "'end_time':1700005000123456,'duration_ns':0,'trace_id':'',"
			     "'span_id':'','weight':1," ROW_NAMES END);
}

/* The wall clock steps back an hour during the event: each time uses the clock of its moment. */
static void a_step_of_the_clock(void **state)
{
	struct event_header header = ROW_HEADER;

	(void)state;
	row_clock_advance(100 * NSEC_PER_SEC);
	header.start_ns = row_clock() - NSEC_PER_SEC;
	row_wall_clock_step(-3600 * (int64_t)NSEC_PER_SEC);
	row_clock_advance(NSEC_PER_SEC);
	header.end_ns = row_clock();
	feed(&header);
	row_expectf(BEGIN IDS "'comm':'worker','thread_name':'','start_time':%llu,"
			      "'end_time':%llu,'duration_ns':2000000000,'trace_id':'',"
			      "'span_id':'','weight':1," ROW_NAMES END,
		    1700000000000000ULL + header.start_ns / 1000,
		    1700000000000000ULL - 3600000000ULL + header.end_ns / 1000);
	row_clock_advance(NSEC_PER_SEC);
	row_wall_clock_step(3600 * (int64_t)NSEC_PER_SEC);
}

/* ---- names ---- */

/* prctl(PR_SET_NAME) accepts any bytes: quotes, escape sequences, incomplete characters. */
static void hostile_names(void **state)
{
	static const struct {
		char comm[EVENT_COMM_LEN + 1];
		const char *json;
	} names[] = {
		{ "", "" },
		{ "a\"b\\c/d", "a\\\"b\\\\c/d" },
		{ "\x1b[2J\r\n\t\x01\x7f", "\\u001b[2J\\u000d\\u000a\\u0009\\u0001\\u007f" },
		{ "caf\xc3\xa9 \xf0\x9f\x90\x8d", "caf\xc3\xa9 \xf0\x9f\x90\x8d" },
		/* incomplete character, stray bytes, overlong form, surrogate */
		{ "0123456789abcde\xc3", "0123456789abcde" ROW_REPLACED },
		{ "\x80\xfe\xc0\x80\xed\xa0\x80",
		  ROW_4_REPLACED ROW_REPLACED ROW_REPLACED ROW_REPLACED },
		/* U+0085 and U+009B are terminal controls, too */
		{ "\xc2\x85\xc2\x9b", "\\u0085\\u009b" },
	};
	struct event_header header = ROW_HEADER;

	(void)state;
	/* an unknown process is called as its first event's thread */
	feed(&header);
	row_expect(BEGIN IDS "'comm':'worker','thread_name':''," ROW_TIMES END);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		memcpy(header.comm, names[i].comm, sizeof(header.comm));
		feed(&header);
		row_expectf(BEGIN IDS "'comm':'%s','thread_name':''," ROW_TIMES END, names[i].json);
	}
}

static void a_hostile_host(void **state)
{
	const struct event_header header = ROW_HEADER;

	(void)state;
	enrich_init("ho\"st\xff\n", "boot-1");
	feed(&header);
	enrich_init("test", "boot-1");
	row_expect("{'table':'ebpf_tcp_connect','host':'ho\\\"st" ROW_REPLACED "\\u000a'," IDS
		   "'comm':'worker','thread_name':''," ROW_TIMES END);
}

/* An event after the process's end: cached data are used, no new reads. */
static void a_process_that_is_gone(void **state)
{
	struct event_header header = ROW_HEADER;

	(void)state;
	interpreter_begin();
	interpreter_add_thread(header.ident, header.tid, "web-1");
	header.host_pid = (uint32_t)getpid();
	for (int i = 0; i < 2; i++) {
		feed(&header);
		row_expect(BEGIN "'container_id':'$CONTAINER','pod_uid':'$POD','pid':70001,"
				 "'tid':70002,'host_pid':$PID,'host_tid':4200002,"
				 "'comm':'worker','thread_name':'web-1'," ROW_TIMES END);
		row_process_gone((uint32_t)getpid());
	}
	header.tid = header.host_tid = 70009; /* a thread without earlier row */
	feed(&header);
	row_expect(
		BEGIN
		"'container_id':'$CONTAINER','pod_uid':'$POD','pid':70001,'tid':70009,"
		"'host_pid':$PID,'host_tid':70009,'comm':'worker','thread_name':''," ROW_TIMES END);
}

/* ---- deferred rows ---- */

/* The memory of deferred rows is bounded: the oldest are sent without names. */
static void more_wait_than_there_is_room_for(void **state)
{
	enum { ROOM = 1 << 20, ROWS = 2 * ROOM / sizeof(struct tcp_connect_event) };
	struct event_header header = ROW_HEADER;
	uint64_t unnamed;

	(void)state;
	interpreter_begin();
	interpreter_add_thread(header.ident, header.tid, "web-1");
	header.host_pid = (uint32_t)getpid();
	row_block_reader(header.host_pid);
	for (size_t i = 0; i < ROWS; i++)
		feed(&header);
	unnamed = row_counts("ebpf_tcp_connect").unnamed;
	assert_in_range(unnamed, ROWS / 2, ROWS - 1);
	assert_int_equal(row_counts("ebpf_tcp_connect").rows, unnamed);
	row_unblock_reader();
	for (size_t i = 0; i < ROWS; i++)
		row_expectf(BEGIN "'container_id':'$CONTAINER','pod_uid':'$POD','pid':70001,"
				  "'tid':70002,'host_pid':$PID,'host_tid':4200002,"
				  "'comm':'worker','thread_name':'%s'," ROW_TIMES END,
			    i < unnamed ? "" : "web-1");
	assert_int_equal(row_counts("ebpf_tcp_connect").unnamed, unnamed);
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(records_of_a_wrong_size),
	ROW_TEST(weights),
	ROW_TEST(no_duration),
	ROW_TEST(a_step_of_the_clock),
	ROW_TEST(hostile_names),
	ROW_TEST(a_hostile_host),
	ROW_TEST(a_process_that_is_gone),
	ROW_TEST(more_wait_than_there_is_room_for),
};
ROW_GROUP("common", tests)
