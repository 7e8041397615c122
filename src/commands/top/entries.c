// SPDX-License-Identifier: Apache-2.0
/* Processes, threads and lines of `top`, with the CPU times of the kernel. See entries.h. */
#include "commands/top/entries.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "commands/top/proc_times.h"

enum { ENTRIES_MAX = 20000, TIDS_MAX = 20000, NAME_BYTES = 400 };

/* A thread; the entry is known with the first row. */
struct top_tid {
	uint32_t host_tid, host_pid;
	uint64_t cpu_ns;	 /* last reading */
	struct top_entry *entry; /* NULL: no row yet */
	bool ended;
	UT_hash_handle hh;
};

const char *const top_part_names[TOP_PARTS] = { "gil",	"lock", "net", "disk", "sleep", "other",
						"runq", "idle", "cpu", "gc",   "held" };

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

struct top_entry *top_entry_of_process(struct top_sums *sums, uint32_t host_pid)
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

uint64_t top_part_ns(const struct top_sum *sum, enum top_part part)
{
	if (part == TOP_CPU && sum->cpu_lost && sum->sampled_ns > sum->ns[TOP_CPU])
		return sum->sampled_ns;
	return sum->ns[part];
}

bool top_sum_knows_cpu(const struct top_sum *sum)
{
	return top_part_ns(sum, TOP_CPU) > 0 || !sum->cpu_lost;
}

void top_sum_add(struct top_sum *to, const struct top_sum *from)
{
	for (int i = 0; i < TOP_PARTS; i++)
		to->ns[i] += from->ns[i];
	for (int i = 0; i < REQUEST_PARTS; i++)
		to->request_ns[i] += from->request_ns[i];
	to->had_parts |= from->had_parts;
	to->lacked_parts |= from->lacked_parts;
	to->requests += from->requests;
	to->hidden_ns += from->hidden_ns;
	to->cpu_lost |= from->cpu_lost;
	to->sampled_ns += from->sampled_ns;
	to->lag_ns = from->lag_ns > to->lag_ns ? from->lag_ns : to->lag_ns;
}

/* The thread's name became known: the entry was of this thread alone. */
static void move(struct top_sums *sums, struct top_entry *from, struct top_entry *to)
{
	top_sum_add(&to->now, &from->now);
	top_sum_add(&to->shown, &from->shown);
	top_sum_add(&to->all, &from->all);
	HASH_DEL(sums->entries, from);
	free(from);
}

void top_entry_note_thread(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
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
struct top_entry *top_entry_of_thread(struct top_sums *sums, uint32_t host_pid, uint32_t host_tid,
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
		top_entry_note_thread(sums, host_pid, host_tid, e);
	return e;
}

struct top_entry *top_sums_of_tid(const struct top_sums *sums, uint32_t host_tid)
{
	struct top_tid *tid;

	HASH_FIND(hh, sums->tids, &host_tid, sizeof(host_tid), tid);
	return tid ? tid->entry : NULL;
}

/* ---- CPU times ---- */

void top_entries_read_cpu(struct top_sums *sums)
{
	for (struct top_entry *e = sums->entries; e; e = e->hh.next) {
		uint64_t ns = e->level == TOP_PROCESSES ? proc_times_of_process(e->host_pid) : 0;

		if (ns > e->cpu_ns)
			e->now.ns[TOP_CPU] += ns - e->cpu_ns;
		e->now.cpu_lost |= e->level == TOP_PROCESSES && !ns;
		e->cpu_ns = ns ?: e->cpu_ns;
	}
	for (struct top_tid *t = sums->tids; t; t = t->hh.next) {
		uint64_t ns = t->entry ? proc_times_of_thread(t->host_pid, t->host_tid) : 0;

		if (ns > t->cpu_ns)
			t->entry->now.ns[TOP_CPU] += ns - t->cpu_ns;
		if (t->entry && !ns && !t->ended)
			t->ended = t->entry->now.cpu_lost = true;
		t->cpu_ns = ns ?: t->cpu_ns;
	}
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
