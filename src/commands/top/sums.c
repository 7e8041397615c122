// SPDX-License-Identifier: Apache-2.0
/* Time by process, thread and line. See sums.h. */
#include "commands/top/sums.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "commands/top/proc_times.h"
#include "trackers/request_metrics.h"

enum { ENTRIES_MAX = 20000, TIDS_MAX = 20000, NAME_BYTES = 400 };

/* Sums flushed later than this are missing: nothing waited. */
static const uint64_t LATE_NS = 2 * NSEC_PER_SEC;

const char *const top_part_names[TOP_PARTS] = { "gil",	"lock", "net", "disk", "sleep", "other",
						"runq", "idle", "cpu", "gc",   "held" };

const struct top_tracker top_trackers[TOP_SOURCES] = {
	{ "off_cpu", TOP_OF_OFF_CPU },	     { "gil_wait", TOP_OF_GIL_WAIT },
	{ "gc_pause", TOP_OF_GC_PAUSE },     { "request", TOP_OF_REQUEST },
	{ "loop_stall", TOP_OF_LOOP_STALL },
};

enum top_source top_source_of(enum top_part part)
{
	switch (part) {
	case TOP_CPU:
		return TOP_OF_HOST;
	case TOP_GC:
		return TOP_OF_GC_PAUSE;
	case TOP_HELD:
		return TOP_OF_GIL_WAIT;
	default:
		return TOP_OF_OFF_CPU;
	}
}

/* A thread; the entry is known with the first row. */
struct top_tid {
	uint32_t host_tid, host_pid;
	uint64_t cpu_ns;	 /* last reading */
	struct top_entry *entry; /* NULL: no row yet */
	UT_hash_handle hh;
};

/* ---- entries ---- */

/* "ThreadPoolExecutor-0_3" is "ThreadPoolExecutor-0_*", "Thread-7 (work)" is "Thread-* (work)". */
static void name_pool(char *name)
{
	size_t len = strlen(name), digits = 0;
	char *end;

	if (!strncmp(name, "Thread-", 7) && isdigit((unsigned char)name[7])) {
		end = name + 7 + strspn(name + 7, "0123456789");
		name[7] = '*';
		memmove(name + 8, end, strlen(end) + 1);
		return;
	}
	while (digits < len && isdigit((unsigned char)name[len - 1 - digits]))
		digits++;
	if (digits && digits < len) {
		name[len - digits] = '*';
		name[len - digits + 1] = 0;
	}
}

struct top_entry *top_sums_entry(struct top_sums *sums, enum top_level level, uint32_t host_pid,
				 const char *name)
{
	char key[NAME_BYTES + 64], clean[NAME_BYTES];
	struct top_entry *e;
	int prefix, len;

	text_printable(clean, sizeof(clean), name);
	if (level == TOP_THREADS && sums->pools)
		name_pool(clean);
	prefix = snprintf(key, sizeof(key), "%d %u ", level, host_pid);
	len = prefix + snprintf(key + prefix, sizeof(key) - (size_t)prefix, "%s",
				level == TOP_PROCESSES ? "" : clean);
	HASH_FIND(hh, sums->entries, key, (size_t)len, e);
	if (e)
		return e;
	e = HASH_COUNT(sums->entries) < ENTRIES_MAX
		    ? calloc(1, sizeof(*e) + (size_t)len + strlen(clean) + 2)
		    : NULL;
	if (!e) {
		sums->left_out++;
		return NULL;
	}
	memcpy(e->key, key, (size_t)len + 1);
	e->name = strcpy(e->key + len + 1, clean);
	e->level = level;
	e->host_pid = host_pid;
	e->busy = e->waiting = e->busy_max = e->waiting_max = -1;
	HASH_ADD(hh, sums->entries, key, (size_t)len, e);
	return e;
}

/* A thread without an entry has begun since: CPU time counts from 0. */
static struct top_tid *tid_of(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid)
{
	struct top_tid *tid;

	HASH_FIND(hh, sums->tids, &host_tid, sizeof(host_tid), tid);
	if (tid || HASH_COUNT(sums->tids) >= TIDS_MAX)
		return tid;
	tid = calloc(1, sizeof(*tid));
	if (!tid)
		return NULL;
	tid->host_tid = host_tid;
	tid->host_pid = host_pid;
	HASH_ADD(hh, sums->tids, host_tid, sizeof(tid->host_tid), tid);
	return tid;
}

