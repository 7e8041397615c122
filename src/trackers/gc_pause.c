// SPDX-License-Identifier: Apache-2.0
/*
 * gc_pause: duration and cause of collections. Attaches to each Python binary; measured in
 * bpf/gc_pause.bpf.c.
 */
#include "events/gc_pause.h"

#include <bpf/bpf.h>
#include <string.h>

#include "gc_clock.h"
#include "gc_pause.skel.h"
#include "host/kernel.h"
#include "host/uprobe.h"
#include "process/touch.h"
#include "rows/stack.h"
#include "trackers/sched.h"
#include "trackers/tracker.h"

struct gc_pause_row {
	struct row_common common;
	struct gc_pause_event event;
	struct column_maybe_u64 long_lived, frozen_threads;
	struct column_strings py_stack;
};

static const char *const reason_names[GC_REASON_MAX] = { "", "heap", "shutdown", "manual" };
static const char *const method_names[] = { "", "usdt", "symbol", "scan" };

#define EVENT(kind, member, type) COLUMN(kind, struct gc_pause_row, event.member, #member, type)
static const struct column columns[] = {
	EVENT(COLUMN_S8, generation, "Int8"),
	COLUMN_NAMED(struct gc_pause_row, event.reason, "reason", reason_names),
	EVENT(COLUMN_U64, collected, "UInt64"),
	EVENT(COLUMN_U64, uncollectable, "UInt64"),
	COLUMN(COLUMN_MAYBE_U64, struct gc_pause_row, long_lived, "long_lived", "Nullable(UInt64)"),
	COLUMN(COLUMN_MAYBE_U64, struct gc_pause_row, frozen_threads, "frozen_threads",
	       "Nullable(UInt32)"),
	EVENT(COLUMN_U32, sibling_threads, "UInt32"),
	COLUMN(COLUMN_STRINGS, struct gc_pause_row, py_stack, "py_stack",
	       "Array(LowCardinality(String))"),
	COLUMN_NAMED(struct gc_pause_row, event.method, "method", method_names),
};

static struct gc_pause_bpf *skeleton;
static uint64_t min_duration_us, stack_min_us = 1000;
static bool probed[MAX_BINARIES]; /* written by the worker before the process is known */

static const struct option options[] = {
	{ .key = "gc_pause.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "leave out shorter collections; 0: a row for every collection",
	  .reloadable = true },
	{ .key = "gc_pause.stack_min_us",
	  .type = OPTION_UINT,
	  .target = &stack_min_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "collections this long have the triggering Python stack" },
};

static void gc_pause_options_changed(void)
{
	skeleton->bss->min_duration_ns = min_duration_us * NSEC_PER_USEC;
}

static int gc_pause_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			 struct why *why)
{
	skeleton = gc_pause_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	skeleton->rodata->has_attach_cookie = kernel_has("attach_cookie");
	skeleton->rodata->only_chosen = only_chosen;
	gc_pause_options_changed();
	skeleton->rodata->stack_min_ns = stack_min_us * NSEC_PER_USEC;
	uprobe_prepare(skeleton->progs.gc_pause_enter);
	uprobe_prepare(skeleton->progs.gc_pause_exit);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void gc_pause_close(void)
{
	gc_pause_bpf__destroy(skeleton);
	skeleton = NULL;
}

/* A binary's sites are consecutive in the map, indexed by its id. */
enum { SITES_PER_BINARY = PYTHON_MAX_GC_ENTRIES + PYTHON_MAX_GC_EXITS };

static int note_site(const struct python_binary *binary, const struct probe_site *site,
		     uint32_t index, struct uprobe_site *ret_uprobe, struct why *why)
{
	struct gc_site entry = {
		.va = site->va,
		.arg_value = site->arg.value,
		.binary_id = binary->id,
		.arg_place = site->arg.place,
		.arg_reg = site->arg.reg_index,
		.arg_size = site->arg.size,
		.method = (uint8_t)binary->image.gc_method,
		.reason_reg = site->reason_reg,
	};

	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.gc_pause_sites), &index, &entry,
				BPF_ANY))
		return why_fail(why, errno, "cannot note a probe site: %s", strerror(errno));
	*ret_uprobe = (struct uprobe_site){
		.file_offset = site->file_offset,
		.ref_ctr_offset = site->ref_ctr_offset,
		.cookie = index,
	};
	return 0;
}

/* `index`: first site in the map. */
static int attach_sites(const struct python_binary *binary, const struct probe_site *sites,
			uint32_t n, uint32_t index, struct bpf_program *program,
			struct link_list *links, struct why *why)
{
	const struct uprobe_object object = {
		.skeleton = skeleton->skeleton,
		.rodata = skeleton->rodata,
		.constant_cookie = (const uint64_t *)&skeleton->rodata->constant_cookie,
	};
	struct uprobe_site uprobes[SITES_PER_BINARY];
	uint64_t touched[2 * SITES_PER_BINARY];
	int err = 0;

