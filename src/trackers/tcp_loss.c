// SPDX-License-Identifier: Apache-2.0
/*
 * tcp_loss: retransmissions, stalls, closed windows and resets. Measured in bpf/tcp_loss.bpf.c.
 * Once a second user space closes episodes without a packet or timer at the end.
 */
#include "events/tcp_loss.h"

#include <bpf/bpf.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/log.h"
#include "host/kernel.h"
#include "tcp_loss.skel.h"
#include "trackers/tcp_columns.h"
#include "trackers/take_out.h"

struct tcp_loss_row {
	struct row_common common;
	struct tcp_loss_event event;
};

static const char *const kind_names[TCP_LOSS_KIND_MAX] = {
#define X(id, name) name,
	TCP_LOSS_KINDS(X)
#undef X
};
static const char *const end_names[TCP_LOSS_END_MAX] = {
#define X(id, name) name,
	TCP_LOSS_ENDS(X)
#undef X
};
static const char *const owner_names[TCP_LOSS_OWNER_MAX] = {
#define X(id, name) name,
	TCP_LOSS_OWNERS(X)
#undef X
};

#define EVENT(kind, member, type) COLUMN(kind, struct tcp_loss_row, event.member, #member, type)
static const struct column columns[] = {
	COLUMN_NAMED(struct tcp_loss_row, event.kind, "kind", kind_names),
	COLUMN_NAMED(struct tcp_loss_row, event.ended_by, "ended_by", end_names),
	COLUMN_NAMED(struct tcp_loss_row, event.owner, "owner", owner_names),
	TCP_COLUMNS(struct tcp_loss_row, event.connection),
	EVENT(COLUMN_U64, stalled_ns, "UInt64"),
	EVENT(COLUMN_U32, stalls, "UInt32"),
	EVENT(COLUMN_U32, segments, "UInt32"),
	EVENT(COLUMN_U32, timeouts, "UInt32"),
	EVENT(COLUMN_U32, probes, "UInt32"),
	EVENT(COLUMN_U32, lost_out, "UInt32"),
	EVENT(COLUMN_U32, snd_wnd, "UInt32"),
	EVENT(COLUMN_U32, rcv_wnd, "UInt32"),
};

static struct tcp_loss_bpf *skeleton;
static bool begun;
static uint64_t merge_ms = 100, max_sockets = 262144, max_intervals = 65536;

static const struct option options[] = {
	{ .key = "tcp_loss.merge_ms",
	  .type = OPTION_UINT,
	  .target = &merge_ms,
	  .arg = "MS",
	  .unit = UNIT_MS,
	  .help = "merge a connection's closed windows, or fast retransmissions, with a shorter "
		  "gap than this into one row" },
	{ .key = "tcp_loss.max_sockets",
	  .type = OPTION_UINT,
	  .target = &max_sockets,
	  .arg = "N",
	  .help = "sockets known at once (about 150 bytes each); sockets without room are "
		  "counted as lost",
	  .min = 1,
	  .max = 1 << 24 },
	{ .key = "tcp_loss.max_intervals",
	  .type = OPTION_UINT,
	  .target = &max_intervals,
	  .arg = "N",
	  .help = "open intervals at once (about 350 bytes each); intervals without room are "
		  "counted as lost",
	  .min = 1,
	  .max = 1 << 24 },
};

static uint64_t jiffy_ns(void)
{
	struct timespec resolution;

	/* the coarse clock's resolution is the kernel's tick */
	if (clock_getres(CLOCK_MONOTONIC_COARSE, &resolution))
		return 4 * NSEC_PER_MSEC;
	return (uint64_t)resolution.tv_sec * NSEC_PER_SEC + (uint64_t)resolution.tv_nsec;
}

/* Optional kernel features, and events not seen without the feature (NULL: all seen, some less
 * precisely). */
static const struct {
	const char *tracepoint, *program, *without;
} optional[] = {
	{ "tcp_cong_state_set", "tcp_loss_cong_state", NULL },
	{ "tcp_retransmit_synack", "tcp_loss_retransmit_synack", "synack_retransmit" },
	{ "tcp_receive_reset", "tcp_loss_rst_received", "rst_received" },
	{ "tcp_send_reset", "tcp_loss_rst_sent", "rst_sent" },
	{ "tcp_rcv_space_adjust", "tcp_loss_read", "zero_window_sent" },
	{ "timer_start", "tcp_loss_timer_start", "zero_window_received" },
	{ "timer_expire_exit", "tcp_loss_timer_expired", "tlp with new data" },
};

