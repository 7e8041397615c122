// SPDX-License-Identifier: Apache-2.0
/*
 * cpu_throttle: when a CPU quota of its cgroup, or of one above, kept a process from running. Rows
 * come from the counters that cpu.stat shows, so that they add up to it; where in time they belong
 * the kernel side saw at the ends of the quota's periods (bpf/cpu_throttle.bpf.c).
 */
#include "events/cpu_throttle.h"

#include <bpf/bpf.h>
#include <string.h>
#include <uthash.h>

#include "cpu_throttle.skel.h"
#include "log.h"
#include "pipeline/enrich.h"
#include "probe/clock.h"
#include "probe/kernel.h"
#include "trackers/tracker.h"

/* How often new processes are looked at; a second's tick is the rule. */
static const uint64_t LOOK_EVERY_NS = 100 * NSEC_PER_MSEC;

/* A Python process is found within this, and after no more windows than the kernel side keeps. */
static const uint64_t NEW_NS = 8 * NSEC_PER_SEC;

struct cpu_throttle_row {
	struct row_common common;
	struct cpu_throttle_event event; /* .now: the totals at the row's end */
	uint64_t quota_us, period_us, throttled_ns;
	uint32_t periods, throttled_periods;
};

#define ROW(kind, member, name, type) COLUMN(kind, struct cpu_throttle_row, member, name, type)
static const struct column columns[] = {
	ROW(COLUMN_CHARS, event.name, "cgroup", "LowCardinality(String)"),
	ROW(COLUMN_U64, event.cgroup_id, "cgroup_id", "UInt64"),
	ROW(COLUMN_U32, event.level, "cgroup_level", "UInt32"),
	ROW(COLUMN_U64, quota_us, "quota_us", "UInt64"),
	ROW(COLUMN_U64, period_us, "period_us", "UInt64"),
	ROW(COLUMN_U64, throttled_ns, "throttled_ns", "UInt64"),
	ROW(COLUMN_U32, throttled_periods, "throttled_periods", "UInt32"),
	ROW(COLUMN_U32, periods, "periods", "UInt32"),
	ROW(COLUMN_U64, event.now.throttled_ns, "throttled_ns_total", "UInt64"),
	ROW(COLUMN_U32, event.now.throttled_periods, "throttled_periods_total", "UInt32"),
	ROW(COLUMN_U32, event.now.periods, "periods_total", "UInt32"),
};

/* What rows have told of a process and one of its quotas. */
struct told {
	struct {
		uint64_t group;
		uint64_t host_pid;
	} key;
	uint64_t cgroup_id; /* another one: the kernel has used the memory again */
	uint64_t until_ns;
	uint64_t next_window;
	struct cpu_throttle_totals totals;
	uint32_t look; /* the last one that it was seen in */
	UT_hash_handle hh;
};

static struct cpu_throttle_bpf *skeleton;
static struct bpf_link *ask_link;
static struct told *all_told;
static uint64_t last_look_ns;
static uint32_t looks;
static struct complaint cannot_ask;
static bool has_timer, said_how;

/* ---- rows ---- */

/* Counters only grow: `to` may also be a window's end that was told of from fresher figures. */
static bool moved(const struct cpu_throttle_totals *from, const struct cpu_throttle_totals *to)
{
	return to->throttled_ns >= from->throttled_ns &&
	       to->throttled_periods >= from->throttled_periods &&
	       (to->throttled_ns > from->throttled_ns ||
		to->throttled_periods > from->throttled_periods);
}

static void fill_common(void *row_of)
{
	struct cpu_throttle_row *row = row_of;

	enrich_event(&row->event.header, &row->common);
}

static void add_row(const struct tracker_output *output, const struct cpu_throttle_event *event,
		    struct told *told, uint64_t start_ns, uint64_t end_ns,
		    const struct cpu_throttle_totals *totals)
{
	struct cpu_throttle_row row = {
		.event = *event,
		.quota_us = event->quota_ns / NSEC_PER_USEC,
		.period_us = event->period_ns / NSEC_PER_USEC,
		.throttled_ns = totals->throttled_ns - told->totals.throttled_ns,
		.throttled_periods = totals->throttled_periods - told->totals.throttled_periods,
		.periods = totals->periods - told->totals.periods,
	};

	if (start_ns < told->until_ns)
		start_ns = told->until_ns;
	if (end_ns < start_ns)
		end_ns = start_ns;
	row.event.header.start_ns = start_ns;
	row.event.header.end_ns = end_ns;
	row.event.now = *totals;
	output->add(output,
		    &(struct tracker_row){ .row = &row, .size = sizeof(row), .fill = fill_common });
	told->totals = *totals;
	told->until_ns = end_ns;
}

