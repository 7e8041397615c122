// SPDX-License-Identifier: Apache-2.0
/*
 * gil_wait: waits for the GIL, their duration and holders. Measured in bpf/gil_wait/wait.bpf.h, in
 * the object shared with off_cpu.
 */
#include "events/gil_wait.h"

#include <bpf/bpf.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "rows/enrich.h"
#include "base/clock.h"
#include "cpython/gil.h"
#include "cpython/take_gil.h"
#include "host/uprobe.h"
#include "process/touch.h"
#include "rows/names.h"
#include "rows/stack.h"
#include "trackers/gil_addresses.h"
#include "trackers/own_rows.h"
#include "trackers/sched.h"

struct gil_wait_row {
	struct row_common common;
	struct gil_wait_event event;
	const char *holder_thread_name, *dropper_thread_name;
	struct column_strings holder_py_stack, py_stack;
	struct column_pairs holders;
	struct column_pair holder_pairs[GIL_MAX_HOLDERS];
};

struct gil_profile_row {
	struct row_common common;
	struct gil_profile profile;
	uint32_t holder_tid;
};

/* Limits: threads waiting for a GIL; threads in take_gil(); processes with a held GIL. */
enum { MAX_THREADS_IN_CALLS = 8192, MAX_TAKES = 16384, MAX_TAKERS = 4096 };

static const char *const method_names[] = { "", "sched", "callsite", "uprobe" };
static const char *const holder_members[] = { "tid", "ns", "thread_name" };

#define STACK_TYPE			"Array(LowCardinality(String))"
#define EVENT(kind, member, name, type) COLUMN(kind, struct gil_wait_row, event.member, name, type)
static const struct column columns[] = {
	EVENT(COLUMN_U64, runq_ns, "runq_ns", "UInt64"),
	EVENT(COLUMN_U64, forced_ns, "forced_ns", "UInt64"),
	EVENT(COLUMN_U32, holders[0].tid, "holder_tid", "UInt32"),
	EVENT(COLUMN_U32, holders[0].host_tid, "holder_host_tid", "UInt32"),
	COLUMN(COLUMN_STRING, struct gil_wait_row, holder_thread_name, "holder_thread_name",
	       "LowCardinality(String)"),
	COLUMN(COLUMN_STRINGS, struct gil_wait_row, holder_py_stack, "holder_py_stack", STACK_TYPE),
	COLUMN_PAIRS_NAMED(struct gil_wait_row, holders, "holders",
			   "Array(Tuple(tid UInt32, ns UInt64, thread_name String))",
			   holder_members),
	EVENT(COLUMN_U32, dropper_tid, "dropper_tid", "UInt32"),
	EVENT(COLUMN_U32, dropper_host_tid, "dropper_host_tid", "UInt32"),
	COLUMN(COLUMN_STRING, struct gil_wait_row, dropper_thread_name, "dropper_thread_name",
	       "LowCardinality(String)"),
	EVENT(COLUMN_U32, sleeps, "sleeps", "UInt32"),
	COLUMN(COLUMN_STRINGS, struct gil_wait_row, py_stack, "py_stack", STACK_TYPE),
	COLUMN_NAMED(struct gil_wait_row, event.method, "method", method_names),
};

