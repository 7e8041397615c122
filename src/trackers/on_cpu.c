// SPDX-License-Identifier: Apache-2.0
/* on_cpu: which Python code computes, by samples. Sampled in bpf/on_cpu.bpf.c. */
#include "events/on_cpu.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include "on_cpu.skel.h"
#include "rows/stack.h"
#include "trackers/cpu_clocks.h"
#include "trackers/tracker.h"

struct on_cpu_row {
	struct row_common common;
	struct on_cpu_event event;
	struct column_strings py_stack;
};

static const struct column columns[] = {
	COLUMN(COLUMN_U32, struct on_cpu_row, event.cpu, "cpu", "UInt32"),
	COLUMN(COLUMN_STRINGS, struct on_cpu_row, py_stack, "py_stack",
	       "Array(LowCardinality(String))"),
};

static struct on_cpu_bpf *skeleton;
static uint64_t hertz = 19; /* not a divisor of the rates at which programs do things */

static const struct option options[] = {
	{ .key = "on_cpu.hertz",
	  .type = OPTION_UINT,
	  .target = &hertz,
	  .arg = "N",
	  .help = "samples of each CPU a second: a row for each that meets a thread of a Python "
		  "process",
	  .min = 1,
	  .max = 1000 },
};

static int on_cpu_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton, struct why *why)
{
	(void)only_chosen; /* only tracked processes have interpreters in the kernel's map */
	skeleton = on_cpu_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void on_cpu_close(void)
{
	cpu_clocks_close();
	on_cpu_bpf__destroy(skeleton);
	skeleton = NULL;
}

static void on_cpu_tick(const struct tracker_output *output, uint64_t now_ns)
{
	(void)now_ns;
	if (!output->last && !output->out)
		cpu_clocks_tick(output, skeleton->progs.on_cpu_clock, NSEC_PER_SEC / hertz);
}

static void on_cpu_take_out(void)
{
	/* no interval is open: the clocks are given away */
}

static void on_cpu_take_extra(void *row_of, const void *extra, size_t size,
			      struct row_context *context)
{
	static struct stack_texts texts; /* single-threaded: one row at a time */
	struct on_cpu_row *row = row_of;

	row->py_stack = stack_of_event(context, &row->event.header, &row->event.py_stack, extra,
				       size, &texts);
}

static void on_cpu_complete(void *row_of, struct row_context *context)
{
	struct row_common *row = &((struct on_cpu_row *)row_of)->common;

	(void)context;
	row->duration_ns = NSEC_PER_SEC / hertz;
	row->start_ns = row->end_ns - row->duration_ns;
}

static const struct tracker_python python = { .walks_threads = true, .needs_stacks = true };

const struct tracker on_cpu_tracker = {
	.name = "on_cpu",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_on_cpu", columns),
	TRACKER_ROW(struct on_cpu_row),
	.extra_max = PYTHON_STACK_MAX * sizeof(struct python_frame),
	.ring_bytes = 256 << 10,
	.without_durations = true,
	.python = &python,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = on_cpu_open,
	.close = on_cpu_close,
	.tick = on_cpu_tick,
	.give_links = cpu_clocks_give,
	.take_out = on_cpu_take_out,
	.take_extra = on_cpu_take_extra,
	.complete = on_cpu_complete,
};
