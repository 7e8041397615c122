// SPDX-License-Identifier: Apache-2.0
/* tcp_accept: time of connections in accept queues, and overflows. */
#include "events/tcp_accept.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "rows/enrich.h"
#include "host/kernel.h"
#include "host/netstat.h"
#include "tcp_accept.skel.h"
#include "trackers/own_rows.h"
#include "trackers/tcp_columns.h"
#include "trackers/take_out.h"

enum { MAX_NAMESPACES = 4096 };

struct tcp_accept_row {
	struct row_common common;
	struct tcp_accept_event event;
	uint32_t overflows;
};

static const char *const kind_names[TCP_ACCEPT_KIND_MAX] = { "accepted", "never_accepted",
							     "dropped" };

#define EVENT(kind, member, type) COLUMN(kind, struct tcp_accept_row, event.member, #member, type)
static const struct column columns[] = {
	TCP_COLUMNS(struct tcp_accept_row, event.connection),
	COLUMN_NAMED(struct tcp_accept_row, event.kind, "kind", kind_names),
	EVENT(COLUMN_IP, listen_ip, "IPv6"),
	EVENT(COLUMN_U32, queue_len, "UInt32"),
	EVENT(COLUMN_U32, queue_max, "UInt32"),
	EVENT(COLUMN_U32, handshake_rtt_us, "UInt32"),
	EVENT(COLUMN_U32, drops, "UInt32"),
	COLUMN(COLUMN_U32, struct tcp_accept_row, overflows, "overflows", "UInt32"),
};

static struct tcp_accept_bpf *skeleton;
static bool asking, asking_failed;
static bool forgotten; /* the listeners, while the tracker was out */
/* most connections are accepted at once and of no interest */
static uint64_t min_duration_us = 1000, max_waiting = 262144, max_listeners = 8192;

static const struct option options[] = {
	{ .key = "tcp_accept.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "leave shorter waits in the accept queue out; 0: every accepted "
		  "connection is a row",
	  .reloadable = true },
	{ .key = "tcp_accept.max_waiting",
	  .type = OPTION_UINT,
	  .target = &max_waiting,
	  .arg = "N",
	  .help = "connections in accept queues at once (about 150 bytes each); connections "
		  "without room are counted as lost",
	  .min = 1,
	  .max = 1 << 24 },
	{ .key = "tcp_accept.max_listeners",
	  .type = OPTION_UINT,
	  .target = &max_listeners,
	  .arg = "N",
	  .help = "listeners known at once (some 200 bytes each); all are visited every "
		  "second",
	  .min = 1,
	  .max = 1 << 24 },
};

/* ---- drops of handshakes, and those of a full queue ---- */

/*
 * A listener counts each packet that is dropped, also the repetition of one whose handshake is
 * counted already; only the network namespace counts dropped handshakes (ListenDrops) and those of
 * a full queue (ListenOverflows). What is new there is attributed to listeners with new drops.
 */
enum { DROPS, OVERFLOWS, NETNS_COUNTERS };
static const char *const counter_names[NETNS_COUNTERS] = { "ListenDrops", "ListenOverflows" };

struct netns_counter {
	uint64_t last;	 /* last value of the namespace's counter */
	uint64_t credit; /* counted and not attributed so far */
};

struct netns_counters {
	uint32_t netns;
	struct netns_counter counters[NETNS_COUNTERS];
	UT_hash_handle hh;
};

static struct netns_counters *namespaces;

/* Reports of a tick: TCP_ACCEPT_DROPPED and, once per listener, _LISTENING. */
struct listener_reports {
	struct tcp_accept_event *items;
	size_t n, room;
};
enum { REPORTS_AT_FIRST = 64 };

static void forget_namespaces(void)
{
	struct netns_counters *i, *next;

	HASH_ITER(hh, namespaces, i, next)
	{
		HASH_DEL(namespaces, i);
		free(i);
	}
}

/* Finds or creates the namespace's entry; NULL: out of memory. */
static struct netns_counters *find_namespace(uint32_t netns)
{
	struct netns_counters *found;

	HASH_FIND(hh, namespaces, &netns, sizeof(netns), found);
	if (found)
		return found;
	if (HASH_COUNT(namespaces) >= MAX_NAMESPACES)
		forget_namespaces();
	found = calloc(1, sizeof(*found));
	if (!found)
		return NULL;
	found->netns = netns;
	HASH_ADD(hh, namespaces, netns, sizeof(netns), found);
	return found;
}

