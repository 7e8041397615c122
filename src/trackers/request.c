// SPDX-License-Identifier: Apache-2.0
/*
 * request: requests of HTTP/1 servers by part of their time. Measured in bpf/request/, in the
 * object shared with gil_wait and off_cpu; the texts of the request's head are parsed here.
 */
#include "events/request.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/log.h"
#include "host/kernel.h"
#include "rows/enrich.h"
#include "rows/http_head.h"
#include "trackers/own_rows.h"
#include "trackers/request_metrics.h"
#include "trackers/request_ports.h"
#include "trackers/request_unfollowed.h"
#include "trackers/request_unix.h"
#include "trackers/sched.h"

struct request_row {
	struct row_common common;
	struct request_event event;
	struct http_head head;
	struct column_maybe_u64 status, queue_depth, busy_threads;
	struct column_maybe_u64 accept_queue, client_wait, queue, gil, gc_own, gc_sibling,
		body_wait;
	struct column_strings not_measured;
	const char *lacks[REQUEST_LACKS];
	char net_peer_path[REQUEST_PEER_PATH_SIZE];
};

struct request_profile_row {
	struct row_common common;
	struct request_profile profile;
	struct request_profile_key key;
	struct column_strings not_measured;
	const char *lacks[REQUEST_LACKS];
	struct column_numbers histogram;
};

static const char *const family_names[] = { "", "ipv4", "ipv6", "unix" };
static const char *const model_names[] = { "thread", "pool", "loop" };
static const char *const link_names[] = { "same", "write", "wake" };
/* the last ones by number: include/uapi/asm-generic/signal.h */
static const char *const end_names[REQUEST_END_MAX] = {
	"length",    "chunked", "close",   "next_request", "upgrade", "exit",	  "SIGHUP",
	"SIGINT",    "SIGQUIT", "SIGILL",  "SIGTRAP",	   "SIGABRT", "SIGBUS",	  "SIGFPE",
	"SIGKILL",   "SIGUSR1", "SIGSEGV", "SIGUSR2",	   "SIGPIPE", "SIGALRM",  "SIGTERM",
	"SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP",	   "SIGTSTP", "SIGTTIN",  "SIGTTOU",
	"SIGURG",    "SIGXCPU", "SIGXFSZ", "SIGVTALRM",	   "SIGPROF", "SIGWINCH", "SIGIO",
	"SIGPWR",    "SIGSYS",
};
static const char *const outcome_names[] = { "answered", "client_aborted", "no_answer",
					     "upgraded" };
static const char *const class_names[] = { "", "1xx", "2xx", "3xx", "4xx", "5xx" };
static const char *const lack_names[REQUEST_LACKS] = {
	"gil",	      "gc",	   "arrival", "accept", "work_elsewhere",
	"head_split", "pipelined", "unsent",  "nagle",
};
static const char *const method_names[] = { "",
#define X(name) #name,
					    REQUEST_METHODS(X)
#undef X
};

#define LOW_STRING		      "LowCardinality(String)"
#define ROW(kind, member, name, type) COLUMN(kind, struct request_row, member, name, type)
#define EVENT(kind, member, type)     ROW(kind, event.member, #member, type)
#define PART(part)		      ROW(COLUMN_U64, event.parts[REQUEST_##part], #part "_ns", "UInt64")
#define MAYBE_PART(part)	      ROW(COLUMN_MAYBE_U64, part, #part "_ns", "Nullable(UInt64)")
static const struct column columns[] = {
	EVENT(COLUMN_U64, request_id, "UInt64"),
	COLUMN_NAMED(struct request_row, event.family, "family", family_names),
	EVENT(COLUMN_U16, server_port, "UInt16"),
	EVENT(COLUMN_IP, peer_ip, "IPv6"),
	EVENT(COLUMN_U16, peer_port, "UInt16"),
	EVENT(COLUMN_U32, fd, "UInt32"),
	EVENT(COLUMN_U32, netns, "UInt32"),
	ROW(COLUMN_CHARS, head.method, "method", LOW_STRING),
	ROW(COLUMN_CHARS, head.path, "path", "String"),
	ROW(COLUMN_MAYBE_U64, status, "status", "Nullable(UInt16)"),
	EVENT(COLUMN_U64, bytes_in, "UInt64"),
	EVENT(COLUMN_U64, bytes_out, "UInt64"),
	ROW(COLUMN_CHARS, head.parent_span_id, "parent_span_id", "String"),
	COLUMN_NAMED(struct request_row, event.model, "model", model_names),
	COLUMN_NAMED(struct request_row, event.link, "link", link_names),
	COLUMN_NAMED(struct request_row, event.end_by, "end_by", end_names),
	COLUMN_NAMED(struct request_row, event.outcome, "outcome", outcome_names),
	EVENT(COLUMN_U32, connection_request, "UInt32"),
	ROW(COLUMN_MAYBE_U64, queue_depth, "queue_depth", "Nullable(UInt32)"),
	ROW(COLUMN_MAYBE_U64, busy_threads, "busy_threads", "Nullable(UInt32)"),
	EVENT(COLUMN_U32, open_requests, "UInt32"),
	MAYBE_PART(accept_queue),
	MAYBE_PART(client_wait),
	MAYBE_PART(queue),
	PART(pool_wait),
	PART(cpu),
	PART(runq),
	PART(throttled),
	MAYBE_PART(gil),
	MAYBE_PART(gc_own),
	MAYBE_PART(gc_sibling),
	PART(lock),
	PART(net),
	PART(disk),
	PART(fault),
	PART(sleep),
	PART(pipe),
	PART(child),
	PART(other),
	PART(await),
	PART(loop_busy),
	PART(client_slow),
	EVENT(COLUMN_IP, net_peer_ip, "IPv6"),
	EVENT(COLUMN_U16, net_peer_port, "UInt16"),
	ROW(COLUMN_CHARS, net_peer_path, "net_peer_path", "String"),
	EVENT(COLUMN_U64, net_peer_ns, "UInt64"),
	ROW(COLUMN_MAYBE_U64, body_wait, "body_wait_ns", "Nullable(UInt64)"),
	ROW(COLUMN_STRINGS, not_measured, "not_measured", "Array(LowCardinality(String))"),
};

