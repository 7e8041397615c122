// SPDX-License-Identifier: Apache-2.0
/* request: from a struct request_event to a row of ebpf_request, and the rows of the profile. */
#include "row_test.h"

#include <string.h>

#include "events/request.h"

/* Each part has a distinct value: 1000 + the number in enum request_part. */
static struct request_event ordinary(void)
{
	struct request_event event = {
		.header = ROW_HEADER,
		.request_id = 5000000001,
		.bytes_in = 5000000002,
		.bytes_out = 5000000003,
		.net_peer_ns = 900,
		.body_wait_ns = 800,
		.peer_ip = { 0x20, 1, 0xd, 0xb8, [15] = 0x17 },
		.net_peer_ip = { [10] = 0xff, 0xff, 203, 0, 113, 9 },
		.fd = 100003,
		.netns = 4026531840,
		.connection_request = 3,
		.queue_depth = 4,
		.busy_threads = 5,
		.open_requests = 6,
		.weight = 1,
		.server_port = 8000,
		.peer_port = 40001,
		.net_peer_port = 5432,
		.status = 200,
		.family = REQUEST_FAMILY_ipv6,
		.method = REQUEST_METHOD_POST,
		.model = REQUEST_MODEL_pool,
		.link = REQUEST_LINK_write,
		.end_by = REQUEST_END_chunked,
		.outcome = REQUEST_OUTCOME_answered,
		.has_queue_depth = 1,
		.has_busy_threads = 1,
	};

	for (uint32_t i = 0; i < REQUEST_PART_MAX; i++)
		event.parts[i] = 1000 + i;
	return event;
}

#define TIMES "'start_time':1700005000123456,'end_time':1700005000131111,'duration_ns':7654321,"
#define WHO                                                                                        \
	"'host':'test','container_id':'','pod_uid':'','pid':70001,'tid':70002,"                    \
	"'host_pid':4200001,'host_tid':4200002,'comm':'worker','thread_name':''," TIMES
#define SOCKET                                                                                     \
	"'request_id':5000000001,'family':'ipv6','server_port':8000,'peer_ip':'2001:db8::17',"     \
	"'peer_port':40001,'fd':100003,'netns':4026531840,"
#define FATE                                                                                       \
	"'model':'pool','link':'write','end_by':'chunked','outcome':'answered',"                   \
	"'connection_request':3,'queue_depth':4,'busy_threads':5,'open_requests':6,"
#define OWN_PARTS_OF(other, body)                                                                  \
	"'lock_ns':1005,'net_ns':1006,'disk_ns':1007,'fault_ns':1008,'sleep_ns':1009,"             \
	"'pipe_ns':1010,'child_ns':1011,'other_ns':" #other                                        \
	",'await_ns':1013,'loop_busy_ns':1017,"                                                    \
	"'client_slow_ns':1014,'net_peer_ip':'::ffff:203.0.113.9','net_peer_port':5432,"           \
	"'net_peer_path':'','net_peer_ns':900,'body_wait_ns':" #body ","

#define OWN_PARTS OWN_PARTS_OF(1012, 800)

#define ALL_PARTS                                                                                  \
	"'accept_queue_ns':1020,'client_wait_ns':1015,'queue_ns':1019,'pool_wait_ns':1018,"        \
	"'cpu_ns':1016,'runq_ns':1000,'throttled_ns':1001,'gil_ns':1002,'gc_own_ns':1003,"         \
	"'gc_sibling_ns':1004," OWN_PARTS

static void with_a_head(void **state)
{
	static const char head[] =
		"PUT /shop/%7Ecart?user=7 HTTP/1.1\r\nHost: a\r\n"
		"traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\r\n\r\n";
	struct request_event event = ordinary();

	(void)state;
	event.head_n = sizeof(head) - 1;
	event.weight = 7;
	row_feed_more("request", &event, sizeof(event), head, sizeof(head) - 1);
	row_expect("{'table':'ebpf_request'," WHO "'trace_id':'0123456789abcdef0123456789abcdef',"
		   "'span_id':'','weight':7," ROW_NAMES "," SOCKET
		   "'method':'PUT','path':'/shop/%7Ecart','status':200,'bytes_in':5000000002,"
		   "'bytes_out':5000000003,'parent_span_id':'0123456789abcdef'," FATE ALL_PARTS
		   "'not_measured':[]}");
}

/*
 * Without a head, a request has the method seen by the kernel; unmeasured values are NULL, and the
 * parts add up all the same: to the sum of the ordinary row.
 */
static void not_measured(void **state)
{
	struct request_event event = ordinary();

	(void)state;
	event.not_measured = (1 << REQUEST_LACKS) - 1;
	event.status = 0;
	event.body_wait_ns = 0;
	event.has_queue_depth = event.has_busy_threads = 0;
	row_feed("request", &event, sizeof(event));
	row_expect(
		"{'table':'ebpf_request'," WHO "'trace_id':'','span_id':'','weight':1," ROW_NAMES
		"," SOCKET "'method':'POST','path':'','status':null,'bytes_in':5000000002,"
		"'bytes_out':5000000003,'parent_span_id':'','model':'pool','link':'write',"
		"'end_by':'chunked','outcome':'answered','connection_request':3,"
		"'queue_depth':null,'busy_threads':null,'open_requests':6,"
		"'accept_queue_ns':null,'client_wait_ns':1015,'queue_ns':null,"
		"'pool_wait_ns':1018,'cpu_ns':1016,'runq_ns':1000,'throttled_ns':1001,"
		"'gil_ns':null,'gc_own_ns':null,'gc_sibling_ns':null," OWN_PARTS_OF(
			6060,
			null) "'not_measured':['gil','gc','arrival','accept','work_elsewhere','head_split',"
			      "'pipelined','unsent','nagle']}");
}

