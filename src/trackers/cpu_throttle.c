// SPDX-License-Identifier: Apache-2.0
/*
 * cpu_throttle: when a CPU quota of a process's cgroup or of an ancestor stopped the process. Rows
 * use the counters of cpu.stat and add up to them; the BPF side records their times at the ends of
 * quota periods (bpf/cpu_throttle.bpf.c).
 */
#include "events/cpu_throttle.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/hash.h"
#include "cpu_throttle.skel.h"
#include "base/log.h"
#include "rows/enrich.h"
#include "base/clock.h"
#include "host/kernel.h"
#include "trackers/own_rows.h"
#include "trackers/tracker.h"

/* Interval of checks for new processes; known processes are checked at each tick. */
static const uint64_t LOOK_EVERY_NS = 100 * NSEC_PER_MSEC;

/* A Python process is found within this time; BPF keeps all windows of that time. */
static const uint64_t NEW_NS = 8 * NSEC_PER_SEC;

struct cpu_throttle_row {
	struct row_common common;
	struct cpu_throttle_event event; /* .now: totals at the row's end */
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

/* Reported state of a process and a quota. */
struct cgroup_state {
	struct {
		uint64_t group;
		uint64_t host_pid;
	} key;
	uint64_t cgroup_id; /* another id: the kernel reused the address */
	uint64_t until_ns;
	uint64_t next_window;
	struct cpu_throttle_totals totals;
	uint32_t last_scan; /* last scan with this entry */
	UT_hash_handle hh;
};

static struct cpu_throttle_bpf *skeleton;
static struct bpf_link *ask_link;
static struct cgroup_state *cgroup_states;
static uint64_t last_look_ns;
static uint32_t n_scans;
static struct log_limit cannot_ask;
static uint64_t periods_before; /* counted in BPF, at the last scan */
static bool has_timer, said_how;

/* ---- rows ---- */

/* Counters only grow; `to` may be the end of a window already reported from newer counters. */
static bool has_changed(const struct cpu_throttle_totals *from,
			const struct cpu_throttle_totals *to)
{
	return to->throttled_ns >= from->throttled_ns &&
	       to->throttled_periods >= from->throttled_periods &&
	       (to->throttled_ns > from->throttled_ns ||
		to->throttled_periods > from->throttled_periods);
}

static void fill_common(void *row_of, struct row_context *context)
{
	struct cpu_throttle_row *row = row_of;

	enrich_event(context, &row->event.header, &row->common);
}

static void add_row(const struct tracker_output *output, const struct cpu_throttle_event *event,
		    struct cgroup_state *state, uint64_t start_ns, uint64_t end_ns,
		    const struct cpu_throttle_totals *totals)
{
	struct cpu_throttle_row row = {
		.event = *event,
		.quota_us = event->quota_ns / NSEC_PER_USEC,
		.period_us = event->period_ns / NSEC_PER_USEC,
		.throttled_ns = totals->throttled_ns - state->totals.throttled_ns,
		.throttled_periods = totals->throttled_periods - state->totals.throttled_periods,
		.periods = totals->periods - state->totals.periods,
	};

	if (start_ns < state->until_ns)
		start_ns = state->until_ns;
	if (end_ns < start_ns)
		end_ns = start_ns;
	row.event.header.start_ns = start_ns;
	row.event.header.end_ns = end_ns;
	row.event.now = *totals;
	output->add(output,
		    &(struct tracker_row){ .row = &row, .size = sizeof(row), .fill = fill_common });
	state->totals = *totals;
	state->until_ns = end_ns;
}

/* The first period of the last window may be accounted late; complete now. */
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

static void report_periods(const struct tracker_output *output,
			   const struct cpu_throttle_event *event, struct cgroup_state *state)
{
	const struct cpu_throttle_periods *periods = &event->periods;
	uint64_t number = oldest_window(periods);

	if (number < state->next_window)
		number = state->next_window;
	for (; number < periods->n_windows; number++) {
		const struct cpu_throttle_window *window = window_of(periods, number);
		bool is_last = number + 1 == periods->n_windows;
		const struct cpu_throttle_totals *totals = is_last ? &event->now : &window->after;

		if (has_changed(&state->totals, totals))
			add_row(output, event, state, start_of(event, window, is_last),
				window->end_ns, totals);
	}
	/* the last window may continue */
	state->next_window = periods->n_windows - (periods->n_windows > 0);
	/* without a window: the timer was not seen, or has no hook (see open()) */
	if (has_changed(&state->totals, &event->now))
		add_row(output, event, state, state->until_ns, event->header.end_ns, &event->now);
}

/* ---- processes ---- */

/*
 * A new process: throttling since its start counts, from the recorded windows. An older process was
 * moved from another cgroup since the last scan.
 */
static void begin_state(const struct cpu_throttle_event *event, struct cgroup_state *state)
{
	const struct cpu_throttle_periods *periods = &event->periods;
	uint64_t since = event->header.start_ns, number = oldest_window(periods);

	if (event->header.end_ns - since > NEW_NS && since < last_look_ns)
		since = last_look_ns;
	while (number < periods->n_windows && window_of(periods, number)->end_ns <= since)
		number++;
	state->cgroup_id = event->cgroup_id;
	state->next_window = number;
	state->totals = event->now;
	state->until_ns = event->header.end_ns;
	if (periods->first_ns > since) { /* all, including windows no longer kept */
		state->totals = periods->first;
		state->until_ns = since;
		return;
	}
	if (number == periods->n_windows)
		return;
	state->totals = window_of(periods, number)->before;
	state->until_ns = since;
}

static struct cgroup_state *find_state(const struct cpu_throttle_event *event)
{
	struct cgroup_state wanted = { .key = { event->group, event->header.host_pid } }, *found;