/* The last window's first period may have been accounted after its end: by now it is. */
static uint64_t start_of(const struct cpu_throttle_event *event,
			 const struct cpu_throttle_window *window, bool is_last)
{
	uint64_t throttled_ns = event->now.throttled_ns - event->periods.last.throttled_ns;

	if (!is_last || !event->periods.start_unknown || !throttled_ns ||
	    window->end_ns - window->start_ns <= throttled_ns)
		return window->start_ns;
	return window->end_ns - throttled_ns;
}

static uint64_t oldest_window(const struct cpu_throttle_periods *periods)
{
	return periods->n_windows > CPU_THROTTLE_WINDOWS ? periods->n_windows - CPU_THROTTLE_WINDOWS
							 : 0;
}

static const struct cpu_throttle_window *window_of(const struct cpu_throttle_periods *periods,
						   uint64_t number)
{
	return &periods->windows[number % CPU_THROTTLE_WINDOWS];
}

static void tell(const struct tracker_output *output, const struct cpu_throttle_event *event,
		 struct told *told)
{
	const struct cpu_throttle_periods *periods = &event->periods;
	uint64_t number = oldest_window(periods);

	if (number < told->next_window)
		number = told->next_window;
	for (; number < periods->n_windows; number++) {
		const struct cpu_throttle_window *window = window_of(periods, number);
		bool is_last = number + 1 == periods->n_windows;
		const struct cpu_throttle_totals *totals = is_last ? &event->now : &window->after;

		if (moved(&told->totals, totals))
			add_row(output, event, told, start_of(event, window, is_last),
				window->end_ns, totals);
	}
	/* the last one may go on */
	told->next_window = periods->n_windows - (periods->n_windows > 0);
	/* without a window: the timer went unseen, or there is none to see (see open()) */
	if (moved(&told->totals, &event->now))
		add_row(output, event, told, told->until_ns, event->header.end_ns, &event->now);
}

/* ---- processes ---- */

/*
 * A process that is new here: what its quota did since it started counts, the windows remember it.
 * An older one has come from another cgroup since the last look.
 */
static void begin(const struct cpu_throttle_event *event, struct told *told)
{
	const struct cpu_throttle_periods *periods = &event->periods;
	uint64_t since = event->header.start_ns, number = oldest_window(periods);

	if (event->header.end_ns - since > NEW_NS && since < last_look_ns)
		since = last_look_ns;
	while (number < periods->n_windows && window_of(periods, number)->end_ns <= since)
		number++;
	told->cgroup_id = event->cgroup_id;
	told->next_window = number;
	told->totals = event->now;
	told->until_ns = event->header.end_ns;
	if (periods->first_ns > since) { /* all of it: also windows that are not kept any more */
		told->totals = periods->first;
		told->until_ns = since;
		return;
	}
	if (number == periods->n_windows)
		return;
	told->totals = window_of(periods, number)->before;
	told->until_ns = since;
}

static struct told *find_told(const struct cpu_throttle_event *event)
{
	struct told wanted = { .key = { event->group, event->header.host_pid } }, *found;

	HASH_FIND(hh, all_told, &wanted.key, sizeof(wanted.key), found);
	if (found && found->cgroup_id == event->cgroup_id)
		return found;
	if (!found) {
		found = calloc(1, sizeof(*found));
		if (!found)
			return NULL; /* the next look tries again */
		found->key = wanted.key;
		HASH_ADD(hh, all_told, key, sizeof(found->key), found);
	}
	begin(event, found);
	return found;
}

static void forget(struct told *told)
{
	HASH_DEL(all_told, told);
	free(told);
}

/* `output` NULL: a look between the ticks, which only finds who is new. */
static void take(const struct tracker_output *output, const struct cpu_throttle_event *event)
{
	struct told *told = find_told(event);

	if (!told)
		return;
	told->look = looks;
	if (output)
		tell(output, event, told);
	if (event->ended)
		forget(told);
}

