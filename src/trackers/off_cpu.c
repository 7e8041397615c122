// SPDX-License-Identifier: Apache-2.0
/*
 * off_cpu: where threads slept or waited for a CPU, why, for how long, who woke them. The work is
 * in bpf/lib/off_cpu.bpf.h, inside the object that gil_wait shares; here stacks get names.
 */
#include "events/off_cpu.h"

#include <bpf/bpf.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "log.h"
#include "pipeline/enrich.h"
#include "probe/symbols.h"
#include "probe/syscall_names.h"
#include "python/names.h"
#include "python/stack.h"
#include "trackers/off_cpu_idle.h"
#include "trackers/sched.h"
#include "trackers/sched_return.h"

/* What user space adds to an event, the same for an interval and for a sum of them. */
struct off_cpu_names {
	const char *syscall, *waker_thread_name;
	char state[2];
	struct column_strings kernel_stack, user_stack, py_stack, waker_stack;
};

struct off_cpu_row {
	struct row_common common;
	struct off_cpu_event event;
	struct off_cpu_names names;
};

struct off_cpu_profile_row {
	struct row_common common;
	struct off_cpu_profile profile;
	struct off_cpu_names names;
};

static const char *const cause_names[OFF_CPU_CAUSE_MAX] = {
#define X(name) #name,
	OFF_CPU_CAUSES(X)
#undef X
};

#define LOW_STRING "LowCardinality(String)"
#define STACK_TYPE "Array(LowCardinality(String))"
/* The columns about what it waited for and who ended that, of a row with a member `event`. */
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
static struct complaint no_room;

static uint64_t min_duration_us = 10000;
static uint64_t profile_interval_ns = 10 * NSEC_PER_SEC;
static uint64_t profile_entries = 4096;
static uint64_t max_threads = 16384;
static uint64_t ring_kib = 2048;
static bool all;
static bool user_stacks = true;
static bool py_stacks = true;
static char *cgroup;

static const struct option options[] = {
	{ .key = "off_cpu.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .help = "leave shorter intervals out (10000); the profile counts them all",
	  .reloadable = true },
	{ .key = "off_cpu.all",
	  .type = OPTION_BOOL,
	  .target = &all,
	  .help = "follow all threads of the host, not only those of tracked processes" },
	{ .key = "off_cpu.cgroup",
	  .type = OPTION_STRING,
	  .target = &cgroup,
	  .arg = "PATH",
	  .help = "follow also the threads of this cgroup (a directory) and of those below it" },
	{ .key = "off_cpu.user_stacks",
	  .type = OPTION_BOOL,
	  .target = &user_stacks,
	  .help = "take native stacks, by frame pointers, at each switch (true)" },
	{ .key = "off_cpu.py_stacks",
	  .type = OPTION_BOOL,
	  .target = &py_stacks,
	  .help = "rows have the Python stack, at no cost for shorter intervals (true)" },
	{ .key = "off_cpu.profile_interval",
	  .type = OPTION_SECONDS,
	  .target = &profile_interval_ns,
	  .arg = "S",
	  .help = "sum all intervals, however short, over this long (10)",
	  .min = 1,
	  .max = 3600 },
	{ .key = "off_cpu.profile_entries",
	  .type = OPTION_UINT,
	  .target = &profile_entries,
	  .arg = "N",
	  .help = "sums kept in the kernel at once (4096, 2 KiB each); the rest is summed by cause",
	  .min = 16,
	  .max = 1 << 20 },
	{ .key = "off_cpu.ring_kib",
	  .type = OPTION_UINT,
	  .target = &ring_kib,
	  .arg = "KIB",
	  .help = "ring buffer, rounded up to a power of two (2048); what does not fit is counted",
	  .min = 64,
	  .max = 1 << 20 },
	{ .key = "off_cpu.max_threads",
	  .type = OPTION_UINT,
	  .target = &max_threads,
	  .arg = "N",
	  .help = "threads followed at once, on kernels without a storage of tasks' own (16384); "
		  "what does not fit is counted",
	  .min = 64,
	  .max = 1 << 22 },
};

/* ---- rows ---- */

/* The row is written before the next one is made: one set of arrays is enough. */
static void name_stacks(const struct off_cpu_event *event, struct off_cpu_names *names)
{
	static const char *kernel[OFF_CPU_KERNEL_FRAMES];
	static const char *user[OFF_CPU_USER_FRAMES + OFF_CPU_WAKER_FRAMES];
	const struct off_cpu *off = &event->off;
	size_t n = 0;

	symbols_next_row();
	while (n < OFF_CPU_KERNEL_FRAMES && event->kernel[n]) {
		kernel[n] = symbols_kernel(event->kernel[n]);
		n++;
	}
	names->kernel_stack = (struct column_strings){ kernel, n };
	n = symbols_user_stack(event->header.host_pid, off->user, OFF_CPU_USER_FRAMES, user);
	names->user_stack = (struct column_strings){ user, n };
	n = symbols_user_stack(off->waker.host_pid, off->waker_user, OFF_CPU_WAKER_FRAMES,
			       user + OFF_CPU_USER_FRAMES);
	names->waker_stack = (struct column_strings){ user + OFF_CPU_USER_FRAMES, n };
}