	HASH_FIND(hh, cgroup_states, &wanted.key, sizeof(wanted.key), found);
	if (found && found->cgroup_id == event->cgroup_id)
		return found;
	if (!found) {
		found = calloc(1, sizeof(*found));
		if (!found)
			return NULL; /* retried by the next scan */
		found->key = wanted.key;
		HASH_ADD(hh, cgroup_states, key, sizeof(found->key), found);
	}
	begin_state(event, found);
	return found;
}

static void drop_state(struct cgroup_state *state)
{
	HASH_DEL(cgroup_states, state);
	free(state);
}

void cpu_throttle_take(const struct tracker_output *output, const struct cpu_throttle_event *event)
{
	struct cgroup_state *state = find_state(event);

	if (!state)
		return;
	state->last_scan = n_scans;
	if (output)
		report_periods(output, event, state);
	if (event->ended)
		drop_state(state);
}

/* ---- reading ---- */

static int read_all(const struct tracker_output *output)
{
	AUTO_CLOSE int fd = bpf_iter_create(bpf_link__fd(ask_link));
	static struct cpu_throttle_event events[32];
	ssize_t n;

	if (fd < 0)
		return fd;
	/* a read returns complete records */
	while ((n = read(fd, events, sizeof(events))) > 0 || (n < 0 && errno == EAGAIN)) {
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(events[0]); i++)
			cpu_throttle_take(output, &events[i]);
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
			cpu_throttle_take(output, &event);
		bpf_map_delete_elem(map, &key);
	}
}

/* Removes processes that left a cgroup or lost the quota. */
static void forget_the_absent(void)
{
	struct cgroup_state *state, *next;

	HASH_ITER(hh, cgroup_states, state, next)
	{
		if (n_scans - state->last_scan > 20)
			drop_state(state);
	}
}

static void scan_quotas(const struct tracker_output *output)
{
	uint64_t now = clock_monotonic_ns();
	int err = 0;

	if (!ask_link)
		ask_link = bpf_program__attach_iter(skeleton->progs.cpu_throttle_ask, NULL);
	n_scans++;
	periods_before = skeleton->bss->periods_ended;
	err = ask_link ? read_all(output) : -errno;
	if (err)
		log_ratelimited(&cannot_ask,
				"cpu_throttle: cannot ask for the processes' quotas: %s",
				strerror(-err));
	else
		log_ratelimited_end(&cannot_ask,
				    "cpu_throttle: the processes' quotas are read again");
	last_look_ns = now;
}

/*
 * Nothing is throttled without the end of a quota's period. A scan visits all threads of the host:
 * where no quota is in use there is none.
 */
static bool may_have_quotas(void)
{
	return !has_timer || !skeleton->bss->period_function || cgroup_states ||
	       skeleton->bss->periods_ended != periods_before;
}

static void say_how(const struct tracker_output *output)
{
	struct tracker_health health = {
		.live = has_timer, .method = has_timer ? "timer" : "", .what = "", .reason = ""
	};

	if (!has_timer)
		health.reason = "this kernel has no tracepoint hrtimer_expire_entry: rows span the "
				"one-second interval between two readings";
	output->health(output, &health);
	said_how = true;
}

static void cpu_throttle_tick(const struct tracker_output *output, uint64_t now_ns)
{
	if (!said_how)
		say_how(output);
	if (may_have_quotas())
		scan_quotas(output);
	else
		last_look_ns = now_ns;
	take_ended(output);
	forget_the_absent();
}

static void cpu_throttle_process_appeared(const struct process *process)
{
	(void)process;
	if (may_have_quotas() && clock_monotonic_ns() - last_look_ns >= LOOK_EVERY_NS)
		scan_quotas(NULL);
}

/* ---- open and close ---- */

static int cpu_throttle_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			     struct why *why)
{
	(void)only_chosen; /* only tracked processes are read */
	skeleton = cpu_throttle_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	has_timer = kernel_has("hrtimer_expire_entry");
	said_how = false;
	bpf_program__set_autoload(skeleton->progs.cpu_throttle_timer, has_timer);
	/* iterator: runs on read */
	bpf_program__set_autoattach(skeleton->progs.cpu_throttle_ask, false);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void cpu_throttle_close(void)
{
	struct cgroup_state *state, *next;

	HASH_ITER(hh, cgroup_states, state, next)
	{
		drop_state(state);
	}
	bpf_link__destroy(ask_link);
	ask_link = NULL;
	last_look_ns = periods_before = 0;
	cpu_throttle_bpf__destroy(skeleton);
	skeleton = NULL;
}

static const struct tracker_python python = {
	.appeared = cpu_throttle_process_appeared,
};

const struct tracker cpu_throttle_tracker = {
	.name = "cpu_throttle",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_cpu_throttle", columns),
	TRACKER_ROW(struct cpu_throttle_row),
	.ring_bytes = 1 << 12,
	.python = &python,
	.open = cpu_throttle_open,
	.close = cpu_throttle_close,
	.tick = cpu_throttle_tick,
};