/* ---- asking ---- */

static int read_all(const struct tracker_output *output)
{
	AUTO_CLOSE int fd = bpf_iter_create(bpf_link__fd(ask_link));
	static struct cpu_throttle_event events[32];
	ssize_t n;

	if (fd < 0)
		return fd;
	/* a read gives whole records: no more than fit, and each was written at once */
	while ((n = read(fd, events, sizeof(events))) > 0 || (n < 0 && errno == EAGAIN)) {
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(events[0]); i++)
			take(output, &events[i]);
	}
	return n < 0 ? -errno : 0;
}

static void take_ended(const struct tracker_output *output)
{
	int map = bpf_map__fd(skeleton->maps.cpu_throttle_ended);
	static struct cpu_throttle_event event;
	uint64_t key, next; /* struct ended_key */
	bool more = bpf_map_get_next_key(map, NULL, &next) == 0;

	while (more) {
		key = next;
		more = bpf_map_get_next_key(map, &key, &next) == 0;
		if (bpf_map_lookup_elem(map, &key, &event) == 0)
			take(output, &event);
		bpf_map_delete_elem(map, &key);
	}
}

/* Who has left a cgroup, or lost the quota. */
static void forget_the_absent(void)
{
	struct told *told, *next;

	HASH_ITER(hh, all_told, told, next)
	{
		if (looks - told->look > 20)
			forget(told);
	}
}

static void look(const struct tracker_output *output)
{
	uint64_t now = clock_monotonic_ns();
	int err = 0;

	if (!ask_link)
		ask_link = bpf_program__attach_iter(skeleton->progs.cpu_throttle_ask, NULL);
	looks++;
	err = ask_link ? read_all(output) : -errno;
	if (err)
		complain(&cannot_ask, "cpu_throttle: cannot ask for the processes' quotas: %s",
			 strerror(-err));
	else
		complain_over(&cannot_ask, "cpu_throttle: the processes' quotas are read again");
	last_look_ns = now;
}

static void say_how(const struct tracker_output *output)
{
	struct tracker_health health = {
		.live = has_timer, .method = has_timer ? "timer" : "", .what = "", .reason = ""
	};

	if (!has_timer)
		health.reason = "this kernel has no tracepoint hrtimer_expire_entry: rows span the "
				"second between two readings";
	output->health(output, &health);
	said_how = true;
}

static void cpu_throttle_tick(const struct tracker_output *output, uint64_t now_ns)
{
	(void)now_ns;
	if (!said_how)
		say_how(output);
	look(output);
	take_ended(output);
	forget_the_absent();
}

static void cpu_throttle_process_appeared(const struct process *process)
{
	(void)process;
	if (clock_monotonic_ns() - last_look_ns >= LOOK_EVERY_NS)
		look(NULL);
}

/* ---- life ---- */

static int cpu_throttle_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			     struct why *why)
{
	(void)only_chosen; /* only tracked processes are asked about */
	skeleton = cpu_throttle_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	has_timer = kernel_has("hrtimer_expire_entry");
	said_how = false;
	bpf_program__set_autoload(skeleton->progs.cpu_throttle_timer, has_timer);
	/* runs when it is read */
	bpf_program__set_autoattach(skeleton->progs.cpu_throttle_ask, false);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void cpu_throttle_close(void)
{
	struct told *told, *next;

	HASH_ITER(hh, all_told, told, next)
	{
		forget(told);
	}
	bpf_link__destroy(ask_link);
	ask_link = NULL;
	last_look_ns = 0;
	cpu_throttle_bpf__destroy(skeleton);
	skeleton = NULL;
}

const struct tracker cpu_throttle_tracker = {
	.name = "cpu_throttle",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_cpu_throttle", columns),
	.event_size = sizeof(struct cpu_throttle_event),
	.row_size = sizeof(struct cpu_throttle_row),
	.event_offset = offsetof(struct cpu_throttle_row, event),
	.ring_bytes = 1 << 12,
	.open = cpu_throttle_open,
	.close = cpu_throttle_close,
	.tick = cpu_throttle_tick,
	.process_appeared = cpu_throttle_process_appeared,
};