/* The CPU times of the process's threads. */
static void read_threads(struct top_sums *sums, uint32_t host_pid)
{
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%u/task", host_pid);
	dir = opendir(path);
	if (!dir)
		return;
	for (struct dirent *d; (d = readdir(dir));) {
		uint32_t host_tid = (uint32_t)strtoul(d->d_name, NULL, 10);
		struct top_tid *tid = host_tid ? tid_of(sums, host_pid, host_tid) : NULL;

		if (tid)
			tid->cpu_ns = proc_times_of_thread(host_pid, host_tid);
	}
	closedir(dir);
}

static struct top_entry *process_of(struct top_sums *sums, uint32_t host_pid)
{
	char key[64], comm[64];
	struct top_entry *e;
	int len = snprintf(key, sizeof(key), "%d %u ", TOP_PROCESSES, host_pid);

	HASH_FIND(hh, sums->entries, key, (size_t)len, e);
	if (e)
		return e;
	proc_times_comm(host_pid, comm, sizeof(comm));
	e = top_sums_entry(sums, TOP_PROCESSES, host_pid, comm);
	if (e) {
		e->cpu_ns = proc_times_of_process(host_pid);
		read_threads(sums, host_pid);
	}
	return e;
}

void top_sums_process(struct top_sums *sums, uint32_t host_pid)
{
	process_of(sums, host_pid);
}

/* ---- rows ---- */

static uint64_t uint_of(const struct table *table, const void *row, const char *name)
{
	return column_uint(column_find(table, name), row);
}

static const char *text_of(const struct table *table, const void *row, const char *name, char *buf,
			   size_t size)
{
	return column_text(column_find(table, name), row, buf, size);
}

static double weight_of(const struct table *table, const void *row)
{
	const struct column *c = column_find(table, "weight");

	return c ? (double)*(const float *)((const char *)row + c->offset) : 1;
}

/* The entries to which a row of a thread counts; NULL: no place. */
struct places {
	struct top_entry *of[TOP_LEVELS];
};

static void add(const struct places *p, enum top_part part, double ns)
{
	for (int level = 0; level < TOP_LEVELS; level++) {
		if (p->of[level])
			p->of[level]->now.ns[part] += (uint64_t)ns;
	}
}

static bool is_library(const char *frame)
{
	return strstr(frame, "/lib/python") || strstr(frame, "/lib64/python") ||
	       strstr(frame, "site-packages") || strstr(frame, "dist-packages") ||
	       strstr(frame, "(<frozen");
}

/* The innermost line of the application. */
static const char *line_of(struct column_strings stack)
{
	for (size_t i = 0; i < stack.n; i++) {
		if (strchr(stack.items[i], '(') && !is_library(stack.items[i]))
			return stack.items[i];
	}
	return stack.n ? stack.items[0] : "(no Python stack)";
}

static void add_sum(struct top_sum *to, const struct top_sum *from)
{
	for (int i = 0; i < TOP_PARTS; i++)
		to->ns[i] += from->ns[i];
	for (int i = 0; i < REQUEST_PARTS; i++)
		to->request_ns[i] += from->request_ns[i];
	to->had_parts |= from->had_parts;
	to->lacked_parts |= from->lacked_parts;
	to->requests += from->requests;
	to->hidden_ns += from->hidden_ns;
	to->lag_ns = from->lag_ns > to->lag_ns ? from->lag_ns : to->lag_ns;
}

/* The thread's name became known: the entry was of this thread alone. */
static void move(struct top_sums *sums, struct top_entry *from, struct top_entry *to)
{
	add_sum(&to->now, &from->now);
	add_sum(&to->shown, &from->shown);
	add_sum(&to->all, &from->all);
	HASH_DEL(sums->entries, from);
	free(from);
}

static void note_tid(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
		     struct top_entry *entry)
{
	struct top_tid *tid = tid_of(sums, host_pid, host_tid);

	if (!tid || tid->entry == entry)
		return;
	if (tid->entry && tid->entry->nameless)
		move(sums, tid->entry, entry);
	else if (tid->entry)
		tid->entry->threads--;
	tid->entry = entry;
	entry->threads++;
}

/* A thread keeps its name in rows without one. */
static struct top_entry *thread_of(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
				   const char *name, bool nameless)
{
	struct top_tid *tid;
	struct top_entry *e;

	HASH_FIND(hh, sums->tids, &host_tid, sizeof(host_tid), tid);
	if (nameless && tid && tid->entry)
		return tid->entry;
	e = top_sums_entry(sums, TOP_THREADS, host_pid, name);
	if (e)
		e->nameless = nameless;
	return e;
}

struct top_entry *top_sums_thread(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
				  const char *name)
{
	struct top_entry *e = top_sums_entry(sums, TOP_THREADS, host_pid, name);

	if (e)
		note_tid(sums, host_pid, host_tid, e);
	return e;
}

