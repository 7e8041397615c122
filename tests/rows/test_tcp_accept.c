// SPDX-License-Identifier: Apache-2.0
/* tcp_accept: from a struct tcp_accept_event, or reports of listeners, to rows. */
#include "row_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tcp_rows.h"

static const struct tcp_accept_event ordinary = {
	.header = ROW_HEADER,
	.connection = TCP_CONNECTION,
	.listen_ip = { [15] = 1 },
	.queue_len = 100001,
	.queue_max = 100002,
	.handshake_rtt_us = 100003,
	.drops = 100004,
	.kind = TCP_ACCEPT_ACCEPTED,
};

static void expect(const char *kind, unsigned int overflows)
{
	row_expectf("{'table':'ebpf_tcp_accept'," ROW_COMMON "," TCP_COLUMNS_OF_IT
		    ",'kind':'%s','listen_ip':'::1','queue_len':100001,'queue_max':100002,"
		    "'handshake_rtt_us':100003,'drops':100004,'overflows':%u}",
		    kind, overflows);
}

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("tcp_accept", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_tcp_accept'," ROW_COMMON
		   ",'family':'ipv4','local_ip':'::ffff:192.0.2.1','local_port':40000,"
		   "'remote_ip':'::ffff:198.51.100.200','remote_port':5432,'netns':4026500001,"
		   "'srtt_us':100101,'snd_cwnd':100102,'total_retrans':100103,"
		   "'tcp_state':'ESTABLISHED','kind':'accepted','listen_ip':'::1',"
		   "'queue_len':100001,'queue_max':100002,'handshake_rtt_us':100003,"
		   "'drops':100004,'overflows':0}");
}

static void all_bits_set(void **state)
{
	struct tcp_accept_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("tcp_accept", &event, sizeof(event));
	row_expect("{'table':'ebpf_tcp_accept'," ROW_MAX_COMMON "," TCP_MAX
		   ",'kind':'','listen_ip':'" TCP_MAX_IP "','queue_len':4294967295,"
		   "'queue_max':4294967295,'handshake_rtt_us':4294967295,'drops':4294967295,"
		   "'overflows':0}");
}

/* No process is left to read the namespace's counters: all drops count as overflows. */
static void every_kind(void **state)
{
	struct tcp_accept_event event = ordinary;

	(void)state;
	event.kind = TCP_ACCEPT_NEVER_ACCEPTED;
	row_feed("tcp_accept", &event, sizeof(event));
	expect("never_accepted", 0);
	event.kind = TCP_ACCEPT_DROPPED;
	row_feed("tcp_accept", &event, sizeof(event));
	expect("dropped", 100004);
	event.kind = TCP_ACCEPT_KIND_MAX;
	row_feed("tcp_accept", &event, sizeof(event));
	expect("", 0);
}

/* A counter of this process's network namespace, from /proc. */
static uint64_t own_counter(const char *wanted)
{
	FILE *file = fopen("/proc/self/net/netstat", "r");
	char names[8192], values[8192];
	uint64_t found = 0;

	assert_non_null(file);
	while (fgets(names, sizeof(names), file) && fgets(values, sizeof(values), file)) {
		char *name_end, *value_end;
		const char *name = strtok_r(names, " \n", &name_end),
			   *value = strtok_r(values, " \n", &value_end);

		while (name && value) {
			if (!strcmp(name, wanted))
				found = strtoull(value, NULL, 10);
			name = strtok_r(NULL, " \n", &name_end);
			value = strtok_r(NULL, " \n", &value_end);
		}
	}
	fclose(file);
	return found;
}

static unsigned int least(uint64_t a, uint64_t b)
{
	return (unsigned int)(a < b ? a : b);
}

/* A readable namespace: no more than it counted itself is attributed to the listener's drops. */
static void drops_and_overflows(void **state)
{
	struct tcp_accept_event event = ordinary;
	unsigned int drops = least(own_counter("ListenDrops"), 2);
	unsigned int overflows = least(own_counter("ListenOverflows"), drops);
	struct stat netns;

	(void)state;
	assert_int_equal(stat("/proc/self/ns/net", &netns), 0);
	event.kind = TCP_ACCEPT_DROPPED;
	event.connection.netns = (uint32_t)netns.st_ino;
	event.header.host_pid = (uint32_t)getpid();
	event.drops = 2;
	row_feed("tcp_accept", &event, sizeof(event));
	row_expectf("{'table':'ebpf_tcp_accept','host':'test','container_id':'$CONTAINER',"
		    "'pod_uid':'$POD','pid':70001,'tid':70002,'host_pid':$PID,"
		    "'host_tid':4200002,'comm':'worker','thread_name':''," ROW_TIMES "," TCP_IPV4
		    "'netns':%u,'srtt_us':100101,'snd_cwnd':100102,'total_retrans':100103,"
		    "'tcp_state':'ESTABLISHED','kind':'dropped','listen_ip':'::1',"
		    "'queue_len':100001,'queue_max':100002,'handshake_rtt_us':100003,"
		    "'drops':%u,'overflows':%u}",
		    (unsigned int)netns.st_ino, drops, overflows);
}

/* Two listeners report: presence, and drops. */
static void reports(void **state)
{
	struct tcp_accept_event all[] = { ordinary, ordinary };
	struct tracker_output output = row_output("tcp_accept");

	(void)state;
	all[0].kind = TCP_ACCEPT_LISTENING;
	all[1].kind = TCP_ACCEPT_DROPPED;
	tcp_accept_add_reports(&output, all, ARRAY_SIZE(all));
	expect("dropped", 100004);
	assert_int_equal(row_counts("ebpf_tcp_accept").rows, 1);
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),      ROW_TEST(all_bits_set), ROW_TEST(every_kind),
	ROW_TEST(drops_and_overflows), ROW_TEST(reports),
};
ROW_GROUP("tcp_accept", tests)