#define PROFILE(kind, member, type)                                                                \
	COLUMN(kind, struct gil_profile_row, profile.member, #member, type)
static const struct column profile_columns[] = {
	COLUMN(COLUMN_U32, struct gil_profile_row, holder_tid, "holder_tid", "UInt32"),
	PROFILE(COLUMN_U32, holder_host_tid, "UInt32"),
	PROFILE(COLUMN_U64, waits, "UInt64"),
	PROFILE(COLUMN_U64, wait_ns, "UInt64"),
	PROFILE(COLUMN_U64, runq_ns, "UInt64"),
	PROFILE(COLUMN_U64, forced_ns, "UInt64"),
	PROFILE(COLUMN_U64, max_ns, "UInt64"),
};
static const struct table profile_table = TABLE_WITH_COMMON_COLUMNS("ebpf_gil_wait_profile",
								    profile_columns);

static struct sched_bpf *skeleton;
static bool usable[MAX_BINARIES];
static enum gil_method method_of[MAX_BINARIES]; /* method in use */
static struct sched_sums sums;

static uint64_t min_duration_us = 1000, stack_min_us = 1000;
static double stack_cpu_percent = 0.1;
static uint64_t profile_interval_ns = 10 * NSEC_PER_SEC;
static int method = GIL_METHOD_AUTO;
static const char *const methods[] = { "auto", "sched", "callsite", "uprobe", NULL };

static const struct option options[] = {
	{ .key = "gil_wait.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "leave out shorter waits; the profile counts all waits",
	  .reloadable = true },
	{ .key = "gil_wait.stack_min_us",
	  .type = OPTION_UINT,
	  .target = &stack_min_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "waits this long have the Python stacks of waiter and holder" },
	{ .key = "gil_wait.stack_cpu_percent",
	  .type = OPTION_NUMBER,
	  .target = &stack_cpu_percent,
	  .arg = "P",
	  .help = "limit on the share of a process's time for stacks of waits under 10 ms; "
		  "above the limit, waits have no stack; 0: no limit",
	  .max = 100,
	  .reloadable = true },
	{ .key = "gil_wait.profile_interval",
	  .type = OPTION_SECONDS,
	  .target = &profile_interval_ns,
	  .arg = "S",
	  .help = "sum all waits, however short, over this long",
	  .min = 1,
	  .max = 3600 },
	{ .key = "gil_wait.method",
	  .type = OPTION_CHOICE,
	  .target = &method,
	  .arg = "METHOD",
	  .help = "auto, sched, callsite, or uprobe: exact and slow, to compare with",
	  .choices = methods },
};

/* Whether some binaries may use this method. */
static bool uses_method(enum gil_method what)
{
	return method == (int)what || (method == GIL_METHOD_AUTO && what != GIL_METHOD_UPROBE);
}

/* ---- rows ---- */

/* Name of a thread in the waiter's process; '': unknown thread. */
static const char *name_of(struct row_context *context, const struct event_header *waiter,
			   uint32_t tid, uint32_t host_tid, uint64_t ident)
{
	const struct thread_id thread = { .host_pid = waiter->host_pid,
					  .host_tid = host_tid,
					  .pid = waiter->pid,
					  .tid = tid,
					  .ident = ident };

	return host_tid ? names_find(context, &thread, waiter->end_ns) : "";
}

static void gil_wait_complete(void *row_of, struct row_context *context)
{
	struct gil_wait_row *row = row_of;
	const struct gil_wait_event *event = &row->event;
	size_t n = event->n_holders < GIL_MAX_HOLDERS ? event->n_holders : GIL_MAX_HOLDERS;

	for (size_t i = 0; i < n; i++) {
		const struct gil_holder *holder = &event->holders[i];

		row->holder_pairs[i] = (struct column_pair){
			{ holder->tid, holder->ns },
			name_of(context, &event->header, holder->tid, holder->host_tid,
				holder->ident),
		};
	}
	row->holder_thread_name = n ? row->holder_pairs[0].text : "";
	row->dropper_thread_name = name_of(context, &event->header, event->dropper_tid,
					   event->dropper_host_tid, event->dropper_ident);
	row->holders = (struct column_pairs){ row->holder_pairs, n };
}

static void gil_wait_take_extra(void *row_of, const void *extra, size_t size,
				struct row_context *context)
{
	static struct stack_texts waiter, holder; /* single-threaded: one row at a time */
	struct gil_wait_row *row = row_of;
	const struct gil_wait_event *event = &row->event;
	const struct python_frame *frames = extra;

	if ((event->py_stack.n + (size_t)event->holder_py_stack.n) * sizeof(*frames) != size)
		return;
	row->py_stack = stack_resolve(context, event->header.host_pid, event->header.end_ns, frames,
				      &event->py_stack, &waiter);
	row->holder_py_stack = stack_resolve(context, event->header.host_pid, event->header.end_ns,
					     frames + event->py_stack.n, &event->holder_py_stack,
					     &holder);
}

static void fill_profile_row(void *row_of, struct row_context *context)
{
	struct gil_profile_row *row = row_of;

	enrich_sum(context, &row->profile.header, &row->common);
}

void gil_wait_add_sum(const struct tracker_output *output, const struct sched_sums *of,
		      const void *key, const void *value)
{
	struct gil_profile_row row = {
		.holder_tid = ((const struct gil_profile_key *)key)->holder_tid,
		.profile = *(const struct gil_profile *)value,
	};

	row.profile.header.start_ns = of->start_ns;
	row.profile.header.end_ns = of->end_ns;
	output->add(output, &(struct tracker_row){ .table = 1,
						   .row = &row,
						   .size = sizeof(row),
						   .fill = fill_profile_row });
}

/* ---- processes ---- */

static void gil_wait_process_appeared(const struct process *process)
{
	const struct python_binary *binary = process->file.binary;

	gil_addresses_gone(process->host_pid); /* its exit event may have been lost */
	if (binary && usable[binary->id])
		gil_addresses_appeared(skeleton, process,
				       method_of[binary->id] == GIL_METHOD_CALLSITE);
}

static void gil_wait_tick(const struct tracker_output *output, uint64_t now_ns)
{
	gil_addresses_tick();
	if (output->last && !uses_method(GIL_METHOD_UPROBE) && !skeleton->bss->sched_out &&
	    sched_run_on_threads(skeleton->progs.gil_end_waits))
		log_warn("gil_wait: unfinished waits are not reported: %s", strerror(errno));
	sched_sums_tick(&sums, output, now_ns);
}

/* ---- probes ---- */

static int attach_all(const struct python_binary *binary, struct bpf_program *program,
		      const uint64_t *offsets, size_t n, struct link_list *links, struct why *why)
{
	struct uprobe_site sites[UPROBE_MAX_PLACES];
	int err = binary_touch(binary, offsets, n, why);

	if (err)
		return err;
	if (n > UPROBE_MAX_PLACES)
		return why_fail(why, E2BIG, "too many places to probe");
	for (size_t i = 0; i < n; i++)
		sites[i] = (struct uprobe_site){ .file_offset = offsets[i] };
	return uprobe_attach(NULL, program, binary->attach_path, sites, n, links, why);
}

static int attach_take_gil(const struct python_binary *binary, struct link_list *links,
			   struct why *why)
{
	const struct readable_file file = binary_readable(binary);
	struct take_gil_bounds bounds;
	int err = take_gil_find_bounds(&file, &bounds, why);

	/* ends first: no wait may start without a probed end */
	if (!err)
		err = attach_all(binary, skeleton->progs.gil_take_exit, bounds.exit, bounds.n_exit,
				 links, why);
	if (!err)
		err = attach_all(binary, skeleton->progs.gil_take_enter, bounds.entry,
				 bounds.n_entry, links, why);
	return err;
}

static int attach_calls(const struct python_binary *binary, struct link_list *links,
			struct why *why)
{
	const struct readable_file file = binary_readable(binary);
	struct take_gil_waits waits;
	int err = take_gil_find_waits(&file, &waits, why);

	if (!err)
		err = attach_all(binary, skeleton->progs.gil_call_resume, waits.resume, waits.n,
				 links, why);
	if (!err)
		err = attach_all(binary, skeleton->progs.gil_call_enter, waits.call, waits.n, links,
				 why);
	return err;
}

static int gil_wait_attach_binary(const struct python_binary *binary, struct link_list *links,
				  struct why *why)
{
	const struct readable_file file = binary_readable(binary);
	enum gil_method by = (enum gil_method)method;
	bool glibc;
	int err = python_gil_check(&binary->image, &file, &glibc, why);

	if (!err && by == GIL_METHOD_AUTO)
		by = glibc ? GIL_METHOD_SCHED : GIL_METHOD_CALLSITE;
	else if (!err && by == GIL_METHOD_SCHED && !glibc)
		err = why_fail(
			why, ENOTSUP,
			"the process does not use the GNU C library, needed to recognise waits "
			"by condition variables: leave gil_wait.method at 'auto'");
	if (!err && by == GIL_METHOD_UPROBE)
		err = attach_take_gil(binary, links, why);
	else if (!err && by == GIL_METHOD_CALLSITE)
		err = attach_calls(binary, links, why);
	usable[binary->id] = err == 0;
	method_of[binary->id] = by;
	return err;
}

static const char *gil_wait_binary_method(const struct python_binary *binary)
{
	return method_names[method_of[binary->id]];
}

/* ---- open and close ---- */

static void gil_wait_quiet(void)
{
	skeleton->bss->gil_end_ns = clock_monotonic_ns();
}

static void gil_wait_take_out(void)
{
	sched_take_out(&skeleton->bss->gil_wait_out);
}

static uint64_t gil_wait_put_back(void)
{
	skeleton->bss->gil_wait_since_ns = clock_monotonic_ns();
	sched_put_back(&skeleton->bss->gil_wait_out);
	return 0;
}

static void gil_wait_options_changed(void)
{
	skeleton->bss->gil_wait_min_ns = min_duration_us * NSEC_PER_USEC;
	skeleton->bss->gil_stack_share_ppm = (uint64_t)(stack_cpu_percent * 10000);
}

/* Probes of take_gil() and of the calls in take_gil(). */
static void prepare_probes(void)
{
	bool callsite = uses_method(GIL_METHOD_CALLSITE), uprobe = uses_method(GIL_METHOD_UPROBE);
	const struct {
		struct bpf_program *program;
		bool wanted;
	} probes[] = {
		{ skeleton->progs.gil_call_enter, callsite },
		{ skeleton->progs.gil_call_resume, callsite },
		{ skeleton->progs.gil_take_enter, uprobe },
		{ skeleton->progs.gil_take_exit, uprobe },
	};

	for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
		bpf_program__set_autoload(probes[i].program, probes[i].wanted);
		uprobe_prepare(probes[i].program);
	}
}