#define SUM(kind, member, name, type) COLUMN(kind, struct request_profile_row, member, name, type)
#define SUM_PART(part)		      SUM(COLUMN_U64, profile.parts[REQUEST_##part], #part "_ns", "UInt64")
static const struct column profile_columns[] = {
	SUM(COLUMN_U16, key.server_port, "server_port", "UInt16"),
	COLUMN_NAMED(struct request_profile_row, key.method, "method", method_names),
	COLUMN_NAMED(struct request_profile_row, key.status_class, "status_class", class_names),
	COLUMN_NAMED(struct request_profile_row, key.model, "model", model_names),
	SUM(COLUMN_U64, profile.count, "count", "UInt64"),
	SUM(COLUMN_U64, profile.duration_ns, "duration_sum_ns", "UInt64"),
	SUM_PART(accept_queue),
	SUM_PART(client_wait),
	SUM_PART(queue),
	SUM_PART(pool_wait),
	SUM_PART(cpu),
	SUM_PART(runq),
	SUM_PART(throttled),
	SUM_PART(gil),
	SUM_PART(gc_own),
	SUM_PART(gc_sibling),
	SUM_PART(lock),
	SUM_PART(net),
	SUM_PART(disk),
	SUM_PART(fault),
	SUM_PART(sleep),
	SUM_PART(pipe),
	SUM_PART(child),
	SUM_PART(other),
	SUM_PART(await),
	SUM_PART(loop_busy),
	SUM_PART(client_slow),
	SUM(COLUMN_U64, profile.min_ns, "min_ns", "UInt64"),
	SUM(COLUMN_U64, profile.max_ns, "max_ns", "UInt64"),
	SUM(COLUMN_NUMBERS, histogram, "histogram", "Array(UInt64)"),
	SUM(COLUMN_STRINGS, not_measured, "not_measured", "Array(LowCardinality(String))"),
};
static const struct table profile_table = TABLE_WITH_COMMON_COLUMNS("ebpf_request_profile",
								    profile_columns);

static struct sched_bpf *skeleton;
static struct sched_sums sums;

static uint64_t min_duration_us = 20000, rows_per_second = 20;
static uint64_t profile_interval_ns = 10 * NSEC_PER_SEC;
static bool with_path = true;
static struct string_list port_choice;

static const struct option options[] = {
	{ .key = "request.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "a row for each request this long; shorter ones are sampled, and the profile "
		  "counts all; 0: a row for every request",
	  .reloadable = true },
	{ .key = "request.rows_per_second",
	  .type = OPTION_UINT,
	  .target = &rows_per_second,
	  .arg = "N",
	  .help = "rows of shorter requests, per process, with weights",
	  .min = 1,
	  .max = 1000000,
	  .reloadable = true },
	{ .key = "request.profile_interval",
	  .type = OPTION_SECONDS,
	  .target = &profile_interval_ns,
	  .arg = "S",
	  .help = "sum all requests over this long",
	  .min = 1,
	  .max = 3600 },
	{ .key = "request.path",
	  .type = OPTION_BOOL,
	  .target = &with_path,
	  .help = "rows have the path of the request, without its query",
	  .reloadable = true },
	{ .key = "request.ports",
	  .type = OPTION_LIST,
	  .target = &port_choice,
	  .arg = "PORT",
	  .help = "only requests to these local ports; `unix`: and to unix sockets",
	  .otherwise = "all" },
};