static int read_counter(const struct tcp_accept_event *event, int which, uint64_t *ret)
{
	return netstat_read(event->connection.netns, event->header.host_pid, counter_names[which],
			    ret);
}

/* Drops reported by a namespace's listeners in this tick. */
static uint64_t drops_in(const struct tcp_accept_event *reports, size_t n, uint32_t netns)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += reports[i].connection.netns == netns ? reports[i].drops : 0;
	return sum;
}

/*
 * The first report of a namespace: what it counted earlier is ignored, except drops already counted
 * by its listeners. A new namespace (a container) has counted nothing earlier.
 */
static void note_namespace(const struct tcp_accept_event *event,
			   const struct tcp_accept_event *reports, size_t n)
{
	uint64_t drops = drops_in(reports, n, event->connection.netns), now[NETNS_COUNTERS];
	struct netns_counters *found;

	HASH_FIND(hh, namespaces, &event->connection.netns, sizeof(event->connection.netns), found);
	if (found || read_counter(event, DROPS, &now[DROPS]) ||
	    read_counter(event, OVERFLOWS, &now[OVERFLOWS]))
		return;
	found = find_namespace(event->connection.netns);
	for (int i = 0; found && i < NETNS_COUNTERS; i++)
		found->counters[i].last = now[i] <= 2 * drops ? 0 : now[i] - drops;
}

/* The part of a listener's `drops` that the namespace counted, too. */
static uint32_t counted_of(const struct tcp_accept_event *event, int which, uint32_t drops)
{
	struct netns_counters *ns = find_namespace(event->connection.netns);
	struct netns_counter *counter = ns ? &ns->counters[which] : NULL;
	uint64_t now, counted = drops;

	if (!counter)
		return drops;
	/* no process is left to read the counter through: a full queue is by far the most common
	 * cause */
	if (read_counter(event, which, &now)) {
		counter->last += drops;
		return drops;
	}
	counter->credit += now > counter->last ? now - counter->last : 0;
	counter->last = now;
	if (counted > counter->credit)
		counted = counter->credit;
	counter->credit -= counted;
	return (uint32_t)counted;
}

static void count_drops(struct tcp_accept_row *row)
{
	if (row->event.kind != TCP_ACCEPT_DROPPED)
		return;
	row->event.drops = counted_of(&row->event, DROPS, row->event.drops);
	row->overflows = counted_of(&row->event, OVERFLOWS, row->event.drops);
}

/* ---- reading the listeners ---- */

static struct tcp_accept_event *next_report(struct listener_reports *reports)
{
	size_t room = reports->room ? 2 * reports->room : REPORTS_AT_FIRST;
	void *items;

	if (reports->n == reports->room) {
		items = realloc(reports->items, room * sizeof(reports->items[0]));
		if (!items)
			return NULL;
		reports->items = items;
		reports->room = room;
	}
	return &reports->items[reports->n];
}

/* Appends the listener's report if it has news. */
static int ask_listener(uint64_t sock, struct listener_reports *reports)
{
	LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = &sock, .ctx_size_in = sizeof(sock));
	const uint32_t only = 0;
	struct tcp_accept_event *report = next_report(reports);

	/* asked before there is room, a report would be lost */
	if (!report)
		return -ENOMEM;
	if (bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.tcp_accept_ask), &run))
		return -errno;
	if (!run.retval)
		return 0;
	if (bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.accept_report), &only, report))
		return -errno;
	reports->n++;
	return 0;
}

/*
 * A listener that ends meanwhile may lead back to the first one, so the number of steps is bounded:
 * what is missed is asked in the next second.
 */
static int ask_listeners(struct listener_reports *reports)
{
	int listeners = bpf_map__fd(skeleton->maps.accept_listeners), err = 0;
	uint64_t sock, next;
	bool more = !bpf_map_get_next_key(listeners, NULL, &next);

	for (uint64_t i = 0; more && !err && i < max_listeners; i++) {
		sock = next;
		more = !bpf_map_get_next_key(listeners, &sock, &next);
		err = ask_listener(sock, reports);
	}
	return err;
}

static void tcp_accept_complete(void *row, struct row_context *context)
{
	(void)context;
	count_drops(row);
}