struct top_entry *top_sums_of_tid(const struct top_sums *sums, uint32_t host_tid)
{
	struct top_tid *tid;

	HASH_FIND(hh, sums->tids, &host_tid, sizeof(host_tid), tid);
	return tid ? tid->entry : NULL;
}

static struct places places_of(struct top_sums *sums, const struct table *table, const void *row)
{
	uint32_t host_pid = (uint32_t)uint_of(table, row, "host_pid");
	uint32_t host_tid = (uint32_t)uint_of(table, row, "host_tid");
	struct column_strings stack = column_strings(column_find(table, "py_stack"), row);
	struct places p = { { process_of(sums, host_pid) } };
	char name[256], comm[32];
	bool nameless;

	text_of(table, row, "thread_name", name, sizeof(name));
	nameless = !*name;
	if (nameless) {
		text_of(table, row, "comm", comm, sizeof(comm));
		snprintf(name, sizeof(name), "%s (%u)", comm, host_tid);
	}
	p.of[TOP_THREADS] = thread_of(sums, host_pid, host_tid, name, nameless);
	if (p.of[TOP_THREADS])
		note_tid(sums, host_pid, host_tid, p.of[TOP_THREADS]);
	p.of[TOP_LINES] = top_sums_entry(sums, TOP_LINES, host_pid, line_of(stack));
	if (p.of[TOP_PROCESSES])
		text_printable(p.of[TOP_PROCESSES]->service, sizeof(p.of[0]->service),
			       text_of(table, row, "service", name, 64));
	return p;
}

enum top_part top_part_of(const char *cause)
{
	static const struct {
		const char *cause;
		enum top_part part;
	} parts[] = { { "gil", TOP_GIL },   { "lock", TOP_LOCK },   { "net", TOP_NET },
		      { "disk", TOP_DISK }, { "sleep", TOP_SLEEP }, { "preempt", TOP_RUNQ } };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (!strcmp(cause, parts[i].cause))
			return parts[i].part;
	}
	return TOP_OTHER;
}

static void add_waits(struct top_sums *sums, const struct table *table, const void *row)
{
	uint64_t off_ns = uint_of(table, row, "off_ns"), runq_ns = uint_of(table, row, "runq_ns");
	uint64_t end_ns = uint_of(table, row, "end_time");
	double weight = weight_of(table, row);
	struct places p;
	char cause[32];

	if (end_ns > sums->profile_end_ns)
		sums->profile_end_ns = end_ns;
	if (!uint_of(table, row, "host_pid"))
		return;
	p = places_of(sums, table, row);
	text_of(table, row, "cause", cause, sizeof(cause));
	runq_ns = runq_ns < off_ns ? runq_ns : off_ns;
	add(&p, TOP_RUNQ, (double)runq_ns * weight);
	add(&p, uint_of(table, row, "idle") ? TOP_IDLE : top_part_of(cause),
	    (double)(off_ns - runq_ns) * weight);
}

static void add_held(struct top_sums *sums, const struct table *table, const void *row)
{
	struct top_entry *e = top_sums_of_tid(sums,
					      (uint32_t)uint_of(table, row, "holder_host_tid"));

	if (e)
		e->now.ns[TOP_HELD] += uint_of(table, row, "wait_ns");
}

void top_sum_add_part(struct top_sum *sum, int part, bool known, double ns, bool lacked)
{
	sum->had_parts |= (uint32_t)known << part;
	sum->lacked_parts |= (uint32_t)lacked << part;
	sum->request_ns[part] += ns;
	sum->hidden_ns += request_parts[part].hidden ? ns : 0;
}

bool top_sum_hidden_is_least(const struct top_sum *sum)
{
	for (int i = 0; i < REQUEST_PARTS; i++) {
		if (request_parts[i].hidden && sum->lacked_parts & 1U << i)
			return true;
	}
	return false;
}

static void add_request(struct top_sums *sums, const struct table *table, const void *row)
{
	struct top_entry *e = process_of(sums, (uint32_t)uint_of(table, row, "host_pid"));
	double weight = weight_of(table, row);
	char column[48];

	if (!e)
		return;
	e->has_requests = true;
	e->now.requests += weight;
	for (int i = 0; i < REQUEST_PARTS; i++) {
		const struct column *c;
		bool known;

		snprintf(column, sizeof(column), "%s_ns", request_parts[i].name);
		c = column_find(table, column);
		known = column_is_known(c, row);
		top_sum_add_part(&e->now, i, known, (double)column_uint(c, row) * weight, !known);
	}
}

