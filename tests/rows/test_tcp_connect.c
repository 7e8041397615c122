// SPDX-License-Identifier: Apache-2.0
/* tcp_connect: from a struct tcp_connect_event to a row of one of two tables. */
#include "row_test.h"

#include <errno.h>
#include <string.h>

#include "events/tcp_connect.h"
#include "tcp_rows.h"

static const struct tcp_connect_event ordinary = {
	.header = ROW_HEADER,
	.connection = TCP_CONNECTION,
	.bytes_sent = 5000000001,
	.bytes_received = 5000000002,
	.kind = TCP_CONNECT_OUTCOME,
	.outcome = TCP_CONNECT_success,
};

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("tcp_connect", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_tcp_connect'," ROW_COMMON
		   ",'family':'ipv4','local_ip':'::ffff:192.0.2.1','local_port':40000,"
		   "'remote_ip':'::ffff:198.51.100.200','remote_port':5432,'netns':4026500001,"
		   "'srtt_us':100101,'snd_cwnd':100102,'total_retrans':100103,"
		   "'tcp_state':'ESTABLISHED','outcome':'success','errno':0}");
	assert_int_equal(row_counts("ebpf_tcp_connect").rows, 1);
	assert_int_equal(row_counts("ebpf_tcp_connect_closed").rows, 0);
}

/* An invalid kind of event: first table. */
static void all_bits_set(void **state)
{
	struct tcp_connect_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("tcp_connect", &event, sizeof(event));
	row_expect("{'table':'ebpf_tcp_connect'," ROW_MAX_COMMON "," TCP_MAX
		   ",'outcome':'','errno':65535}");
	event.kind = TCP_CONNECT_CLOSED;
	row_feed("tcp_connect", &event, sizeof(event));
	row_expect("{'table':'ebpf_tcp_connect_closed'," ROW_MAX_COMMON "," TCP_MAX
		   ",'closed_by':'','bytes_sent':18446744073709551615,"
		   "'bytes_received':18446744073709551615}");
}

/* BPF reports the failure and errno; the outcome is derived here. */
static void every_failure(void **state)
{
	static const struct {
		uint16_t error;
		const char *outcome;
	} all[] = {
		{ ECONNREFUSED, "refused" },
		{ ETIMEDOUT, "timeout" },
		{ ENETUNREACH, "unreachable" },
		{ EHOSTUNREACH, "unreachable" },
		{ ENETDOWN, "unreachable" },
		{ EHOSTDOWN, "unreachable" },
		{ ECONNRESET, "reset" },
		{ EACCES, "denied" },
		{ EPERM, "denied" },
		{ EADDRNOTAVAIL, "no_port" },
		{ EADDRINUSE, "no_port" },
		{ EINVAL, "failed" },
		{ 0, "failed" },
	};
	struct tcp_connect_event event = ordinary;

	(void)state;
	event.outcome = TCP_CONNECT_failed;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		event.error = all[i].error;
		row_feed("tcp_connect", &event, sizeof(event));
		row_expectf("{'table':'ebpf_tcp_connect'," ROW_COMMON "," TCP_COLUMNS_OF_IT
			    ",'outcome':'%s','errno':%u}",
			    all[i].outcome, all[i].error);
	}
	event.error = ECONNREFUSED;
	event.outcome = TCP_CONNECT_aborted; /* set by BPF */
	row_feed("tcp_connect", &event, sizeof(event));
	row_expectf("{'table':'ebpf_tcp_connect'," ROW_COMMON "," TCP_COLUMNS_OF_IT
		    ",'outcome':'aborted','errno':%u}",
		    ECONNREFUSED);
}

static void every_end(void **state)
{
	static const char *const names[] = { "", "local", "remote", "reset", "timeout", "" };
	struct tcp_connect_event event = ordinary;

	(void)state;
	event.kind = TCP_CONNECT_CLOSED;
	for (uint8_t i = 0; i < ARRAY_SIZE(names); i++) {
		event.closed_by = i;
		row_feed("tcp_connect", &event, sizeof(event));
		row_expectf("{'table':'ebpf_tcp_connect_closed'," ROW_COMMON "," TCP_COLUMNS_OF_IT
			    ",'closed_by':'%s','bytes_sent':5000000001,"
			    "'bytes_received':5000000002}",
			    names[i]);
	}
	assert_int_equal(row_counts("ebpf_tcp_connect").rows, 0);
}

static void addresses(void **state)
{
	struct tcp_connect_event event = ordinary;

	(void)state;
	event.connection.family = TCP_FAMILY_IPV6;
	memset(event.connection.local_ip, 0, 16);
	memset(event.connection.remote_ip, 0, 16);
	event.connection.local_ip[15] = 1;
	memcpy(event.connection.remote_ip, "\x20\x01\x0d\xb8\0\0\0\0\xab\xcd", 10);
	event.connection.state = TCP_STATE_NONE;
	row_feed("tcp_connect", &event, sizeof(event));
	row_expect("{'table':'ebpf_tcp_connect'," ROW_COMMON
		   ",'family':'ipv6','local_ip':'::1','local_port':40000,"
		   "'remote_ip':'2001:db8:0:0:abcd::','remote_port':5432," TCP_NUMBERS
		   "'tcp_state':'','outcome':'success','errno':0}");
	memset(&event.connection, 0, sizeof(event.connection));
	row_feed("tcp_connect", &event, sizeof(event));
	row_expect("{'table':'ebpf_tcp_connect'," ROW_COMMON
		   ",'family':'','local_ip':'::','local_port':0,'remote_ip':'::',"
		   "'remote_port':0,'netns':0,'srtt_us':0,'snd_cwnd':0,'total_retrans':0,"
		   "'tcp_state':'','outcome':'success','errno':0}");
}

static void every_state(void **state)
{
	static const char *const names[] = {
		"",	     "ESTABLISHED", "SYN_SENT",	    "SYN_RECV",	  "FIN_WAIT1",
		"FIN_WAIT2", "TIME_WAIT",   "CLOSE",	    "CLOSE_WAIT", "LAST_ACK",
		"LISTEN",    "CLOSING",	    "NEW_SYN_RECV", "",
	};
	struct tcp_connect_event event = ordinary;

	(void)state;
	for (uint8_t i = 0; i < ARRAY_SIZE(names); i++) {
		event.connection.state = i;
		row_feed("tcp_connect", &event, sizeof(event));
		row_expectf("{'table':'ebpf_tcp_connect'," ROW_COMMON "," TCP_IPV4 TCP_NUMBERS
			    "'tcp_state':'%s','outcome':'success','errno':0}",
			    names[i]);
	}
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event), ROW_TEST(all_bits_set), ROW_TEST(every_failure),
	ROW_TEST(every_end),	  ROW_TEST(addresses),	  ROW_TEST(every_state),
};
ROW_GROUP("tcp_connect", tests)