/* ---- rows ---- */

static void name_lacks(uint64_t bits, const char *texts[REQUEST_LACKS], struct column_strings *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < REQUEST_LACKS; i++) {
		if (bits & 1U << i)
			texts[n++] = lack_names[i];
	}
	*ret = (struct column_strings){ texts, n };
}

/*
 * NULL for an unmeasured part. Time seen of such a part counts as `other`, so that the parts add
 * up.
 */
static struct column_maybe_u64 part_unless(struct request_event *event, enum request_part part,
					   enum request_lack lack)
{
	if (!(event->not_measured & lack))
		return (struct column_maybe_u64){ .value = event->parts[part], .known = true };
	event->parts[REQUEST_other] += event->parts[part];
	event->parts[part] = 0;
	return (struct column_maybe_u64){ .known = false };
}

/* Pauses of the client after the read are known even if the time before the read is not. */
static struct column_maybe_u64 of_client(const struct request_event *event, uint64_t ns)
{
	return (struct column_maybe_u64){
		.value = ns,
		.known = ns || !(event->not_measured & REQUEST_LACK_arrival),
	};
}

static void request_take_extra(void *row_of, const void *extra, size_t size,
			       struct row_context *context)
{
	struct request_row *row = row_of;
	const struct request_event *event = &row->event;
	size_t n = event->head_n, tail = event->tail_n;

	(void)context;
	if (n <= size && tail <= n)
		http_head_parse(extra, n, n - tail, &row->head);
	if (row->head.cut)
		row->event.not_measured |= REQUEST_LACK_head_split;
}

static void request_complete(void *row_of, struct row_context *context)
{
	struct request_row *row = row_of;
	struct request_event *event = &row->event;

	(void)context;
	request_unix_peer(skeleton, event, row->net_peer_path);
	/* an answer without a readable status */
	if (event->outcome == REQUEST_OUTCOME_no_answer && event->bytes_out)
		event->outcome = REQUEST_OUTCOME_answered;
	row->common.weight *= (float)event->weight;
	memcpy(row->common.trace_id, row->head.trace_id, sizeof(row->common.trace_id));
	if (!row->head.method[0] && event->method < REQUEST_METHOD_MAX)
		snprintf(row->head.method, sizeof(row->head.method), "%s",
			 method_names[event->method]);
	if (!with_path)
		row->head.path[0] = 0;
	row->status = (struct column_maybe_u64){ event->status, event->status != 0 };
	row->queue_depth = (struct column_maybe_u64){ event->queue_depth,
						      event->has_queue_depth != 0 };
	row->busy_threads = (struct column_maybe_u64){ event->busy_threads,
						       event->has_busy_threads != 0 };
	row->accept_queue = part_unless(event, REQUEST_accept_queue, REQUEST_LACK_accept);
	row->client_wait = of_client(event, event->parts[REQUEST_client_wait]);
	row->body_wait = of_client(event, event->body_wait_ns);
	row->queue = part_unless(event, REQUEST_queue, REQUEST_LACK_arrival);
	row->gil = part_unless(event, REQUEST_gil, REQUEST_LACK_gil);
	row->gc_own = part_unless(event, REQUEST_gc_own, REQUEST_LACK_gc);
	row->gc_sibling = part_unless(event, REQUEST_gc_sibling, REQUEST_LACK_gc);
	name_lacks(event->not_measured, row->lacks, &row->not_measured);
	if (exposition_served)
		request_metrics_add_row(&row->common, event);
}

static void fill_profile_row(void *row_of, struct row_context *context)
{
	struct request_profile_row *row = row_of;

	enrich_event(context, &row->profile.header, &row->common);
	row->common.thread_name = ""; /* of a process, not of a thread */
	context->unnamed = false;
	name_lacks(row->profile.not_measured, row->lacks, &row->not_measured);
	row->histogram = (struct column_numbers){ (const uint64_t *)row->profile.buckets,
						  REQUEST_BUCKETS };
}

void request_add_sum(const struct tracker_output *output, const struct sched_sums *of,
		     const void *key, const void *value)
{
	struct request_profile_row row = {
		.key = *(const struct request_profile_key *)key,
		.profile = *(const struct request_profile *)value,
	};
	struct event_header *header = &row.profile.header;

	header->tid = header->host_tid = 0;
	header->ident = 0;
	header->start_ns = of->start_ns;
	header->end_ns = of->end_ns;
	header->sampling_level = header->skip_shift = 0;
	output->add(output, &(struct tracker_row){ .table = 1,
						   .row = &row,
						   .size = sizeof(row),
						   .fill = fill_profile_row });
	if (exposition_served)
		request_metrics_add_sum(key, &row.profile);
}