static void fill_names(const struct off_cpu_event *event, struct off_cpu_names *names)
{
	const struct off_cpu_waker *waker = &event->off.waker;

	names->syscall = syscall_name(event->off.syscall);
	names->state[0] = (char)event->off.state;
	names->waker_thread_name = names_find(&(struct thread_id){ .host_pid = waker->host_pid,
								   .host_tid = waker->host_tid,
								   .pid = waker->pid,
								   .tid = waker->tid,
								   .ident = waker->ident },
					      event->header.end_ns);
	name_stacks(event, names);
}

static void off_cpu_complete(void *row_of)
{
	struct off_cpu_row *row = row_of;
	struct off_cpu *off = &row->event.off;

	fill_names(&row->event, &row->names);
	if (off->cause == OFF_CPU_CAUSE_lock || off->cause == OFF_CPU_CAUSE_pipe)
		off->idle = off_cpu_waits_for_work(&row->names.py_stack);
}

static void fill_profile_row(void *row_of)
{
	struct off_cpu_profile_row *row = row_of;

	enrich_event(&row->profile.first.header, &row->common);
	fill_names(&row->profile.first, &row->names);
}

static void add_profile_row(const struct tracker_output *output, const struct sched_sums *of,
			    const void *key, const void *value)
{
	struct off_cpu_profile_row row = { .profile = *(const struct off_cpu_profile *)value };
	struct event_header *header = &row.profile.first.header;

	(void)key; /* all of it is in the first of the intervals */
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

/* Sums up what is in the per-CPU map under `key`, and sets it to 0. */
static void take_rest(uint32_t key, struct off_cpu_sum *ret)
{
	static const struct off_cpu_sum nothing;
	int n_cpus = libbpf_num_possible_cpus(),
	    fd = bpf_map__fd(skeleton->maps.off_cpu_profile_rest);
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

/* What found no room, as rows of nobody: a row a cause. */
static void add_rest(const struct tracker_output *output, const struct sched_sums *of,
		     uint32_t side)
{
	uint64_t count = 0;

	for (uint8_t cause = 0; cause < OFF_CPU_CAUSE_MAX; cause++) {
		struct off_cpu_profile rest = { .first.off.cause = cause,
						.first.off.syscall = -1,
						.first.header.cgroup_id = 1 };

		take_rest(side * OFF_CPU_CAUSE_MAX + cause, &rest.sum);
		count += rest.sum.count;
		if (rest.sum.count)
			add_profile_row(output, of, NULL, &rest);
	}
	if (count)
		complain(&no_room,
			 "off_cpu: the profile has %llu intervals without their thread and stack: "
			 "they found no room; off_cpu.profile_entries (%llu) makes more",
			 (unsigned long long)count, (unsigned long long)profile_entries);
}

static void off_cpu_take_extra(void *row_of, const void *extra, size_t size)
{
	static struct stack_texts texts; /* one row is made at a time */
	struct off_cpu_row *row = row_of;
	const struct off_cpu_event *event = &row->event;

	row->names.py_stack = stack_of_event(&event->header, &event->py_stack, extra, size, &texts);
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
	sched_return_tick(skeleton);
	sched_sums_tick(&sums, output, now_ns);
}

/* ---- life ---- */

static bool is_cgroup(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* As it was given, or from the root of the unified hierarchy, wherever that is mounted. */
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

/* A cgroup's id is its directory's inode number; its level is how deep it lies. */
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
	skeleton->rodata->off_cpu_all = all && !only_chosen;
	bpf_map__set_max_entries(skeleton->maps.sched_thread_hash, (uint32_t)max_threads);
	bpf_map__set_max_entries(skeleton->maps.off_cpu_profile_0, (uint32_t)profile_entries);
	bpf_map__set_max_entries(skeleton->maps.off_cpu_profile_1, (uint32_t)profile_entries);
	sums = (struct sched_sums){
		.maps = { skeleton->maps.off_cpu_profile_0, skeleton->maps.off_cpu_profile_1 },
		.side = &skeleton->bss->off_cpu_profile_side,
		.interval_ns = profile_interval_ns,
		.each = add_profile_row,
		.drained = add_rest,
	};
	symbols_init();
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void off_cpu_quiet(void)
{
	sched_return_quiet(skeleton);
}

static void off_cpu_close(void)
{
	symbols_done();
	if (skeleton)
		sched_close();
	skeleton = NULL;
}

const struct tracker off_cpu_tracker = {
	.name = "off_cpu",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_off_cpu", columns),
	.second_table = &profile_table,
	.event_size = sizeof(struct off_cpu_event),
	.extra_max = PYTHON_STACK_MAX * sizeof(struct python_frame),
	.row_size = sizeof(struct off_cpu_row),
	.event_offset = offsetof(struct off_cpu_row, event),
	.ring_kib = &ring_kib,
	.walks_threads = true,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = off_cpu_open,
	.options_changed = off_cpu_options_changed,
	.close = off_cpu_close,
	.tick = off_cpu_tick,
	.complete = off_cpu_complete,
	.take_extra = off_cpu_take_extra,
	.quiet = off_cpu_quiet,
	.process_appeared = off_cpu_process_appeared,
	.process_gone = off_cpu_process_gone,
};
