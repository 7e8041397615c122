// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Garbage collections: uprobes at the entry and the exits of CPython's collecting function. Both
 * read the interpreter's own statistics (gc.get_stats()); the counter that changed gives the
 * generation, or shows that nothing was collected. This also works where the function's argument
 * does not tell the generation (3.13 and later). No uretprobes: the exits are probed directly, and
 * an exit belongs to the entry with the same stack pointer.
 */
#include "lib/event.bpf.h"
#include "lib/identity.bpf.h"
#include "lib/task.bpf.h"
#include "lib/compat.bpf.h"
#include "python/interpreter.bpf.h"
#include "python/frames.bpf.h"
#include "lib/syscall.bpf.h"
#include "python/gc_clock.bpf.h"
#include "events/gc_pause.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define METHOD_USDT 1 /* enum gc_method of src/cpython/image.h */

enum { MAX_SITES = 256 * 128, MAX_BINARIES = 256, MAX_THREADS = 512, GENERATIONS = 3 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SITES);
	__type(key, __u32);
	__type(value, struct gc_site);
} gc_pause_sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BINARIES);
	__type(key, __u32);
	__type(value, struct gc_binary);
} gc_pause_binary SEC(".maps");

/* gc.get_stats() of a generation, in memory layout. */
struct generation_stats {
	__u64 collections, collected, uncollectable;
};

struct collection {
	struct generation_stats before[GENERATIONS];
	__u64 start_ns; /* 0: none is open */
	__u64 stack_pointer;
	__u64 interp, gil; /* addresses in the target */
	__u64 argument;
	__u8 has_before, has_argument, method, reason;
};

/*
 * The last collections of threads, by pid_tgid. A thread keeps its entry, since making and deleting
 * one takes longer than most collections of young objects. LRU: nothing deletes the entries of
 * ended threads.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct collection);
} gc_pause_open SEC(".maps");

static const struct collection empty_collection;

bool out;      /* set by user space: no collection begins; open ones end as usual */
bool stopping; /* set by user space: the uprobes still run, but no more rows */

const volatile bool only_chosen = false; /* --pid: only processes of the map `processes` */
volatile __u64 min_duration_ns = 0;	 /* user space may change the value at any time */
const volatile __u64 stack_min_ns = 1000000;

static __always_inline bool read_stats(const struct gc_binary *binary, __u64 runtime, __u64 interp,
				       struct generation_stats *ret)
{
	bool ok = true;
	__u64 first = python_gc_stats_address(&binary->offsets, runtime, interp, 0);

	/* up to 3.14 mostly an array: a single read */
	if (binary->offsets.gc_stats_kind != PYTHON_GC_STATS_RING &&
	    binary->offsets.gc_stats_size == sizeof(ret[0]))
		return first &&
		       !bpf_probe_read_user(ret, GENERATIONS * sizeof(ret[0]), (void *)first);
	for (int i = 0; i < GENERATIONS; i++) {
		__u64 address = python_gc_stats_address(&binary->offsets, runtime, interp, i);

		ok &= address && !bpf_probe_read_user(&ret[i], sizeof(ret[i]), (void *)address);
	}
	return ok;
}

static __always_inline bool read_register(struct pt_regs *regs, __u64 index, __u64 *ret)
{
	return index * 8 + 8 <= bpf_core_type_size(struct pt_regs) &&
	       !bpf_probe_read_kernel(ret, sizeof(*ret), (char *)regs + index * 8);
}

static __always_inline __u8 read_reason(struct pt_regs *regs, const struct gc_site *site)
{
	__u64 reason;

	if (!site->reason_reg || !read_register(regs, site->reason_reg, &reason))
		return GC_REASON_UNKNOWN;
	reason = (__u32)reason;
	return reason < GC_REASON_MAX - 1 ? reason + 1 : GC_REASON_UNKNOWN;
}

