// SPDX-License-Identifier: Apache-2.0
/* Off-CPU time by stack. See stacks.h. */
#include "commands/offcpu/stacks.h"

#include <string.h>

#include "commands/offcpu/stack_text.h"

/* Limits; beyond the limits, sums have less detail. */
enum { MAX_STACKS = 50000, MAX_KINDS = 50000, MAX_THREADS = 100000 };
static const char too_many[] = "[too many different stacks]";

/* A key of the BPF sums, with stacks in texts. */
struct kind {
	uint64_t rows_ns, sums_ns;
	char cause[16];
	struct native *natives;
	UT_hash_handle hh;
	char key[];
};

/* A native stack of a kind: time in sums, and part in rows. */
struct native {
	struct native *next; /* of the same kind */
	uint64_t rows_ns, sums_ns;
	const char *text; /* points into the key */
	UT_hash_handle hh;
	char key[];
};

/* Overflow of the BPF map, by cause. */
struct rest {
	char cause[16];
	uint64_t ns, rows_ns; /* part of ns in rows */
	UT_hash_handle hh;
};

/* Wait time of a thread. */
struct offcpu_thread {
	uint32_t host_tid;
	uint64_t off_ns;
	UT_hash_handle hh;
};

/* Time a process was seen: the pid of a process that lives for milliseconds is of no interest. */
struct offcpu_process {
	uint32_t host_pid;
	uint64_t first_ns, last_ns; /* of the thread's rows */
	uint64_t sums_ns;	    /* time of the last sum */
	uint32_t n_sums;	    /* number of distinct times */
	UT_hash_handle hh;
};

static bool failed;
static struct stack_text_options options;
static struct folded stacks; /* of rows */
static struct kind *kinds;
static struct native *natives;
static struct rest *rests;
static struct offcpu_thread *threads;
static struct offcpu_process *processes;

/* ---- sums ---- */

static size_t make_key(char *key, size_t size, const struct stack_columns *c, const void *row,
		       bool of_thread)
{
	char state[4], cause[32], syscall[64];

	column_text(c->state, row, state, sizeof(state));
	column_text(c->cause, row, cause, sizeof(cause));
	column_text(c->syscall, row, syscall, sizeof(syscall));
	return (size_t)snprintf(key, size, "%u %u %s %s %s\n",
				of_thread ? (unsigned int)column_uint(c->host_tid, row) : 0,
				of_thread ? (unsigned int)column_uint(c->waker_host_tid, row) : 0,
				state, cause, syscall);
}

static struct kind *kind_of(const struct stack_columns *c, const void *row)
{
	char key[160], cause[32];
	struct kind *kind;
	size_t len = make_key(key, sizeof(key), c, row, true);

	HASH_FIND(hh, kinds, key, len, kind);
	if (!kind && HASH_COUNT(kinds) >= MAX_KINDS) {
		/* for rows and sums alike, so that they match */
		len = make_key(key, sizeof(key), c, row, false);
		HASH_FIND(hh, kinds, key, len, kind);
	}
	if (kind)
		return kind;
	kind = calloc(1, sizeof(*kind) + len + 1);
	if (!kind)
		return NULL;
	memcpy(kind->key, key, len);
	column_text(c->cause, row, cause, sizeof(cause));
	snprintf(kind->cause, sizeof(kind->cause), "%.15s", cause);
	HASH_ADD(hh, kinds, key, len, kind);
	return kind;
}

static struct native *native_of(struct kind *kind, const char *text)
{
	bool full = HASH_COUNT(natives) >= MAX_STACKS && kind->natives;
	size_t prefix = strlen(kind->key), len = strlen(text);
	struct native *native = malloc(sizeof(*native) + prefix + len + 1), *known;

	if (!native)
		return NULL;
	*native = (struct native){ .next = kind->natives };
	memcpy(native->key, kind->key, prefix);
	memcpy(native->key + prefix, text, len + 1);
	native->text = native->key + prefix;
	HASH_FIND(hh, natives, native->key, prefix + len, known);
	if (known) {
		free(native);
		return known;
	}
	if (full) { /* not distinguished within the kind */
		free(native);
		return kind->natives;
	}
	HASH_ADD(hh, natives, key, prefix + len, native);
	kind->natives = native;
	return native;
}

static struct rest *rest_of(const char *cause)
{
	struct rest *rest;

	HASH_FIND_STR(rests, cause, rest);
	if (rest)
		return rest;
	rest = calloc(1, sizeof(*rest));
	if (!rest)
		return NULL;
	snprintf(rest->cause, sizeof(rest->cause), "%s", cause);
	HASH_ADD_STR(rests, cause, rest);
	return rest;
}

static struct offcpu_thread *thread_with(uint32_t host_tid)
{
	struct offcpu_thread *thread;

	HASH_FIND(hh, threads, &host_tid, sizeof(host_tid), thread);
	if (thread || HASH_COUNT(threads) >= MAX_THREADS)
		return thread;
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return NULL;
	thread->host_tid = host_tid;
	HASH_ADD(hh, threads, host_tid, sizeof(thread->host_tid), thread);
	return thread;
}