static void fill_common(void *row_of, struct row_context *context)
{
	struct tcp_accept_row *row = row_of;

	enrich_event(context, &row->event.header, &row->common);
}

void tcp_accept_add_reports(const struct tracker_output *output,
			    const struct tcp_accept_event *reports, size_t n)
{
	for (size_t i = 0; i < n; i++)
		note_namespace(&reports[i], reports, n);
	for (size_t i = 0; i < n; i++) {
		struct tcp_accept_row row = { .event = reports[i] };

		if (row.event.kind == TCP_ACCEPT_LISTENING)
			continue;
		count_drops(&row);
		if (row.event.drops)
			output->add(output, &(struct tracker_row){ .row = &row,
								   .size = sizeof(row),
								   .fill = fill_common });
	}
}

/* Runs the iterator over all open files to its end; it has no output. */
static int find_listeners(void)
{
	struct bpf_link *link = bpf_program__attach_iter(skeleton->progs.tcp_accept_find, NULL);
	AUTO_CLOSE int fd = link ? bpf_iter_create(bpf_link__fd(link)) : -errno;
	char nothing;
	int err = fd < 0 ? fd : read(fd, &nothing, sizeof(nothing)) < 0 ? -errno : 0;

	bpf_link__destroy(link);
	return err;
}

static void tcp_accept_tick(const struct tracker_output *output, uint64_t now_ns)
{
	struct listener_reports reports = { 0 };
	int err = 0;

	(void)now_ns;
	if (asking_failed || output->out) /* out: the listeners' addresses may be stale */
		return;
	if (!asking || forgotten)
		err = find_listeners();
	asking = true;
	forgotten = false;
	if (!err)
		err = ask_listeners(&reports);
	/* records read before an error are not repeated */
	tcp_accept_add_reports(output, reports.items, reports.n);
	free(reports.items);
	if (!err)
		return;
	asking_failed = true;
	log_warn("tcp_accept: cannot query the listeners' drops: %s; there are no rows of kind "
		 "'dropped'",
		 strerror(-err));
}

/* ---- open and close ---- */

static void tcp_accept_options_changed(void)
{
	skeleton->bss->min_duration_ns = min_duration_us * NSEC_PER_USEC;
}

static int tcp_accept_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			   struct why *why)
{
	bool cheap = kernel_has("sys_exit_accept") && kernel_has("sys_exit_accept4");

	skeleton = tcp_accept_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	tcp_accept_options_changed();
	skeleton->rodata->only_chosen = only_chosen;
	bpf_map__set_max_entries(skeleton->maps.accept_waiting, (uint32_t)max_waiting);
	bpf_map__set_max_entries(skeleton->maps.accept_listeners, (uint32_t)max_listeners);
	bpf_program__set_autoload(skeleton->progs.tcp_accept_exit_accept, cheap);
	bpf_program__set_autoload(skeleton->progs.tcp_accept_exit_accept4, cheap);
	bpf_program__set_autoload(skeleton->progs.tcp_accept_exit, !cheap);
	bpf_program__set_autoload(skeleton->progs.tcp_accept_uring,
				  kernel_has("io_uring_complete"));
	/* run when they are asked */
	bpf_program__set_autoattach(skeleton->progs.tcp_accept_ask, false);
	bpf_program__set_autoattach(skeleton->progs.tcp_accept_find, false);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void tcp_accept_take_out(void)
{
}

static uint64_t tcp_accept_put_back(void)
{
	forgotten = true; /* the next tick finds the listeners of then */
	map_forget(skeleton->maps.accept_listeners, NULL);
	return map_forget(skeleton->maps.accept_waiting, NULL);
}

static void tcp_accept_close(void)
{
	asking = asking_failed = forgotten = false;
	forget_namespaces();
	tcp_accept_bpf__destroy(skeleton);
	skeleton = NULL;
}

const struct tracker tcp_accept_tracker = {
	.name = "tcp_accept",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_tcp_accept", columns),
	TRACKER_ROW(struct tcp_accept_row),
	.ring_bytes = 256 << 10,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = tcp_accept_open,
	.options_changed = tcp_accept_options_changed,
	.close = tcp_accept_close,
	.tick = tcp_accept_tick,
	.take_out = tcp_accept_take_out,
	.put_back = tcp_accept_put_back,
	.complete = tcp_accept_complete,
};
