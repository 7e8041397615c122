// SPDX-License-Identifier: Apache-2.0
/* loop_stall: how long an event loop did not poll, and why. Measured in bpf/loop_stall.bpf.c. */
#include "events/loop_stall.h"

#include <bpf/bpf.h>
#include <string.h>

#include "host/kernel.h"
#include "loop_stall.skel.h"
#include "rows/stack.h"
#include "trackers/loop_metrics.h"
#include "trackers/loop_watch.h"
#include "trackers/take_out.h"

struct loop_stall_row {
	struct row_common common;
	struct loop_stall_event event;
	uint64_t cpu_ns;
	struct column_maybe_u64 part_ns[LOOP_PARTS];
	struct column_maybe_u64 waiting, stack_at_ns;
	struct column_strings py_stack;
};

static const char *const kind_names[LOOP_KIND_MAX] = { "", "asyncio", "uvloop", "gevent", "trio" };

#define ROW(kind, member, name, type) COLUMN(kind, struct loop_stall_row, member, name, type)
#define MAYBE(member, name)	      ROW(COLUMN_MAYBE_U64, member, name, "Nullable(UInt64)")
static const struct column columns[] = {
	COLUMN_NAMED(struct loop_stall_row, event.kind, "loop", kind_names),
	ROW(COLUMN_U64, cpu_ns, "cpu_ns", "UInt64"),
	ROW(COLUMN_U64, event.runq_ns, "runq_ns", "UInt64"),
	MAYBE(part_ns[LOOP_GIL], "gil_ns"),
	MAYBE(part_ns[LOOP_LOCK], "lock_ns"),
	MAYBE(part_ns[LOOP_NET], "net_ns"),
	MAYBE(part_ns[LOOP_DISK], "disk_ns"),
	MAYBE(part_ns[LOOP_SLEEP], "sleep_ns"),
	ROW(COLUMN_U64, event.part_ns[LOOP_OTHER], "other_ns", "UInt64"),
	MAYBE(waiting, "waiting"),
	MAYBE(stack_at_ns, "stack_at_ns"),
	ROW(COLUMN_STRINGS, py_stack, "py_stack", "Array(LowCardinality(String))"),
};

static struct loop_stall_bpf *skeleton;
static uint64_t min_duration_us = 100000; /* asyncio's slow_callback_duration */
static double stack_cpu_percent = 1;

static const struct option options[] = {
	{ .key = "loop_stall.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "leave out shorter stalls; 0: a row for every turn of every loop",
	  .reloadable = true },
	{ .key = "loop_stall.stack_cpu_percent",
	  .type = OPTION_NUMBER,
	  .target = &stack_cpu_percent,
	  .arg = "P",
	  .help = "limit on the share of a loop thread's time for the Python stacks of its "
		  "sleeps; 0: no limit",
	  .max = 100,
	  .reloadable = true },
};

static void loop_stall_options_changed(void)
{
	skeleton->bss->min_duration_ns = min_duration_us * NSEC_PER_USEC;
	skeleton->bss->loop_stack_share_ppm = (uint64_t)(stack_cpu_percent * 10000);
}

/* Tracepoints of single system calls; epoll_wait() does not exist on all machines. */
static bool choose_syscalls(void)
{
	bool wait = kernel_has("sys_enter_epoll_wait") && kernel_has("sys_exit_epoll_wait");
	bool pwait = kernel_has("sys_enter_epoll_pwait") && kernel_has("sys_exit_epoll_pwait") &&
		     kernel_has("sys_exit_epoll_create1");
#ifdef __x86_64__
	bool all = wait && pwait;
#else
	bool all = pwait;
#endif

	bpf_program__set_autoload(skeleton->progs.loop_enter_wait, all && wait);
	bpf_program__set_autoload(skeleton->progs.loop_exit_wait, all && wait);
	bpf_program__set_autoload(skeleton->progs.loop_enter_pwait, all);
	bpf_program__set_autoload(skeleton->progs.loop_exit_pwait, all);
	bpf_program__set_autoload(skeleton->progs.loop_exit_create, all);
	return all;
}