static __always_inline bool read_argument(struct pt_regs *regs, const struct gc_site *site,
					  __u64 *ret)
{
	__u64 reg = 0, value = 0;

	if (site->arg_place == GC_ARG_CONSTANT) {
		*ret = site->arg_value;
		return true;
	}
	if (site->arg_place == GC_ARG_NONE || !read_register(regs, site->arg_reg, &reg))
		return false;
	if (site->arg_place == GC_ARG_REGISTER)
		value = reg;
	else if (bpf_probe_read_user(&value, sizeof(value), (void *)(reg + site->arg_value)))
		return false;
	*ret = site->arg_size == 4 ? (__u64)(__s64)(__s32)value : value;
	return true;
}

/*
 * Loops and their bodies are global functions, which the verifier explores once instead of once per
 * path: inlined loops took 58 MB of kernel memory, charged to the agent's cgroup. Such functions
 * take only numbers.
 */

/* Does the thread with the given kernel stack wait for the GIL? */
__noinline int gc_is_gil_waiter(__u32 binary_id, __u64 gil, __u64 stack)
{
	const struct gc_binary *binary = bpf_map_lookup_elem(&gc_pause_binary, &binary_id);
	struct pt_regs *regs = (void *)(stack + user_regs_offset());

	return binary && python_futex_is_gil_wait(regs, &binary->offsets, gil);
}

/*
 * Counts the threads of the current process that wait for the GIL: inside futex() on an address in
 * gil->cond. No thread can have taken the GIL during the collection, so all of them were held up by
 * the collection. -1: there are too many threads to look at.
 */
__noinline int gc_count_gil_waiters(__u32 binary_id, __u64 gil)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct signal_struct *signal = BPF_CORE_READ(task, signal);
	__u64 head = (__u64)signal + bpf_core_field_offset(struct signal_struct, thread_head);
	__u64 node_offset = bpf_core_field_offset(struct task_struct, thread_node), node = 0;
	int count = 0;

	bpf_probe_read_kernel(&node, sizeof(node), (void *)head);
	for (int i = 0; i < MAX_THREADS; i++) {
		struct task_struct *sibling = (void *)(node - node_offset);

		if (node == head || !node)
			return count;
		count += gc_is_gil_waiter(binary_id, gil, (__u64)BPF_CORE_READ(sibling, stack));
		if (bpf_probe_read_kernel(&node, sizeof(node), (void *)node))
			break;
	}
	return -1;
}

/*
 * Counting takes about 70 ns per thread of the process, idle or not, which is more than most
 * collections take. With few threads every collection gets its own count. With some, collections
 * shorter than GC_COUNT_WORTH times the price share a cached count, refreshed at 1 % of the
 * process's time. With many, only collections of GC_LONG_NS are counted for: a shorter collection
 * stops no thread for long, and only an old cached count would be cheap.
 */
enum { GC_COUNT_WORTH = 16, GC_COUNT_SHARE = 100, GC_FEW_THREADS = 8, GC_MANY_THREADS = 40 };
enum { GC_LONG_NS = 1000000 };

struct gil_key {
	__u64 gil; /* address in the process */
	__u64 host_pid;
};
struct gil_waiters {
	__u64 counted_ns, cost_ns; /* time and cost of the count */
	__u64 n;
};

/* LRU: the entries of ended processes are not deleted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct gil_key);
	__type(value, struct gil_waiters);
} gc_pause_waiters SEC(".maps");

static const struct gil_waiters no_waiters;

/*
 * The number of threads held up by a collection that took `ns` and ended at `now`; -1: not counted.
 */
static __always_inline int frozen_threads(__u32 binary_id, __u64 gil, __u32 siblings, __u64 ns,
					  __u64 now)
{
	struct gil_key key = { .gil = gil, .host_pid = current_tgid() };
	struct gil_waiters *known;

	if (!siblings)
		return 0;
	if (!gil)
		return -1;
	if (siblings > GC_MANY_THREADS && ns < GC_LONG_NS)
		return -1;
	if (siblings <= GC_FEW_THREADS || siblings > GC_MANY_THREADS)
		return gc_count_gil_waiters(binary_id, gil);
	known = bpf_map_lookup_elem(&gc_pause_waiters, &key);
	if (!known) {
		bpf_map_update_elem(&gc_pause_waiters, &key, &no_waiters, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&gc_pause_waiters, &key);
	}
	if (!known)
		return gc_count_gil_waiters(binary_id, gil);
	if (ns < known->cost_ns * GC_COUNT_WORTH &&
	    now - known->counted_ns < known->cost_ns * GC_COUNT_SHARE)
		return known->n;
	known->n = gc_count_gil_waiters(binary_id, gil);
	known->counted_ns = bpf_ktime_get_ns();
	known->cost_ns = known->counted_ns - now;
	return known->n;
}