static void request_drained(const struct tracker_output *output, const struct sched_sums *of,
			    uint32_t side)
{
	(void)output;
	(void)of;
	request_metrics_publish(side);
}

static void request_tick(const struct tracker_output *output, uint64_t now_ns)
{
	request_unix_sweep(skeleton, now_ns);
	request_unfollowed_report(skeleton, output, now_ns);
	sched_sums_tick(&sums, output, now_ns);
}

/* ---- open and close ---- */

static int request_check_options(struct why *why)
{
	return request_ports_choose(&port_choice, why);
}

static void request_options_changed(void)
{
	skeleton->bss->request_min_ns = min_duration_us * NSEC_PER_USEC;
	skeleton->bss->request_row_ns = min_duration_us ? NSEC_PER_SEC / rows_per_second : 0;
	request_metrics_every_from(min_duration_us * NSEC_PER_USEC);
}

/* Before 6.3 a socket's writes are seen at the ends of system calls. */
static void choose_calls(bool lengths)
{
	const struct {
		const char *name;
		struct bpf_program *program;
		bool always;
	} calls[] = {
		{ "sys_exit_accept", skeleton->progs.request_exit_accept, true },
		{ "sys_exit_accept4", skeleton->progs.request_exit_accept4, true },
		{ "sys_exit_sendto", skeleton->progs.request_exit_sendto, !lengths },
		{ "sys_exit_write", skeleton->progs.request_exit_write, !lengths },
		{ "sys_exit_writev", skeleton->progs.request_exit_writev, !lengths },
		{ "sys_exit_sendmsg", skeleton->progs.request_exit_sendmsg, !lengths },
		{ "sys_exit_sendfile64", skeleton->progs.request_exit_sendfile, !lengths },
	};
	bool all = true;

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		all = all && (!calls[i].always || kernel_has(calls[i].name));
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		bpf_program__set_autoload(calls[i].program, all && calls[i].always);
	bpf_program__set_autoload(skeleton->progs.request_exit, !all);
}

static void choose_programs(void)
{
	bool lengths = kernel_has("sock_recv_length"), arrivals = kernel_has("sk_data_ready");

	skeleton->rodata->request_has_lengths = lengths;
	choose_calls(lengths);
	bpf_program__set_autoload(skeleton->progs.request_recv_length, lengths);
	bpf_program__set_autoload(skeleton->progs.request_send_length, lengths);
	bpf_program__set_autoload(skeleton->progs.request_rcv_space, !lengths);
	bpf_program__set_autoload(skeleton->progs.request_data_ready, arrivals);
	bpf_program__set_autoload(skeleton->progs.request_tcp_probe, !arrivals);
	bpf_program__set_autoload(skeleton->progs.request_tcp_state, true);
	bpf_program__set_autoload(skeleton->progs.request_tcp_destroy, true);
	request_unix_open(skeleton, lengths);
}

static int request_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			struct why *why)
{
	int err = sched_open(&skeleton, why);

	(void)only_chosen; /* only tracked processes are followed */
	if (err)
		return err;
	sched_watch_switches();
	skeleton->rodata->request_runs = true;
	request_options_changed();
	request_ports_apply(skeleton);
	choose_programs();
	sums = (struct sched_sums){
		.maps = { skeleton->maps.request_profile_0, skeleton->maps.request_profile_1 },
		.side = &skeleton->bss->request_active_profile,
		.interval_ns = profile_interval_ns,
		.each = request_add_sum,
		.drained = request_drained,
	};
	request_metrics_start(&sums, lack_names);
	request_live_start(skeleton);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void request_process_gone(uint32_t host_pid)
{
	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.request_processes), &host_pid);
}

static void request_quiet(void)
{
	request_unix_sweep(skeleton, 0);
	skeleton->bss->stopping = true;
}

static void request_close(void)
{
	if (skeleton)
		sched_close();
	skeleton = NULL;
	request_metrics_stop();
}

static const struct tracker_python python = {
	.gone = request_process_gone,
	.quiet = request_quiet,
};

const struct tracker request_tracker = {
	.name = "request",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_request", columns),
	.second_table = &profile_table,
	TRACKER_ROW(struct request_row),
	.extra_max = REQUEST_HEAD_BYTES + REQUEST_TAIL_BYTES,
	.ring_bytes = 1 << 20,
	.limits_its_rows = true, /* request.rows_per_second */
	.program_prefix = "request_",
	.python = &python,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = request_open,
	.options_changed = request_options_changed,
	.check_options = request_check_options,
	.close = request_close,
	.tick = request_tick,
	.take_out = request_take_out,
	.put_back = request_put_back,
	.taken_out_last = true,
	.expose = request_metrics_expose,
	.take_extra = request_take_extra,
	.complete = request_complete,
};