static int loop_stall_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			   struct why *why)
{
	bool cheap;

	(void)only_chosen; /* only tracked processes have interpreters in the kernel's map */
	skeleton = loop_stall_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	loop_stall_options_changed();
	cheap = choose_syscalls();
	bpf_program__set_autoload(skeleton->progs.loop_enter, !cheap);
	bpf_program__set_autoload(skeleton->progs.loop_exit, !cheap);
	loop_watch_open(skeleton);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void loop_stall_close(void)
{
	loop_watch_close();
	loop_stall_bpf__destroy(skeleton);
	skeleton = NULL;
	loop_metrics_stop();
}

/* A stall that just exceeds the threshold has had two samples at least. */
static uint64_t clock_period_ns(void)
{
	const uint64_t least = 5 * NSEC_PER_MSEC, most = 10 * NSEC_PER_MSEC;
	uint64_t period = min_duration_us * NSEC_PER_USEC / 4;

	return period < least ? least : period > most ? most : period;
}

static void loop_stall_tick(const struct tracker_output *output, uint64_t now_ns)
{
	(void)now_ns;
	if (output->out)
		return;
	loop_watch_tick(output, clock_period_ns());
}

static void loop_stall_take_out(void)
{
	loop_watch_none();
}

static bool is_busy(const void *value)
{
	return ((const struct loop_thread *)value)->busy_ns != 0;
}

static uint64_t loop_stall_put_back(void)
{
	map_forget(skeleton->maps.loop_made, NULL);
	map_forget(skeleton->maps.loop_stacks, NULL);
	return map_forget(skeleton->maps.loop_threads, is_busy);
}

static void loop_stall_expose(struct exposition *to)
{
	loop_metrics_expose(to, bpf_map__fd(skeleton->maps.loop_threads));
}

/*
 * The parts come from three clocks of the kernel, which differ by microseconds: their sum may
 * exceed the duration of a stall without CPU time. The largest part gives way.
 */
static uint64_t fit_parts(struct loop_stall_event *event)
{
	uint64_t duration = event->header.end_ns - event->header.start_ns, sum = event->runq_ns;
	__u64 *largest = &event->runq_ns;

	for (int i = 0; i < LOOP_PARTS; i++) {
		sum += event->part_ns[i];
		if (event->part_ns[i] > *largest)
			largest = &event->part_ns[i];
	}
	if (sum <= duration)
		return duration - sum;
	*largest -= *largest < sum - duration ? *largest : sum - duration;
	return 0;
}

static void loop_stall_complete(void *row_of, struct row_context *context)
{
	struct loop_stall_row *row = row_of;
	struct loop_stall_event *event = &row->event;

	(void)context;
	row->cpu_ns = fit_parts(event);
	for (int i = 0; i < LOOP_PARTS; i++)
		row->part_ns[i] = (struct column_maybe_u64){ event->part_ns[i], event->split };
	row->part_ns[LOOP_GIL].known = event->split && event->gil_known;
	row->waiting = (struct column_maybe_u64){ event->waiting, event->waiting_known };
	row->stack_at_ns = (struct column_maybe_u64){ event->stack_at_ns, row->py_stack.n };
	if (exposition_served)
		loop_metrics_add_row(&row->common, event);
}

static void loop_stall_take_extra(void *row_of, const void *extra, size_t size,
				  struct row_context *context)
{
	static struct stack_texts texts; /* single-threaded: one row at a time */
	struct loop_stall_row *row = row_of;
	const struct loop_stall_event *event = &row->event;

	row->py_stack = stack_of_event(context, &event->header, &event->py_stack, extra, size,
				       &texts);
}

static const struct tracker_python python = { .walks_threads = true, .needs_stacks = true };

const struct tracker loop_stall_tracker = {
	.name = "loop_stall",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_loop_stall", columns),
	TRACKER_ROW(struct loop_stall_row),
	.extra_max = PYTHON_STACK_MAX * sizeof(struct python_frame),
	.ring_bytes = 512 << 10,
	.python = &python,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = loop_stall_open,
	.options_changed = loop_stall_options_changed,
	.close = loop_stall_close,
	.tick = loop_stall_tick,
	.take_out = loop_stall_take_out,
	.put_back = loop_stall_put_back,
	.expose = loop_stall_expose,
	.take_extra = loop_stall_take_extra,
	.complete = loop_stall_complete,
};