static __always_inline const struct gc_binary *binary_of(const struct gc_site *site)
{
	__u32 id = site->binary_id;

	return bpf_map_lookup_elem(&gc_pause_binary, &id);
}

static __always_inline struct collection *collection_of(__u64 thread)
{
	struct collection *known = bpf_map_lookup_elem(&gc_pause_open, &thread);

	if (known)
		return known;
	bpf_map_update_elem(&gc_pause_open, &thread, &empty_collection, BPF_ANY);
	return bpf_map_lookup_elem(&gc_pause_open, &thread);
}

/*
 * In the collecting thread, at the entry of the collecting function (or the USDT probe gc__start).
 */
SEC("uprobe")
int gc_pause_enter(struct pt_regs *regs)
{
	__u64 thread = bpf_get_current_pid_tgid(), runtime, interp, gil = 0;
	__u32 index = attach_cookie(regs);
	const struct gc_site *site = bpf_map_lookup_elem(&gc_pause_sites, &index);
	const struct gc_binary *binary;
	struct collection *open;

	if (out || !site || !site->method || stopping ||
	    (only_chosen && !process_tracked(thread >> 32)))
		return 0;
	binary = binary_of(site);
	if (!binary)
		return 0;
	if (process_refused(thread >> 32)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		return 0;
	}
	runtime = PT_REGS_IP(regs) - site->va + binary->runtime_va;
	interp = python_current_interp(&binary->offsets, runtime, &gil);
	if (site->method != METHOD_USDT && python_gc_returns_at_once(&binary->offsets, interp)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_FILTERED, 1);
		return 0;
	}
	open = collection_of(thread);
	if (!open) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
		return 0;
	}
	open->method = site->method;
	open->stack_pointer = PT_REGS_SP(regs);
	open->has_argument = read_argument(regs, site, &open->argument);
	open->reason = read_reason(regs, site);
	open->interp = interp;
	open->gil = gil;
	open->has_before = read_stats(binary, runtime, open->interp, open->before);
	open->start_ns =
		bpf_ktime_get_ns(); /* taken last: the reads above are not the target's time */
	gc_clock_start(open->start_ns);
	return 0;
}

/* Fills in the result. Returns false when the function returned without collecting. */
static __always_inline bool fill_result(struct gc_pause_event *event, struct collection *open,
					const struct gc_binary *binary, __u64 runtime)
{
	struct generation_stats after[GENERATIONS];

	event->generation = -1;
	if (!open->has_before || !read_stats(binary, runtime, open->interp, after)) {
		stat_add(STAT_READ_FAIL, 1);
		if (open->has_argument)
			event->generation = open->argument;
		return true;
	}
	for (int i = 0; i < GENERATIONS; i++) {
		if (after[i].collections == open->before[i].collections)
			continue;
		event->generation = i;
		event->collected = after[i].collected - open->before[i].collected;
		event->uncollectable = after[i].uncollectable - open->before[i].uncollectable;
	}
	if (event->generation == GENERATIONS - 1)
		event->long_lived_known = python_gc_long_lived(&binary->offsets, runtime,
							       open->interp, &event->long_lived);
	return event->generation >= 0;
}

/*
 * Scratch space for an event with its stack, too big for the BPF stack. A uprobe may preempt a
 * uprobe on the same CPU, which then sees `users` == 2 and sends the event without a stack.
 */
struct event_with_stack {
	__u64 users;
	struct python_walk walk;
	struct gc_pause_event event;
	struct python_frame frames[PYTHON_STACK_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event_with_stack);
} gc_pause_stack SEC(".maps");

