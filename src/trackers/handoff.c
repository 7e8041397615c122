// SPDX-License-Identifier: Apache-2.0
/* handoff: time a connection waited for a worker thread. Measured in bpf/handoff.bpf.c. */
#include "events/handoff.h"

#include <bpf/bpf.h>
#include <string.h>
#include <sys/socket.h>

#include "events/process.h"
#include "handoff.skel.h"
#include "host/kernel.h"
#include "rows/names.h"
#include "rows/stack.h"
#include "trackers/take_out.h"

struct handoff_row {
	struct row_common common;
	struct handoff_event event;
	const char *main_thread_name;
	struct column_strings py_stack;
};

static const char *const queue_names[HANDOFF_QUEUE_MAX] = { "accept", "keepalive" };
static const char *const pickup_names[HANDOFF_PICKUP_MAX] = {
#define X(name) #name,
	HANDOFF_PICKUPS(X)
#undef X
};

#define EVENT(kind, member, type) COLUMN(kind, struct handoff_row, event.member, #member, type)
static const struct column columns[] = {
	COLUMN_NAMED(struct handoff_row, event.queue, "queue", queue_names),
	COLUMN_NAMED(struct handoff_row, event.pickup, "pickup", pickup_names),
	EVENT(COLUMN_U64, client_wait_ns, "UInt64"),
	EVENT(COLUMN_U64, handoff_ns, "UInt64"),
	EVENT(COLUMN_U32, fd, "UInt32"),
	EVENT(COLUMN_U32, main_tid, "UInt32"),
	COLUMN(COLUMN_STRING, struct handoff_row, main_thread_name, "main_thread_name",
	       "LowCardinality(String)"),
	EVENT(COLUMN_U16, local_port, "UInt16"),
	EVENT(COLUMN_IP, peer_ip, "IPv6"),
	EVENT(COLUMN_U16, peer_port, "UInt16"),
	COLUMN(COLUMN_STRINGS, struct handoff_row, py_stack, "py_stack",
	       "Array(LowCardinality(String))"),
};

static struct handoff_bpf *skeleton;
static uint64_t min_duration_us, stack_min_us = 1000;
static double stack_cpu_percent = 0.1;
static bool processes_ended;

static const struct option options[] = {
	{ .key = "handoff.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "leave out shorter hand-offs; 0: a row for every hand-off",
	  .reloadable = true },
	{ .key = "handoff.stack_min_us",
	  .type = OPTION_UINT,
	  .target = &stack_min_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "requests with a wait this long for a thread have the thread's Python stack" },
	{ .key = "handoff.stack_cpu_percent",
	  .type = OPTION_NUMBER,
	  .target = &stack_cpu_percent,
	  .arg = "P",
	  .help = "limit on the share of a process's time for these stacks; above the limit, "
		  "rows have no stack; 0: no limit",
	  .max = 100,
	  .reloadable = true },
};

static void handoff_options_changed(void)
{
	skeleton->bss->min_duration_ns = min_duration_us * NSEC_PER_USEC;
	skeleton->bss->handoff_stack_share_ppm = (uint64_t)(stack_cpu_percent * 10000);
}

/* System call tracepoints. poll() does not exist on all machines; the others are required. */
static bool choose_syscalls(void)
{
	const struct {
		const char *name;
		struct bpf_program *program;
		bool always;
	} calls[] = {
		{ "sys_exit_accept", skeleton->progs.handoff_exit_accept, true },
		{ "sys_exit_accept4", skeleton->progs.handoff_exit_accept4, true },
		{ "sys_enter_recvfrom", skeleton->progs.handoff_enter_recvfrom, true },
		{ "sys_enter_sendto", skeleton->progs.handoff_enter_sendto, true },
		{ "sys_enter_ioctl", skeleton->progs.handoff_enter_ioctl, true },
		{ "sys_enter_epoll_ctl", skeleton->progs.handoff_enter_epoll_ctl, true },
		{ "sys_enter_ppoll", skeleton->progs.handoff_enter_ppoll, true },
		{ "sys_enter_poll", skeleton->progs.handoff_enter_poll, false },
	};
	bool has[ARRAY_SIZE(calls)], all = true;

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		has[i] = kernel_has(calls[i].name);
		all = all && (has[i] || !calls[i].always);
	}
	for (size_t i = 0; all && i < ARRAY_SIZE(calls); i++)
		bpf_program__set_autoload(calls[i].program, has[i]);
	return all;
}