/* ---- rows ---- */

static int add_to_stack(const char *text, uint64_t ns)
{
	struct folded_stack *stack;

	HASH_FIND_STR(stacks.stacks, text, stack);
	if (!stack && HASH_COUNT(stacks.stacks) >= MAX_STACKS)
		text = too_many;
	stack = folded_get(&stacks, text, strlen(text));
	if (!stack)
		return -ENOMEM;
	stack->ns += ns;
	return 0;
}

/* Duration times weight: rows may be sampled by the governor. */
static uint64_t weighted_ns(const struct stack_columns *c, const void *row)
{
	uint64_t ns = column_uint(c->duration_ns, row);
	float weight = *(const float *)((const char *)row + c->weight->offset);

	return weight == 1.0f ? ns : (uint64_t)((double)ns * (double)weight);
}

static int add_row(const struct stack_columns *c, const void *row, struct buffer *text)
{
	uint64_t ns = weighted_ns(c, row);
	struct native *native = NULL;
	struct kind *kind = kind_of(c, row);
	int err = stack_text_make(text, &options, c, row, false);

	if (!err)
		err = add_to_stack(text->data, ns);
	if (!err)
		err = stack_text_make(text, &options, c, row, true);
	if (!err && kind)
		native = native_of(kind, text->data);
	if (!native)
		return -ENOMEM;
	kind->rows_ns += ns;
	native->rows_ns += ns;
	return err;
}

static int add_sum(const struct stack_columns *c, const void *row, struct buffer *text)
{
	uint64_t ns = column_uint(c->off_ns, row);
	struct offcpu_thread *thread = thread_with((uint32_t)column_uint(c->host_tid, row));
	struct native *native = NULL;
	struct kind *kind;
	struct rest *rest;
	char cause[32];
	int err;

	if (thread)
		thread->off_ns += ns;
	if (!column_uint(c->host_pid, row)) {
		rest = rest_of(column_text(c->cause, row, cause, 16));
		if (rest)
			rest->ns += ns;
		return rest ? 0 : -ENOMEM;
	}
	err = stack_text_make(text, &options, c, row, true);
	kind = kind_of(c, row);
	if (!err && kind)
		native = native_of(kind, text->data);
	if (!native)
		return -ENOMEM;
	kind->sums_ns += ns;
	native->sums_ns += ns;
	return 0;
}

/* Limit of processes; further processes have no name. */
static void note_process(const struct stack_columns *c, const void *row, bool sum)
{
	uint32_t host_pid = (uint32_t)column_uint(c->host_pid, row);
	uint64_t start = column_uint(c->start_time, row), end = column_uint(c->end_time, row);
	struct offcpu_process *p;

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), p);
	if (!p && HASH_COUNT(processes) < MAX_THREADS && (p = calloc(1, sizeof(*p)))) {
		p->host_pid = host_pid;
		p->first_ns = UINT64_MAX;
		HASH_ADD(hh, processes, host_pid, sizeof(p->host_pid), p);
	}
	if (!p)
		return;
	if (!sum) {
		p->first_ns = start < p->first_ns ? start : p->first_ns;
		p->last_ns = end > p->last_ns ? end : p->last_ns;
	} else if (end > p->sums_ns) {
		p->sums_ns = end;
		p->n_sums++;
	}
}

static bool has_lived(uint32_t host_pid)
{
	struct offcpu_process *p;

	HASH_FIND(hh, processes, &host_pid, sizeof(host_pid), p);
	return p && (p->n_sums > 2 ||
		     (p->last_ns > p->first_ns && p->last_ns - p->first_ns > NSEC_PER_SEC / 2));
}

void offcpu_stacks_init(bool wakers, bool native)
{
	options.with_wakers = wakers;
	options.with_native = native;
}

void offcpu_stacks_name_processes(uint32_t but_host_pid)
{
	options.with_pids = true;
	options.main_host_pid = but_host_pid;
}

/* Time on a CPU is in no sum. */
static int add_sample(const struct stack_columns *c, const void *row, struct buffer *text)
{
	return stack_text_make(text, &options, c, row, false)
		       ?: add_to_stack(text->data, weighted_ns(c, row));
}

void offcpu_stacks_row(const struct table *table, const void *row)
{
	static struct {
		const char *name;
		int (*add)(const struct stack_columns *c, const void *row, struct buffer *text);
		const struct table *table; /* of the cached columns */
		struct stack_columns columns;
	} tables[] = { { "ebpf_off_cpu", add_row, NULL, { 0 } },
		       { "ebpf_off_cpu_profile", add_sum, NULL, { 0 } },
		       { "ebpf_on_cpu", add_sample, NULL, { 0 } } };
	static struct buffer text;
	size_t i = 0;

	while (i < ARRAY_SIZE(tables) && strcmp(table->name, tables[i].name) != 0)
		i++;
	if (i == ARRAY_SIZE(tables))
		return;
	if (tables[i].table != table) {
		stack_columns_find(table, &tables[i].columns);
		tables[i].table = table;
	}
	if (options.with_pids)
		note_process(&tables[i].columns, row, tables[i].add == add_sum);
	if (tables[i].add(&tables[i].columns, row, &text))
		failed = true;
}

