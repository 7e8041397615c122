// SPDX-License-Identifier: Apache-2.0
/*
 * off_cpu: intervals off the CPU with cause, duration and waker. Measured in
 * bpf/off_cpu/interval.bpf.h, in the object shared with gil_wait; stacks are resolved here.
 */
#include "events/off_cpu.h"

#include <bpf/bpf.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/log.h"
#include "base/util.h"
#include "rows/enrich.h"
#include "rows/stack.h"
#include "rows/symbols.h"
#include "trackers/off_cpu_names.h"
#include "trackers/off_cpu_stacks.h"
#include "trackers/own_rows.h"
#include "trackers/sched.h"
#include "trackers/sched_return.h"

struct off_cpu_row {
	struct row_common common;
	struct off_cpu_event event;
	struct off_cpu_names names;
};

struct off_cpu_profile_row {
	struct row_common common;
	struct off_cpu_profile profile;
	struct off_cpu_names names;
	uint64_t py_stack; /* key in the kernel's map; 0: none */
};

static const char *const cause_names[OFF_CPU_CAUSE_MAX] = {
#define X(name) #name,
	OFF_CPU_CAUSES(X)
#undef X
};

#define LOW_STRING "LowCardinality(String)"
#define STACK_TYPE "Array(LowCardinality(String))"
/* Columns about cause and waker, for a row with a member `event`. */
#define WHY_COLUMNS(row, event)                                                                    \
	COLUMN(COLUMN_CHARS, row, names.state, "state", LOW_STRING),                               \
		COLUMN_NAMED(row, event.off.cause, "cause", cause_names),                          \
		COLUMN(COLUMN_U8, row, event.off.idle, "idle", "UInt8"),                           \
		COLUMN(COLUMN_STRING, row, names.syscall, "syscall", LOW_STRING),                  \
		COLUMN(COLUMN_STRINGS, row, names.kernel_stack, "kernel_stack", STACK_TYPE),       \
		COLUMN(COLUMN_STRINGS, row, names.user_stack, "user_stack", STACK_TYPE),           \
		COLUMN(COLUMN_STRINGS, row, names.py_stack, "py_stack", STACK_TYPE),               \
		COLUMN(COLUMN_U32, row, event.off.waker.pid, "waker_pid", "UInt32"),               \
		COLUMN(COLUMN_U32, row, event.off.waker.tid, "waker_tid", "UInt32"),               \
		COLUMN(COLUMN_U32, row, event.off.waker.host_tid, "waker_host_tid", "UInt32"),     \
		COLUMN(COLUMN_CHARS, row, event.off.waker.comm, "waker_comm", LOW_STRING),         \
		COLUMN(COLUMN_STRING, row, names.waker_thread_name, "waker_thread_name",           \
		       LOW_STRING),                                                                \
		COLUMN(COLUMN_STRINGS, row, names.waker_stack, "waker_stack", STACK_TYPE)

static const struct column columns[] = {
	COLUMN(COLUMN_U64, struct off_cpu_row, event.runq_ns, "runq_ns", "UInt64"),
	WHY_COLUMNS(struct off_cpu_row, event),
	COLUMN(COLUMN_U32, struct off_cpu_row, event.cpu, "cpu", "UInt32"),
	COLUMN(COLUMN_U64, struct off_cpu_row, event.off.lock, "lock_address", "UInt64"),
};