	for (uint32_t i = 0; !err && i < n; i++) {
		err = note_site(binary, &sites[i], index + i, &uprobes[i], why);
		touched[2 * i] = sites[i].file_offset;
		touched[2 * i + 1] = sites[i].ref_ctr_offset;
	}
	if (!err)
		err = binary_touch(binary, touched, 2 * (size_t)n, why);
	return err ? err
		   : uprobe_attach(&object, program, binary->attach_path, uprobes, n, links, why);
}

static int gc_pause_attach_binary(const struct python_binary *binary, struct link_list *links,
				  struct why *why)
{
	const struct python_image *image = &binary->image;
	struct gc_binary description = { .runtime_va = image->runtime_va,
					 .offsets = binary->offsets };
	uint32_t index = binary->id * SITES_PER_BINARY;
	int err;

	if (image->gc_method == GC_METHOD_NONE)
		return why_fail(why, ENOTSUP, "%.500s", image->gc_why.text);
	if (index + SITES_PER_BINARY > bpf_map__max_entries(skeleton->maps.gc_pause_sites) ||
	    binary->id >= bpf_map__max_entries(skeleton->maps.gc_pause_binary))
		return why_fail(why, ENOSPC, "too many Python binaries at once");
	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.gc_pause_binary), &binary->id,
				&description, BPF_ANY))
		return why_fail(why, errno, "cannot describe the binary: %s", strerror(errno));
	probed[binary->id] = true;
	/* ends first: no collection may start without a probed end */
	err = attach_sites(binary, image->gc_exit, image->n_gc_exit, index,
			   skeleton->progs.gc_pause_exit, links, why);
	return err ? err
		   : attach_sites(binary, image->gc_entry, image->n_gc_entry,
				  index + image->n_gc_exit, skeleton->progs.gc_pause_enter, links,
				  why);
}

/* A process started in between gets new probes: prevents two rows per collection. */
static void gc_pause_leave_binary(const struct python_binary *binary)
{
	const struct gc_site none = { .method = GC_METHOD_NONE };
	uint32_t index = binary->id * SITES_PER_BINARY;

	for (uint32_t i = 0; i < SITES_PER_BINARY; i++, index++)
		bpf_map_update_elem(bpf_map__fd(skeleton->maps.gc_pause_sites), &index, &none,
				    BPF_ANY);
}

/* An entry tells that the process's collections are seen (bpf/python/gc_clock.bpf.h). */
static void gc_pause_process_appeared(const struct process *process)
{
	const struct gc_clock none = { 0 };
	const struct python_binary *binary = process->file.binary;

	if (binary && probed[binary->id])
		bpf_map_update_elem(bpf_map__fd(skeleton->maps.gc_clocks), &process->host_pid,
				    &none, BPF_NOEXIST);
}

static void gc_pause_process_gone(uint32_t host_pid)
{
	bpf_map_delete_elem(bpf_map__fd(skeleton->maps.gc_clocks), &host_pid);
}

static void gc_pause_quiet(void)
{
	skeleton->bss->stopping = true;
}

/* The probes report the end of every collection with a seen begin: nothing is dropped. */
static void gc_pause_take_out(void)
{
	skeleton->bss->out = true;
	sched_gc_pause_out(true);
}

static uint64_t gc_pause_put_back(void)
{
	skeleton->bss->out = false;
	sched_gc_pause_out(false);
	return 0;
}

static const char *gc_pause_binary_method(const struct python_binary *binary)
{
	return method_names[binary->image.gc_method];
}

static void gc_pause_take_extra(void *row_of, const void *extra, size_t size,
				struct row_context *context)
{
	static struct stack_texts texts; /* single-threaded: one row at a time */
	struct gc_pause_row *row = row_of;
	const struct gc_pause_event *event = &row->event;

	row->py_stack = stack_of_event(context, &event->header, &event->stack, extra, size, &texts);
}

static void gc_pause_complete(void *row_of, struct row_context *context)
{
	struct gc_pause_row *row = row_of;

	(void)context;
	row->long_lived = (struct column_maybe_u64){
		.value = row->event.long_lived,
		.known = row->event.long_lived_known,
	};
	row->frozen_threads = (struct column_maybe_u64){
		.value = row->event.frozen_threads,
		.known = !row->event.frozen_unknown,
	};
}

static const struct tracker_python python = {
	.attach = gc_pause_attach_binary,
	.method = gc_pause_binary_method,
	.leave = gc_pause_leave_binary,
	.appeared = gc_pause_process_appeared,
	.gone = gc_pause_process_gone,
	.quiet = gc_pause_quiet,
};

const struct tracker gc_pause_tracker = {
	.name = "gc_pause",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_gc_pause", columns),
	TRACKER_ROW(struct gc_pause_row),
	.extra_max = PYTHON_STACK_MAX * sizeof(struct python_frame),
	.ring_bytes = 1 << 20,
	.python = &python,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = gc_pause_open,
	.options_changed = gc_pause_options_changed,
	.take_out = gc_pause_take_out,
	.put_back = gc_pause_put_back,
	.complete = gc_pause_complete,
	.close = gc_pause_close,
	.take_extra = gc_pause_take_extra,
};