static void leave_out_what_is_missing(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(optional); i++) {
		struct bpf_program *program = bpf_object__find_program_by_name(skeleton->obj,
									       optional[i].program);
		bool there = kernel_has(optional[i].tracepoint);

		bpf_program__set_autoload(program, there);
		if (!there && optional[i].without)
			log_warn("tcp_loss: %s: not seen, this kernel has no tracepoint %s",
				 optional[i].without, optional[i].tracepoint);
	}
}

static void report_missing(const struct tracker_output *output)
{
	struct tracker_health health = {
		.live = true, .method = "tracepoints", .what = "", .reason = ""
	};
	struct why why;

	output->health(output, &health);
	for (size_t i = 0; i < ARRAY_SIZE(optional); i++) {
		if (!optional[i].without || kernel_has(optional[i].tracepoint))
			continue;
		why_fail(&why, ENOTSUP, "this kernel has no tracepoint %s", optional[i].tracepoint);
		health = (struct tracker_health){ .method = "",
						  .what = optional[i].without,
						  .reason = why.text };
		output->health(output, &health);
	}
}

static int tcp_loss_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			 struct why *why)
{
	skeleton = tcp_loss_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	skeleton->rodata->only_chosen = only_chosen;
	skeleton->rodata->jiffy_ns = jiffy_ns();
	skeleton->rodata->merge_ns = merge_ms * NSEC_PER_MSEC;
	bpf_map__set_max_entries(skeleton->maps.tcp_loss_sockets, (uint32_t)max_sockets);
	bpf_map__set_max_entries(skeleton->maps.tcp_loss_episodes, (uint32_t)max_intervals);
	leave_out_what_is_missing();
	bpf_program__set_autoattach(skeleton->progs.tcp_loss_tick, false);
	begun = false;
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void tcp_loss_close(void)
{
	tcp_loss_bpf__destroy(skeleton);
	skeleton = NULL;
}

/* Finds owners of sockets opened before the agent's start, by an iterator. */
static void look_for_old_sockets(void)
{
	/* any TCP socket shows the addresses of TCP's timer functions; opens one in case none
	 * exists */
	AUTO_CLOSE int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	AUTO_CLOSE int fd = bpf_iter_create(bpf_link__fd(skeleton->links.tcp_loss_old_sockets));
	char nothing[64];
	ssize_t n;

	do {
		n = fd < 0 ? fd : read(fd, nothing, sizeof(nothing));
	} while (n > 0 || (n < 0 && errno == EAGAIN && fd >= 0));
	if (n < 0 || socket_fd < 0)
		log_warn("tcp_loss: cannot list the open sockets (%s): rows of a socket have no "
			 "owner until the socket is used",
			 strerror(errno));
}

static void tcp_loss_take_out(void)
{
}

static uint64_t tcp_loss_put_back(void)
{
	uint64_t n = map_forget(skeleton->maps.tcp_loss_episodes, NULL);

	map_forget(skeleton->maps.tcp_loss_sockets, NULL);
	skeleton->bss->episodes_open = 0;
	begun = false; /* the next tick finds the sockets of then */
	return n;
}

static void check_episode(const struct tcp_loss_key *key)
{
	uint64_t arguments[] = { key->sock, key->kind, key->no_sock };
	LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = arguments, .ctx_size_in = sizeof(arguments));

	bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.tcp_loss_tick), &run);
}

static void tcp_loss_tick(const struct tracker_output *output, uint64_t now_ns)
{
	int episodes = bpf_map__fd(skeleton->maps.tcp_loss_episodes);
	struct tcp_loss_key key, next;
	bool more;

	(void)now_ns;
	if (output->out) /* the sockets' addresses may be stale */
		return;
	if (!begun) {
		if (skeleton->links.tcp_loss_old_sockets) /* NULL: stopped before the attach */
			look_for_old_sockets();
		report_missing(output);
	}
	begun = true;
	more = bpf_map_get_next_key(episodes, NULL, &next) == 0;
	while (more) {
		key = next;
		/* next key first: a deleted key has no successor */
		more = bpf_map_get_next_key(episodes, &key, &next) == 0;
		check_episode(&key);
	}
}

const struct tracker tcp_loss_tracker = {
	.name = "tcp_loss",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_tcp_loss", columns),
	TRACKER_ROW(struct tcp_loss_row),
	.ring_bytes = 256 << 10,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = tcp_loss_open,
	.close = tcp_loss_close,
	.tick = tcp_loss_tick,
	.take_out = tcp_loss_take_out,
	.put_back = tcp_loss_put_back,
};