/* Reads the frame at walk.frame into frame `i`. */
__noinline int gc_take_frame(__u32 binary_id, __u32 i)
{
	const struct gc_binary *binary = bpf_map_lookup_elem(&gc_pause_binary, &binary_id);
	__u32 zero = 0;
	struct event_with_stack *with = bpf_map_lookup_elem(&gc_pause_stack, &zero);

	if (!binary || !with || i >= PYTHON_STACK_MAX)
		return 0;
	python_read_frame(&binary->offsets, &with->walk, 0, &with->walk.stack.frames[i]);
	python_check_frame(&binary->offsets, &with->walk, &with->walk.stack.frames[i]);
	return 0;
}

/* Walks the stack of the GIL's holder, the current thread. */
__noinline int gc_take_stack(__u32 binary_id, __u64 gil)
{
	const struct gc_binary *binary = bpf_map_lookup_elem(&gc_pause_binary, &binary_id);
	__u32 zero = 0;
	struct event_with_stack *with = bpf_map_lookup_elem(&gc_pause_stack, &zero);

	if (!binary || !with)
		return 0;
	with->walk.generation++;
	with->walk.tstate = python_gil_holder(&binary->offsets, gil);
	python_walk_begin(&binary->offsets, &with->walk);
	for (__u32 i = 0; i < PYTHON_STACK_MAX && with->walk.frame; i++) {
		gc_take_frame(binary_id, i);
		with->walk.stack.info.n = i + 1;
	}
	with->walk.stack.info.cut = with->walk.frame != 0;
	python_copy_stack(&with->walk.stack, with->frames, &with->event.stack);
	return 0;
}

static __always_inline void output_with_stack(const struct gc_pause_event *event, __u64 gil)
{
	__u32 zero = 0, n;
	struct event_with_stack *with = bpf_map_lookup_elem(&gc_pause_stack, &zero);

	if (!with) {
		stat_add(STAT_LOST_STATE, 1);
		return;
	}
	__sync_fetch_and_add(&with->users, 1);
	if (*(volatile __u64 *)&with->users == 1) {
		with->event = *event;
		gc_take_stack(event->binary_id, gil);
		n = *(volatile __u16 *)&with->event.stack.n;
		if (n > PYTHON_STACK_MAX)
			n = PYTHON_STACK_MAX;
		event_output(&with->event, sizeof(with->event) + n * sizeof(with->frames[0]));
	} else {
		stat_add(STAT_STACK_ROOM, 1);
		event_output((void *)event, sizeof(*event));
	}
	__sync_fetch_and_add(&with->users, -1);
}

/* In the collecting thread, at an exit of the collecting function (or the USDT probe gc__done). */
SEC("uprobe")
int gc_pause_exit(struct pt_regs *regs)
{
	__u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct collection *open = bpf_map_lookup_elem(&gc_pause_open, &thread);
	__u32 index = attach_cookie(regs);
	const struct gc_site *site = bpf_map_lookup_elem(&gc_pause_sites, &index);
	const struct gc_binary *binary;
	struct gc_pause_event event = {};
	int frozen;

	if (!open || !open->start_ns || !site || stopping || open->method != site->method)
		return 0;
	if (open->method != METHOD_USDT && open->stack_pointer != PT_REGS_SP(regs))
		return 0;
	gc_clock_stop(now);
	binary = binary_of(site);
	if (!binary)
		return 0;
	stat_add(STAT_SEEN, 1);
	if (!fill_result(&event, open, binary, PT_REGS_IP(regs) - site->va + binary->runtime_va) ||
	    now - open->start_ns < min_duration_ns) {
		stat_add(STAT_FILTERED, 1);
		goto out;
	}
	header_set_known(&event.header, now);
	event.header.start_ns = open->start_ns;
	event.header.end_ns = now;
	event.binary_id = site->binary_id;
	event.method = open->method;
	event.reason = open->reason;
	event.sibling_threads =
		BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), signal, nr_threads) - 1;
	frozen = frozen_threads(site->binary_id, open->gil, event.sibling_threads,
				now - open->start_ns, now);
	event.frozen_unknown = frozen < 0;
	event.frozen_threads = frozen < 0 ? 0 : frozen;
	if (open->gil && now - open->start_ns >= stack_min_ns)
		output_with_stack(&event, open->gil);
	else
		event_output(&event, sizeof(event));
out:
	open->start_ns = 0;
	return 0;
}