static void choose_programs(void)
{
	bool callsite = uses_method(GIL_METHOD_CALLSITE), uprobe = uses_method(GIL_METHOD_UPROBE);

	if (uses_method(GIL_METHOD_SCHED))
		sched_watch_switches();
	if (callsite)
		bpf_map__set_max_entries(skeleton->maps.gil_calls, MAX_THREADS_IN_CALLS);
	if (uprobe) {
		bpf_map__set_max_entries(skeleton->maps.gil_takes, MAX_TAKES);
		bpf_map__set_max_entries(skeleton->maps.gil_takers, MAX_TAKERS);
		bpf_map__set_max_entries(skeleton->maps.gil_turns, MAX_TAKES);
	}
	prepare_probes();
	bpf_program__set_autoload(skeleton->progs.gil_end_waits, !uprobe);
	bpf_program__set_autoattach(skeleton->progs.gil_end_waits, false);
}

static int gil_wait_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			 struct why *why)
{
	int err;

	(void)only_chosen; /* only tracked processes have GIL addresses */
	err = sched_open(&skeleton, why);
	if (err)
		return err;
	skeleton->rodata->gil_wait_runs = uses_method(GIL_METHOD_SCHED);
	skeleton->rodata->gil_callsite_runs = uses_method(GIL_METHOD_CALLSITE);
	gil_wait_options_changed();
	skeleton->rodata->gil_stack_min_ns = stack_min_us * NSEC_PER_USEC;
	choose_programs();
	sums = (struct sched_sums){
		.maps = { skeleton->maps.gil_profile_0, skeleton->maps.gil_profile_1 },
		.side = &skeleton->bss->gil_active_profile,
		.interval_ns = profile_interval_ns,
		.each = gil_wait_add_sum,
	};
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void gil_wait_close(void)
{
	gil_addresses_done();
	if (skeleton)
		sched_close();
	skeleton = NULL;
}

static const struct tracker_python python = {
	.walks_threads = true,
	.attach = gil_wait_attach_binary,
	.method = gil_wait_binary_method,
	.appeared = gil_wait_process_appeared,
	.gone = gil_addresses_gone,
	.quiet = gil_wait_quiet,
};

const struct tracker gil_wait_tracker = {
	.name = "gil_wait",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_gil_wait", columns),
	.second_table = &profile_table,
	TRACKER_ROW(struct gil_wait_row),
	.extra_max = 2 * PYTHON_STACK_MAX * sizeof(struct python_frame),
	.ring_bytes = 1 << 20,
	.shed_rank = 1,
	.program_prefix = "gil_",
	.python = &python,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = gil_wait_open,
	.options_changed = gil_wait_options_changed,
	.close = gil_wait_close,
	.tick = gil_wait_tick,
	.take_out = gil_wait_take_out,
	.put_back = gil_wait_put_back,
	.take_extra = gil_wait_take_extra,
	.complete = gil_wait_complete,
};