#define SUM(member)                                                                                \
	COLUMN(COLUMN_U64, struct off_cpu_profile_row, profile.sum.member, #member, "UInt64")
static const struct column profile_columns[] = {
	SUM(count),  SUM(off_ns), SUM(runq_ns),
	SUM(min_ns), SUM(max_ns), WHY_COLUMNS(struct off_cpu_profile_row, profile.first),
};
static const struct table profile_table = TABLE_WITH_COMMON_COLUMNS("ebpf_off_cpu_profile",
								    profile_columns);

static struct sched_bpf *skeleton;
static struct sched_sums sums;
static struct log_limit no_room;

static uint64_t min_duration_us = 10000;
static uint64_t profile_interval_ns = 10 * NSEC_PER_SEC;
static uint64_t profile_entries = 4096;
static uint64_t profile_stack_us = 20000;
enum { SAMPLES_IN_TIME = 4 }; /* at most, of a CPU, for the time that one stands for */
static uint64_t max_threads = 16384;
static uint64_t ring_kib = 2048;
static bool all_threads;
static bool user_stacks = true;
static bool py_stacks = true;
static char *cgroup;

static const struct option options[] = {
	{ .key = "off_cpu.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "leave out shorter intervals; the profile counts all intervals",
	  .reloadable = true },
	{ .key = "off_cpu.all",
	  .type = OPTION_BOOL,
	  .target = &all_threads,
	  .help = "follow all threads of the host, not only threads of tracked processes" },
	{ .key = "off_cpu.cgroup",
	  .type = OPTION_STRING,
	  .target = &cgroup,
	  .arg = "PATH",
	  .help = "follow also the threads of this cgroup (a directory) and of all cgroups below" },
	{ .key = "off_cpu.user_stacks",
	  .type = OPTION_BOOL,
	  .target = &user_stacks,
	  .help = "take native stacks, by frame pointers" },
	{ .key = "off_cpu.py_stacks",
	  .type = OPTION_BOOL,
	  .target = &py_stacks,
	  .help = "rows have the Python stack; sums have a sampled stack" },
	{ .key = "off_cpu.profile_interval",
	  .type = OPTION_SECONDS,
	  .target = &profile_interval_ns,
	  .arg = "S",
	  .help = "sum all intervals, however short, over this long",
	  .min = 1,
	  .max = 3600 },
	{ .key = "off_cpu.profile_entries",
	  .type = OPTION_UINT,
	  .target = &profile_entries,
	  .arg = "N",
	  .help = "sums kept in the kernel at once (2 KiB each); the rest is summed by cause",
	  .min = 16,
	  .max = 1 << 20 },
	{ .key = "off_cpu.profile_stack_us",
	  .type = OPTION_UINT,
	  .target = &profile_stack_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "take a Python stack for a sum when this much of its time has none; less costs "
		  "more",
	  .min = 100,
	  .max = 3600 * 1000000ULL },
	{ .key = "off_cpu.ring_kib",
	  .type = OPTION_UINT,
	  .target = &ring_kib,
	  .arg = "KIB",
	  .unit = UNIT_KIB,
	  .help = "ring buffer, rounded up to a power of two; events without room are counted "
		  "as lost",
	  .min = 64,
	  .max = 1 << 20 },
	{ .key = "off_cpu.max_threads",
	  .type = OPTION_UINT,
	  .target = &max_threads,
	  .arg = "N",
	  .help = "threads followed at once, on kernels without task storage; threads without "
		  "room are counted as lost",
	  .min = 64,
	  .max = 1 << 22 },
};

/* ---- rows ---- */

static void off_cpu_complete(void *row_of, struct row_context *context)
{
	struct off_cpu_row *row = row_of;

	off_cpu_fill_names(context, &row->event, &row->names);
	off_cpu_judge_idle(context, &row->event.header, row->event.header.end_ns, &row->event.off,
			   &row->names);
}

static void fill_profile_row(void *row_of, struct row_context *context)
{
	struct off_cpu_profile_row *row = row_of;
	struct event_header *header = &row->profile.first.header;
	uint64_t end_ns = header->end_ns;
	uint64_t last_ns = enrich_sum_last_ns(context, header);
	bool unnamed;

	enrich_sum(context, header, &row->common);
	/* the process may have ended since: the waker is looked up for the start */
	header->end_ns = header->start_ns;
	unnamed = context->unnamed;
	off_cpu_fill_names(context, &row->profile.first, &row->names);
	row->names.py_stack = off_cpu_stack_of(context, row->py_stack, header->host_pid, last_ns);
	off_cpu_judge_idle(context, header, last_ns, &row->profile.first.off, &row->names);
	header->end_ns = end_ns;
	off_cpu_name_late_waker(context, &row->profile.first, unnamed, &row->names);
}

void off_cpu_add_sum(const struct tracker_output *output, const struct sched_sums *of,
		     const void *key, const void *value)
{
	const struct off_cpu_profile_key *by = key; /* other fields come from the first interval */
	struct off_cpu_profile_row row = { .profile = *(const struct off_cpu_profile *)value };
	struct event_header *header = &row.profile.first.header;

	if (!row.profile.sum.count &&
	    !row.profile.sum.off_ns) /* all time is attributed to stacks */
		return;
	row.py_stack = by ? by->py_stack : 0;
	header->start_ns = of->start_ns;
	header->end_ns = of->end_ns;
	output->add(output, &(struct tracker_row){ .table = 1,
						   .row = &row,
						   .size = sizeof(row),
						   .fill = fill_profile_row });
}

static void add_sum(struct off_cpu_sum *to, const struct off_cpu_sum *more)
{
	if (!to->count || more->min_ns < to->min_ns)
		to->min_ns = more->min_ns;
	if (more->max_ns > to->max_ns)
		to->max_ns = more->max_ns;
	to->count += more->count;
	to->off_ns += more->off_ns;
	to->runq_ns += more->runq_ns;
}

/* Sums the per-CPU values of `key` and resets them. */
static void take_rest(uint32_t key, struct off_cpu_sum *ret)
{
	static const struct off_cpu_sum nothing;
	int n_cpus = libbpf_num_possible_cpus(),
	    fd = bpf_map__fd(skeleton->maps.off_cpu_profile_overflow);
	AUTO_FREE struct off_cpu_sum *sums_of_cpus = NULL;

	*ret = nothing;
	if (n_cpus <= 0)
		return;
	sums_of_cpus = calloc((size_t)n_cpus, sizeof(*sums_of_cpus));
	if (!sums_of_cpus || bpf_map_lookup_elem(fd, &key, sums_of_cpus))
		return;
	for (int cpu = 0; cpu < n_cpus; cpu++) {
		if (sums_of_cpus[cpu].count)
			add_sum(ret, &sums_of_cpus[cpu]);
	}
	memset(sums_of_cpus, 0, (size_t)n_cpus * sizeof(*sums_of_cpus));
	if (ret->count)
		bpf_map_update_elem(fd, &key, sums_of_cpus, BPF_ANY);
}

/* Overflow rows without process, one per cause. */
static void add_rest(const struct tracker_output *output, const struct sched_sums *of,
		     uint32_t side)
{
	uint64_t count = 0;

	off_cpu_stacks_drained();
	for (uint8_t cause = 0; cause < OFF_CPU_CAUSE_MAX; cause++) {
		struct off_cpu_profile rest = { .first.off.cause = cause,
						.first.off.syscall = -1,
						.first.header.cgroup_id = 1 };

		take_rest(side * OFF_CPU_CAUSE_MAX + cause, &rest.sum);
		count += rest.sum.count;
		if (rest.sum.count)
			off_cpu_add_sum(output, of, NULL, &rest);
	}
	if (count)
		log_ratelimited(
			&no_room,
			"off_cpu: the profile has %llu interval%s without thread and stack, for "
			"lack of room: raise off_cpu.profile_entries (%llu)",
			(unsigned long long)count, plural(count),
			(unsigned long long)profile_entries);
}

static void off_cpu_take_extra(void *row_of, const void *extra, size_t size,
			       struct row_context *context)
{
	static struct stack_texts texts; /* one row is made at a time */
	struct off_cpu_row *row = row_of;
	const struct off_cpu_event *event = &row->event;

	row->names.py_stack = stack_of_event(context, &event->header, &event->py_stack, extra, size,
					     &texts);
}

static void off_cpu_process_appeared(const struct process *process)
{
	symbols_process_appeared(process->host_pid);
}

static void off_cpu_process_gone(uint32_t host_pid)
{
	symbols_process_gone(host_pid);
}

static void off_cpu_tick(const struct tracker_output *output, uint64_t now_ns)
{
	sched_return_tick(skeleton, output);
	sched_sums_tick(&sums, output, now_ns);
}

/* ---- open and close ---- */

static bool is_cgroup(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* The path as given, or relative to the mount of the unified hierarchy. */
static int find_cgroup(const char *path, char *ret, size_t size, struct why *why)
{
	static const char *const roots[] = { "", "/sys/fs/cgroup/", "/sys/fs/cgroup/unified/" };

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		snprintf(ret, size, "%s%s", roots[i], path);
		if (is_cgroup(ret))
			return 0;
	}
	return why_fail(why, EINVAL,
			"off_cpu.cgroup: there is no cgroup '%s' in the unified hierarchy", path);
}

/* A cgroup's id is the inode number of its directory; its level is the depth. */
static int choose_cgroup(const char *path, struct why *why)
{
	char full[PATH_MAX], real[PATH_MAX];
	struct stat st;
	uint32_t level = 0;
	int err = find_cgroup(path, full, sizeof(full), why);

	if (err)
		return err;
	if (!realpath(full, real) || stat(real, &st))
		return why_fail(why, errno, "off_cpu.cgroup: %s: %s", full, strerror(errno));
	for (char *end; (end = strrchr(real, '/')) && end != real; level++) {
		*end = 0;
		if (!is_cgroup(real))
			break;
	}
	skeleton->rodata->off_cpu_cgroup_id = st.st_ino;
	skeleton->rodata->off_cpu_cgroup_level = level;
	return 0;
}

static void off_cpu_options_changed(void)
{
	skeleton->bss->off_cpu_min_ns = min_duration_us * NSEC_PER_USEC;
}

static int off_cpu_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			struct why *why)
{
	int err = sched_open(&skeleton, why);

	if (err)
		return err;
	if (cgroup)
		err = choose_cgroup(cgroup, why);
	if (err)
		return err;
	sched_watch_switches();
	skeleton->rodata->off_cpu_runs = true;
	off_cpu_options_changed();
	skeleton->rodata->off_cpu_user_stacks = user_stacks;
	skeleton->rodata->off_cpu_py_stacks = py_stacks;
	skeleton->rodata->off_cpu_sample_ns = profile_stack_us * 1000;
	skeleton->rodata->off_cpu_sample_every_ns = profile_stack_us * 1000 / SAMPLES_IN_TIME;
	skeleton->rodata->off_cpu_all = all_threads && !only_chosen;
	if (!py_stacks)
		bpf_map__set_max_entries(skeleton->maps.off_cpu_stacks, 1);
	bpf_map__set_max_entries(skeleton->maps.sched_thread_hash, (uint32_t)max_threads);
	bpf_map__set_max_entries(skeleton->maps.off_cpu_profile_0, (uint32_t)profile_entries);
	bpf_map__set_max_entries(skeleton->maps.off_cpu_profile_1, (uint32_t)profile_entries);
	sums = (struct sched_sums){
		.maps = { skeleton->maps.off_cpu_profile_0, skeleton->maps.off_cpu_profile_1 },
		.side = &skeleton->bss->off_cpu_active_profile,
		.interval_ns = profile_interval_ns,
		.each = off_cpu_add_sum,
		.is_complete = off_cpu_sum_is_complete,
		.drained = add_rest,
	};
	off_cpu_stacks_open(skeleton->maps.off_cpu_stacks);
	symbols_init();
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void off_cpu_quiet(void)
{
	sched_return_quiet(skeleton);
}

static void off_cpu_take_out(void)
{
	sched_take_out(&skeleton->bss->off_cpu_out);
}

static uint64_t off_cpu_put_back(void)
{
	sched_put_back(&skeleton->bss->off_cpu_out);
	return 0;
}

static void off_cpu_close(void)
{
	symbols_done();
	off_cpu_stacks_close();
	if (skeleton)
		sched_close();
	skeleton = NULL;
}

static const struct tracker_python python = {
	.walks_threads = true,
	.appeared = off_cpu_process_appeared,
	.gone = off_cpu_process_gone,
	.quiet = off_cpu_quiet,
};

const struct tracker off_cpu_tracker = {
	.name = "off_cpu",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_off_cpu", columns),
	.second_table = &profile_table,
	TRACKER_ROW(struct off_cpu_row),
	.extra_max = PYTHON_STACK_MAX * sizeof(struct python_frame),
	.ring_kib = &ring_kib,
	.shed_rank = 2,
	.sampled_by_skip = true,
	.python = &python,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = off_cpu_open,
	.options_changed = off_cpu_options_changed,
	.close = off_cpu_close,
	.tick = off_cpu_tick,
	.take_out = off_cpu_take_out,
	.put_back = off_cpu_put_back,
	.complete = off_cpu_complete,
	.take_extra = off_cpu_take_extra,
};
