// SPDX-License-Identifier: Apache-2.0
/* tcp_loss: from a struct tcp_loss_event to a row of ebpf_tcp_loss. */
#include "row_test.h"

#include <string.h>

#include "events/tcp_loss.h"
#include "tcp_rows.h"

static const struct tcp_loss_event ordinary = {
	.header = ROW_HEADER,
	.connection = TCP_CONNECTION,
	.stalled_ns = 5000000001,
	.stalls = 100001,
	.segments = 100002,
	.timeouts = 100003,
	.probes = 100004,
	.lost_out = 100005,
	.snd_wnd = 100006,
	.rcv_wnd = 100007,
	.kind = TCP_LOSS_RTO,
	.ended_by = TCP_LOSS_END_PROGRESS,
	.owner = TCP_LOSS_OWNER_USER,
};

#define NUMBERS                                                                                    \
	",'stalled_ns':5000000001,'stalls':100001,'segments':100002,'timeouts':100003,"            \
	"'probes':100004,'lost_out':100005,'snd_wnd':100006,'rcv_wnd':100007}"

static void ordinary_event(void **state)
{
	(void)state;
	row_feed("tcp_loss", &ordinary, sizeof(ordinary));
	row_expect("{'table':'ebpf_tcp_loss'," ROW_COMMON
		   ",'kind':'rto','ended_by':'progress','owner':'user','family':'ipv4',"
		   "'local_ip':'::ffff:192.0.2.1','local_port':40000,"
		   "'remote_ip':'::ffff:198.51.100.200','remote_port':5432,'netns':4026500001,"
		   "'srtt_us':100101,'snd_cwnd':100102,'total_retrans':100103,"
		   "'tcp_state':'ESTABLISHED','stalled_ns':5000000001,'stalls':100001,"
		   "'segments':100002,'timeouts':100003,'probes':100004,'lost_out':100005,"
		   "'snd_wnd':100006,'rcv_wnd':100007}");
}

static void all_bits_set(void **state)
{
	struct tcp_loss_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("tcp_loss", &event, sizeof(event));
	row_expect("{'table':'ebpf_tcp_loss'," ROW_MAX_COMMON
		   ",'kind':'','ended_by':'','owner':''," TCP_MAX
		   ",'stalled_ns':18446744073709551615,'stalls':4294967295,"
		   "'segments':4294967295,'timeouts':4294967295,'probes':4294967295,"
		   "'lost_out':4294967295,'snd_wnd':4294967295,'rcv_wnd':4294967295}");
}

/* A packet without socket: unknown owner, no thread. */
static void nobodys(void **state)
{
	struct tcp_loss_event event = ordinary;

	(void)state;
	memset(&event.header, 0, sizeof(event.header));
	event.header.start_ns = event.header.end_ns = ROW_START_NS;
	event.header.cgroup_id = 1;
	event.owner = TCP_LOSS_OWNER_NONE;
	event.kind = TCP_LOSS_RST_SENT;
	event.ended_by = TCP_LOSS_END_NONE;
	row_feed("tcp_loss", &event, sizeof(event));
	row_expect("{'table':'ebpf_tcp_loss','host':'test','container_id':'','pod_uid':'','pid':0,"
		   "'tid':0,'host_pid':0,'host_tid':0,'comm':'','thread_name':'',"
		   "'start_time':1700005000123456,'end_time':1700005000123456,'duration_ns':0,"
		   "'trace_id':'','span_id':'','weight':1," ROW_NO_NAMES
		   ",'kind':'rst_sent','ended_by':'',"
		   "'owner':''," TCP_COLUMNS_OF_IT NUMBERS);
}

static void every_name(void **state)
{
	static const char *const kinds[] = { "retransmit",
					     "rto",
					     "loss_recovery",
					     "tlp",
					     "syn_retransmit",
					     "synack_retransmit",
					     "zero_window_sent",
					     "zero_window_received",
					     "rst_sent",
					     "rst_received",
					     "" };
	static const char *const ends[] = { "", "progress", "rto", "timeout", "reset", "closed" };
	static const char *const owners[] = { "", "user", "file" };
	struct tcp_loss_event event = ordinary;

	(void)state;
	for (uint8_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		event.kind = event.ended_by = event.owner = i;
		row_feed("tcp_loss", &event, sizeof(event));
		row_expectf("{'table':'ebpf_tcp_loss'," ROW_COMMON
			    ",'kind':'%s','ended_by':'%s','owner':'%s'," TCP_COLUMNS_OF_IT NUMBERS,
			    kinds[i], i < ARRAY_SIZE(ends) ? ends[i] : "",
			    i < ARRAY_SIZE(owners) ? owners[i] : "");
	}
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(ordinary_event),
	ROW_TEST(all_bits_set),
	ROW_TEST(nobodys),
	ROW_TEST(every_name),
};
ROW_GROUP("tcp_loss", tests)