void top_sums_row(struct top_sums *sums, const struct table *table, const void *row)
{
	uint64_t ns = uint_of(table, row, "duration_ns");
	struct places p;

	if (!strcmp(table->name, "ebpf_off_cpu_profile")) {
		add_waits(sums, table, row);
	} else if (!strcmp(table->name, "ebpf_gil_wait_profile")) {
		add_held(sums, table, row);
	} else if (!strcmp(table->name, "ebpf_gc_pause")) {
		p = places_of(sums, table, row);
		add(&p, TOP_GC, (double)ns * weight_of(table, row));
	} else if (!strcmp(table->name, "ebpf_loop_stall")) {
		p = places_of(sums, table, row);
		for (int level = 0; level < TOP_LEVELS; level++) {
			if (p.of[level] && ns > p.of[level]->now.lag_ns)
				p.of[level]->now.lag_ns = ns;
		}
	} else if (!strcmp(table->name, "ebpf_request")) {
		add_request(sums, table, row);
	}
}

/* ---- times ---- */

static void read_cpu(struct top_sums *sums)
{
	for (struct top_entry *e = sums->entries; e; e = e->hh.next) {
		uint64_t ns = e->level == TOP_PROCESSES ? proc_times_of_process(e->host_pid) : 0;

		if (ns > e->cpu_ns)
			e->now.ns[TOP_CPU] += ns - e->cpu_ns;
		e->cpu_ns = ns ?: e->cpu_ns;
	}
	for (struct top_tid *t = sums->tids; t; t = t->hh.next) {
		uint64_t ns = t->entry ? proc_times_of_thread(t->host_pid, t->host_tid) : 0;

		if (ns > t->cpu_ns)
			t->entry->now.ns[TOP_CPU] += ns - t->cpu_ns;
		t->cpu_ns = ns ?: t->cpu_ns;
	}
}

static void read_servers(struct top_sums *sums)
{
	AUTO_FREE struct request_live *live = NULL;
	int n = request_live_read(&live);

	for (struct top_entry *e = sums->entries; e && n >= 0; e = e->hh.next) {
		if (e->level == TOP_PROCESSES && e->has_requests)
			e->busy = e->waiting = 0;
	}
	for (int i = 0; i < n; i++) {
		struct top_entry *e = live[i].host_pid ? process_of(sums, live[i].host_pid) : NULL;

		if (!e)
			continue;
		e->has_requests = true;
		e->busy = (e->busy > 0 ? e->busy : 0) + (int64_t)live[i].busy;
		e->waiting = (e->waiting > 0 ? e->waiting : 0) + (int64_t)live[i].waiting;
		e->busy_max = e->busy > e->busy_max ? e->busy : e->busy_max;
		e->waiting_max = e->waiting > e->waiting_max ? e->waiting : e->waiting_max;
	}
}

static void publish(struct top_sums *sums, uint64_t length_ns)
{
	for (struct top_entry *e = sums->entries; e; e = e->hh.next) {
		e->shown = e->now;
		add_sum(&e->all, &e->now);
		e->now = (struct top_sum){ 0 };
	}
	sums->shown_lacks = sums->lacking;
	sums->all_lacks |= sums->lacking;
	sums->lacking = 0;
	sums->shown_ns = length_ns;
	sums->all_ns += length_ns;
}

void top_sums_publish(struct top_sums *sums, unsigned int lacking, uint64_t now_ns)
{
	sums->lacking |= lacking;
	read_servers(sums);
	if (!sums->published_ns) {
		sums->published_ns = now_ns;
		sums->published_profile_ns = sums->profile_end_ns;
		return;
	}
	/* an interval of the sums ends at any time of the second */
	if (sums->profile_end_ns == sums->published_profile_ns &&
	    now_ns - sums->published_ns < LATE_NS)
		return;
	read_cpu(sums);
	publish(sums, now_ns - sums->published_ns);
	sums->published_ns = now_ns;
	sums->published_profile_ns = sums->profile_end_ns;
}

void top_sums_finish(struct top_sums *sums, uint64_t measured_ns)
{
	read_cpu(sums);
	publish(sums, 0);
	sums->all_ns = measured_ns;
}

void top_sums_free(struct top_sums *sums)
{
	struct top_entry *e, *next;
	struct top_tid *t, *next_tid;

	HASH_ITER(hh, sums->tids, t, next_tid)
	{
		HASH_DEL(sums->tids, t);
		free(t);
	}
	HASH_ITER(hh, sums->entries, e, next)
	{
		HASH_DEL(sums->entries, e);
		free(e);
	}
}