/* Wrong sizes: no byte beyond the record is read. */
static void head_beyond_the_record(void **state)
{
	struct request_event event = ordinary();

	(void)state;
	event.head_n = REQUEST_HEAD_BYTES;
	row_feed_more("request", &event, sizeof(event), "GET / HTTP/1.1\r\n", 16);
	event.head_n = 16;
	event.tail_n = 17;
	row_feed_more("request", &event, sizeof(event), "GET / HTTP/1.1\r\n", 16);
	for (int i = 0; i < 2; i++)
		row_expect("{'table':'ebpf_request'," WHO
			   "'trace_id':'','span_id':'','weight':1," ROW_NAMES "," SOCKET
			   "'method':'POST','path':'','status':200,'bytes_in':5000000002,"
			   "'bytes_out':5000000003,'parent_span_id':''," FATE ALL_PARTS
			   "'not_measured':[]}");
}

#define MAX_U64 "18446744073709551615"
static void all_bits_set(void **state)
{
	struct request_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("request", &event, sizeof(event));
	row_expect(
		"{'table':'ebpf_request','host':'test','container_id':'','pod_uid':'',"
		"'pid':4294967295,'tid':4294967295,'host_pid':4294967295,'host_tid':4294967295,"
		"'comm':'" ROW_16_REPLACED "','thread_name':'','start_time':1700000000000000,"
		"'end_time':1699999999999999,'duration_ns':" MAX_U64 ",'trace_id':'','span_id':'',"
		"'weight':9.22337204e+18," ROW_MAX_NAMES ",'request_id':" MAX_U64
		",'family':'','server_port':65535,"
		"'peer_ip':'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff','peer_port':65535,"
		"'fd':4294967295,'netns':4294967295,'method':'','path':'','status':65535,"
		"'bytes_in':" MAX_U64 ",'bytes_out':" MAX_U64 ",'parent_span_id':'','model':'',"
		"'link':'','end_by':'','outcome':'','connection_request':4294967295,"
		"'queue_depth':4294967295,'busy_threads':4294967295,'open_requests':4294967295,"
		"'accept_queue_ns':null,'client_wait_ns':" MAX_U64 ",'queue_ns':null,"
		"'pool_wait_ns':" MAX_U64 ",'cpu_ns':" MAX_U64 ",'runq_ns':" MAX_U64
		",'throttled_ns':" MAX_U64 ",'gil_ns':null,'gc_own_ns':null,'gc_sibling_ns':null,"
		"'lock_ns':" MAX_U64 ",'net_ns':" MAX_U64 ",'disk_ns':" MAX_U64
		",'fault_ns':" MAX_U64 ",'sleep_ns':" MAX_U64 ",'pipe_ns':" MAX_U64
		",'child_ns':" MAX_U64 ",'other_ns':18446744073709551610,'await_ns':" MAX_U64
		",'loop_busy_ns':" MAX_U64 ",'client_slow_ns':" MAX_U64
		",'net_peer_ip':'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',"
		"'net_peer_port':65535,'net_peer_path':'','net_peer_ns':" MAX_U64
		",'body_wait_ns':" MAX_U64
		",'not_measured':['gil','gc','arrival','accept','work_elsewhere','head_split',"
		"'pipelined','unsent','nagle']}");
}

static void profile(void **state)
{
	struct request_profile value = {
		.header = ROW_HEADER,
		.count = 12,
		.duration_ns = 34,
		.min_ns = 2,
		.max_ns = 5,
		.not_measured = REQUEST_LACK_gil | REQUEST_LACK_accept,
	};
	const struct request_profile_key key = {
		.host_pid = ROW_UNKNOWN_PID,
		.server_port = 8000,
		.method = REQUEST_METHOD_GET,
		.status_class = 5,
		.model = REQUEST_MODEL_loop,
	};
	const struct sched_sums of = { .start_ns = ROW_START_NS, .end_ns = ROW_END_NS };
	struct tracker_output output = row_output("request");

	(void)state;
	for (uint32_t i = 0; i < REQUEST_PART_MAX; i++)
		value.parts[i] = 1000 + i;
	value.buckets[0] = 3;
	value.buckets[REQUEST_BUCKETS - 1] = UINT64_MAX;
	request_add_sum(&output, &of, &key, &value);
	row_expect("{'table':'ebpf_request_profile',"
		   "'host':'test','container_id':'','pod_uid':'','pid':70001,'tid':0,"
		   "'host_pid':4200001,'host_tid':0,'comm':'worker','thread_name':''," TIMES
		   "'trace_id':'','span_id':'','weight':1," ROW_NAMES
		   ",'server_port':8000,'method':'GET',"
		   "'status_class':'5xx','model':'loop','count':12,'duration_sum_ns':34,"
		   "'accept_queue_ns':1020,'client_wait_ns':1015,'queue_ns':1019,"
		   "'pool_wait_ns':1018,'cpu_ns':1016,'runq_ns':1000,'throttled_ns':1001,"
		   "'gil_ns':1002,'gc_own_ns':1003,'gc_sibling_ns':1004,'lock_ns':1005,"
		   "'net_ns':1006,'disk_ns':1007,'fault_ns':1008,'sleep_ns':1009,'pipe_ns':1010,"
		   "'child_ns':1011,'other_ns':1012,'await_ns':1013,'loop_busy_ns':1017,"
		   "'client_slow_ns':1014,'min_ns':2,'max_ns':5,"
		   "'histogram':[3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
		   "18446744073709551615],'not_measured':['gil','accept']}");
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(with_a_head),	ROW_TEST(not_measured), ROW_TEST(head_beyond_the_record),
	ROW_TEST(all_bits_set), ROW_TEST(profile),
};
ROW_GROUP("request", tests)