static int handoff_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			struct why *why)
{
	bool cheap;

	(void)only_chosen; /* only connections of tracked processes are recorded */
	skeleton = handoff_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	handoff_options_changed();
	skeleton->rodata->handoff_stack_min_ns = stack_min_us * NSEC_PER_USEC;
	/* without bytes there is no wait for a thread: no stack is kept */
	if (stack_min_us)
		bpf_map__set_max_entries(skeleton->maps.handoff_stacks, 1);
	bpf_map__set_max_entries(skeleton->maps.python_walks, 1);
	bpf_program__set_autoload(kernel_has("sk_data_ready") ? skeleton->progs.handoff_data_ready
							      : skeleton->progs.handoff_tcp_probe,
				  true);
	bpf_program__set_autoload(skeleton->progs.handoff_recv_length,
				  kernel_has("sock_recv_length"));
	bpf_program__set_autoload(skeleton->progs.handoff_rcv_space,
				  !kernel_has("sock_recv_length") &&
					  kernel_has("tcp_rcv_space_adjust"));
	cheap = choose_syscalls();
	bpf_program__set_autoload(skeleton->progs.handoff_exit, !cheap);
	bpf_program__set_autoload(skeleton->progs.handoff_enter, !cheap);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void handoff_close(void)
{
	handoff_bpf__destroy(skeleton);
	skeleton = NULL;
}

static bool is_tracked(uint32_t host_pid)
{
	struct process_info info;

	return bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.processes), &host_pid, &info) == 0;
}

/*
 * Entries of an ended process's descriptors remain, and the end of a unix socket has no event. (TCP
 * entries end with their socket, which a child may keep.) A walk per second removes entries of all
 * ended processes, since a host may end thousands per second.
 */
static void handoff_process_gone(uint32_t host_pid)
{
	(void)host_pid;
	processes_ended = true;
}

static void forget_descriptor(uint64_t key)
{
	int fds = bpf_map__fd(skeleton->maps.handoff_fds);
	int conns = bpf_map__fd(skeleton->maps.handoff_conns);
	struct handoff_connection conn;
	uint64_t sock;

	if (bpf_map_lookup_elem(fds, &key, &sock))
		return;
	bpf_map_delete_elem(fds, &key);
	if (bpf_map_lookup_elem(conns, &sock, &conn) || conn.event.family != AF_UNIX ||
	    conn.host_pid != (uint32_t)(key >> 32))
		return;
	bpf_map_delete_elem(conns, &sock);
	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.handoff_picked), &sock);
}

static void handoff_tick(const struct tracker_output *output, uint64_t now_ns)
{
	int fds = bpf_map__fd(skeleton->maps.handoff_fds);
	uint64_t key, next;
	bool more;

	(void)output;
	(void)now_ns;
	if (!processes_ended)
		return;
	processes_ended = false;
	more = bpf_map_get_next_key(fds, NULL, &next) == 0;
	while (more) {
		key = next;
		/* next key first: a deleted key has no successor */
		more = bpf_map_get_next_key(fds, &key, &next) == 0;
		if (!is_tracked((uint32_t)(key >> 32)))
			forget_descriptor(key);
	}
}

static void handoff_take_out(void)
{
}

static bool waits(const void *value)
{
	const struct handoff_connection *conn = value;

	return conn->state == WAITING || conn->state == PICKED;
}

/* As at the agent's start: connections that are open already are followed from their next request
 */
static uint64_t handoff_put_back(void)
{
	uint64_t n = map_forget(skeleton->maps.handoff_conns, waits);

	map_forget(skeleton->maps.handoff_fds, NULL);
	map_forget(skeleton->maps.handoff_picked, NULL);
	return n;
}

static void handoff_take_extra(void *row_of, const void *extra, size_t size,
			       struct row_context *context)
{
	static struct stack_texts texts; /* single-threaded: one row at a time */
	struct handoff_row *row = row_of;
	const struct handoff_event *event = &row->event;

	row->py_stack = stack_of_event(context, &event->header, &event->py_stack, extra, size,
				       &texts);
}

static void handoff_complete(void *row_of, struct row_context *context)
{
	struct handoff_row *row = row_of;
	const struct handoff_event *event = &row->event;

	row->main_thread_name = names_find(context,
					   &(struct thread_id){ .host_pid = event->header.host_pid,
								.host_tid = event->main_host_tid,
								.pid = event->header.pid,
								.tid = event->main_tid,
								.ident = event->main_ident },
					   event->header.start_ns);
}

static const struct tracker_python python = {
	.walks_threads = true,
	.gone = handoff_process_gone,
};

const struct tracker handoff_tracker = {
	.name = "handoff",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_handoff", columns),
	TRACKER_ROW(struct handoff_row),
	.extra_max = PYTHON_STACK_MAX * sizeof(struct python_frame),
	.ring_bytes = 512 << 10,
	.python = &python,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = handoff_open,
	.options_changed = handoff_options_changed,
	.close = handoff_close,
	.take_extra = handoff_take_extra,
	.complete = handoff_complete,
	.tick = handoff_tick,
	.take_out = handoff_take_out,
	.put_back = handoff_put_back,
};