/* ---- merging rows and sums ---- */

static uint64_t more(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static int add_ns(struct folded *to, const char *text, uint64_t ns)
{
	struct folded_stack *stack = ns ? folded_get(to, text, strlen(text)) : NULL;

	if (stack)
		stack->ns += ns;
	return ns && !stack ? -ENOMEM : 0;
}

/* The pid appended by add_thread(). */
static const char *find_pid(const char *text, uint32_t *ret_host_pid, size_t *ret_len)
{
	size_t frame = strcspn(text, ";");
	const char *at = memrchr(text, '(', frame);
	unsigned int pid;
	int len = 0;

	if (!at || at == text || sscanf(at, "(pid %u)%n", &pid, &len) != 1 || !len ||
	    at + len != text + frame)
		return NULL;
	*ret_host_pid = pid;
	*ret_len = (size_t)len + 1;
	return at - 1;
}

/* Merges short-lived processes of the same name. */
static int add_stack(struct folded *to, const char *text, uint64_t ns)
{
	AUTO_FREE char *without = NULL;
	uint32_t host_pid;
	size_t len;
	const char *pid = find_pid(text, &host_pid, &len);

	if (!pid || has_lived(host_pid))
		return add_ns(to, text, ns);
	if (asprintf(&without, "%.*s%s", (int)(pid - text), text, pid + len) < 0) {
		without = NULL;
		return -ENOMEM;
	}
	return add_ns(to, without, ns);
}

/*
 * Distributes the excess of a kind's sums over its rows among its stacks, proportional to each
 * stack's excess. (A stack may have less if function names became known in between.)
 */
static int add_short_waits_of(const struct kind *kind, struct folded *to)
{
	uint64_t rest_ns = more(kind->sums_ns, kind->rows_ns), all = 0, seen = 0, given = 0;
	int err = 0;

	for (const struct native *n = kind->natives; n; n = n->next)
		all += more(n->sums_ns, n->rows_ns);
	for (const struct native *n = kind->natives; n && all && !err; n = n->next) {
		uint64_t share;

		seen += more(n->sums_ns, n->rows_ns);
		share = (uint64_t)((unsigned __int128)rest_ns * seen / all) - given;
		given += share;
		err = add_stack(to, n->text, share);
	}
	return err;
}

static int add_short_waits(struct folded *to)
{
	int err = 0;

	for (const struct kind *kind = kinds; kind && !err; kind = kind->hh.next)
		err = add_short_waits_of(kind, to);
	return err;
}

/* A wait with a row may be in a sum without thread. */
static int add_rests(struct folded *to)
{
	struct rest *rest, *next;
	struct kind *kind, *next_kind;
	char text[80];
	int err = 0;

	HASH_ITER(hh, rests, rest, next)
	rest->rows_ns = 0;
	HASH_ITER(hh, kinds, kind, next_kind)
	{
		HASH_FIND_STR(rests, kind->cause, rest);
		if (rest)
			rest->rows_ns += more(kind->rows_ns, kind->sums_ns);
	}
	HASH_ITER(hh, rests, rest, next)
	{
		snprintf(text, sizeof(text), "[found no room in the kernel];[%s]", rest->cause);
		if (!err)
			err = add_ns(to, text, more(rest->ns, rest->rows_ns));
	}
	return err;
}

int offcpu_stacks_fold(struct folded *ret)
{
	int err = 0;

	for (struct folded_stack *s = stacks.stacks; s && !err; s = s->hh.next)
		err = add_stack(ret, s->text, s->ns);
	if (!err)
		err = add_short_waits(ret);
	if (!err)
		err = add_rests(ret);
	folded_round(ret);
	return err;
}

uint64_t offcpu_stacks_waited_ns(uint32_t host_tid)
{
	struct offcpu_thread *thread;

	HASH_FIND(hh, threads, &host_tid, sizeof(host_tid), thread);
	if (thread)
		return thread->off_ns;
	return HASH_COUNT(threads) >= MAX_THREADS ? UINT64_MAX / 2 : 0;
}

bool offcpu_stacks_failed(void)
{
	return failed;
}

#define FREE_ALL(type, table)                                                                      \
	do {                                                                                       \
		type *item, *next_item;                                                            \
		HASH_ITER(hh, table, item, next_item)                                              \
		{                                                                                  \
			HASH_DEL(table, item);                                                     \
			free(item);                                                                \
		}                                                                                  \
	} while (0)

void offcpu_stacks_free(void)
{
	FREE_ALL(struct native, natives);
	FREE_ALL(struct kind, kinds);
	FREE_ALL(struct rest, rests);
	FREE_ALL(struct offcpu_thread, threads);
	FREE_ALL(struct offcpu_process, processes);
	folded_free(&stacks);
}
