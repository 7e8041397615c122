// SPDX-License-Identifier: Apache-2.0
/* Waits for locks are collected. See locks.h. */
#include "commands/offcpu/locks.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/util.h"
#include "commands/offcpu/folded.h"

enum { RECORDS_MAX = 200000, TEXT_MAX = 300 };

/* ---- places ---- */

/* "Class.function (path:line)" */
struct frame {
	const char *function, *path;
	size_t function_len, path_len;
};

static bool frame_parse(const char *text, struct frame *ret)
{
	const char *path = strstr(text, " ("), *line = strrchr(text, ':'), *dot;

	if (!path || !line || line < path + 2)
		return false;
	dot = memrchr(text, '.', (size_t)(path - text));
	ret->function = dot ? dot + 1 : text;
	ret->function_len = (size_t)(path - ret->function);
	ret->path = path + 2;
	ret->path_len = (size_t)(line - ret->path);
	return true;
}

static bool frame_of_file(const struct frame *frame, const char *suffix)
{
	size_t len = strlen(suffix);

	return frame->path_len >= len && !memcmp(frame->path + frame->path_len - len, suffix, len);
}

static bool frame_of_function(const struct frame *frame, const char *name)
{
	return frame->function_len == strlen(name) &&
	       !memcmp(frame->function, name, frame->function_len);
}

static bool is_lock_module(const struct frame *frame)
{
	static const char *const files[] = { "/threading.py", "/queue.py",
					     "/concurrent/futures/_base.py" };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (frame_of_file(frame, files[i]))
			return true;
	}
	return false;
}

/* Functions of module threading that take a lock; further functions wait for a message. */
static bool takes_lock(const struct frame *frame)
{
	static const char *const names[] = { "__enter__", "acquire", "_acquire_restore" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (frame_of_function(frame, names[i]))
			return true;
	}
	return !frame_of_file(frame, "/threading.py");
}

/* Functions of the C library that locks are made of, and addresses without a name. */
static bool is_lock_function(const char *frame)
{
	static const char *const begins[] = { "__lll_",	    "lll_",	"pthread_", "__pthread_",
					      "___pthread", "__futex",	"futex",    "sem_",
					      "__new_sem",  "do_futex", "__GI_",    "syscall",
					      "[" };

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++) {
		if (!strncmp(frame, begins[i], strlen(begins[i])))
			return true;
	}
	return false;
}

static const char *native_place(struct column_strings stack, bool *ret_message)
{
	*ret_message = stack.n && strstr(stack.items[0], "pthread_cond");
	for (size_t i = 0; i < stack.n; i++) {
		if (!is_lock_function(stack.items[i]))
			return stack.items[i];
	}
	return stack.n ? stack.items[0] : "";
}

const char *locks_place(struct column_strings py_stack, struct column_strings user_stack,
			bool *ret_message)
{
	struct frame frame;

	if (!py_stack.n)
		return native_place(user_stack, ret_message);
	*ret_message = frame_parse(py_stack.items[0], &frame) && !takes_lock(&frame);
	for (size_t i = 0; i < py_stack.n; i++) {
		if (!frame_parse(py_stack.items[i], &frame) || !is_lock_module(&frame))
			return py_stack.items[i];
	}
	return py_stack.items[0];
}

/* ---- records ---- */

static const struct lock_text *keep(struct lock_waits *locks, const char *text)
{
	size_t len = strnlen(text, TEXT_MAX);
	struct lock_text *kept;

	HASH_FIND(hh, locks->texts, text, len, kept);
	if (kept)
		return kept;
	kept = calloc(1, sizeof(*kept) + len + 1);
	if (!kept) {
		locks->failed = true;
		return NULL;
	}
	memcpy(kept->text, text, len);
	HASH_ADD(hh, locks->texts, text, len, kept);
	return kept;
}

/* Names of threads and files may hold anything. */
static const struct lock_text *keep_printable(struct lock_waits *locks, const char *raw)
{
	char text[TEXT_MAX + 1];

	return keep(locks, text_printable(text, sizeof(text), raw));
}

static const struct lock_text *keep_process(struct lock_waits *locks, const char *host,
					    const char *boot_id)
{
	char name[TEXT_MAX], boot[64], process[TEXT_MAX + 64];

	snprintf(process, sizeof(process), "%s\n%s", text_printable(name, sizeof(name), host),
		 text_printable(boot, sizeof(boot), boot_id));
	return keep(locks, process);
}

static struct lock_record *new_record(struct lock_waits *locks)
{
	size_t size = locks->size ? locks->size * 2 : 1024;
	struct lock_record *grown;

	if (locks->n == locks->size) {
		grown = realloc(locks->records, size * sizeof(*grown));
		if (!grown) {
			locks->failed = true;
			return NULL;
		}
		locks->records = grown;
		locks->size = size;
	}
	return &locks->records[locks->n];
}

void locks_add(struct lock_waits *locks, const struct lock_wait *wait)
{
	char place[TEXT_MAX];
	struct lock_record *r = NULL;
	const char *frame;
	bool message;

	if (locks->is_no_lock && locks->is_no_lock(wait->host_pid, wait->address))
		return;
	if (locks->n < RECORDS_MAX)
		r = new_record(locks);
	else if (!wait->idle)
		locks->left_out += wait->weight;
	if (!r)
		return;
	frame = locks_place(wait->py_stack, wait->user_stack, &message);
	*r = (struct lock_record){
		.of = { .process = keep_process(locks, wait->host, wait->boot_id),
			.host_pid = wait->host_pid,
			.message = message,
			.address = message ? 0 : wait->address },
		.host_tid = wait->host_tid,
		.waker_host_tid = wait->waker_host_tid,
		.begin_us = wait->begin_us,
		.wake_us = wait->wake_us,
		.end_us = wait->end_us,
		.weight = wait->weight,
		.idle = wait->idle,
		.thread_named = wait->thread_named,
		.waker_named = wait->waker_named,
		.place = keep_printable(
			locks, folded_short_frame(frame, strlen(frame), place, sizeof(place))),
		.thread = keep_printable(locks, wait->thread),
		.waker = keep_printable(locks, wait->waker),
	};
	if (!r->of.address)
		r->of.place = r->place;
	if (r->of.process && r->place && r->thread && r->waker)
		locks->n++;
}

/* ---- rows in memory ---- */

/* Columns of ebpf_off_cpu. */
static struct {
	const struct table *table;
	const struct column *host, *boot_id, *host_pid, *host_tid, *comm, *thread_name, *weight,
		*cause, *idle, *lock_address, *start_time, *end_time, *runq_ns, *waker_host_tid,
		*waker_comm, *waker_thread_name, *py_stack, *user_stack, *pid, *waker_pid;
} of;

static void find_columns(const struct table *table)
{
#define FIND(name) of.name = column_find(table, #name)
	of.table = table;
	FIND(host), FIND(boot_id), FIND(host_pid), FIND(host_tid), FIND(comm), FIND(thread_name);
	FIND(weight), FIND(cause), FIND(idle), FIND(lock_address), FIND(start_time), FIND(end_time);
	FIND(runq_ns), FIND(waker_host_tid), FIND(waker_comm), FIND(waker_thread_name);
	FIND(py_stack), FIND(user_stack), FIND(pid), FIND(waker_pid);
#undef FIND
}

static const char *name_of(const struct column *name, const struct column *comm, const void *row,
			   char *buf, size_t size, bool *ret_named)
{
	*ret_named = *column_text(name, row, buf, size);
	return *ret_named ? buf : column_text(comm, row, buf, size);
}

/* As sql/offcpu/lock_waits.sql: with the process where that is another one. */
static const char *waker_of(const void *row, char *buf, size_t size, bool *ret_named)
{
	uint64_t pid = column_uint(of.waker_pid, row);
	const char *name = name_of(of.waker_thread_name, of.waker_comm, row, buf, size, ret_named);
	size_t n = name == buf ? strlen(buf) : size;

	if (n < size && pid && pid != column_uint(of.pid, row))
		snprintf(buf + n, size - n, " of pid %llu", (unsigned long long)pid);
	return name;
}

void locks_add_row(struct lock_waits *locks, const struct table *table, const void *row)
{
	char cause[32], host[256], boot_id[64], thread[256], waker[256];
	struct lock_wait wait;
	uint64_t end_ns;

	if (strcmp(table->name, "ebpf_off_cpu") != 0)
		return;
	if (of.table != table)
		find_columns(table);
	if (strcmp(column_text(of.cause, row, cause, sizeof(cause)), "lock") != 0)
		return;
	end_ns = column_uint(of.end_time, row);
	wait = (struct lock_wait){
		.host = column_text(of.host, row, host, sizeof(host)),
		.boot_id = column_text(of.boot_id, row, boot_id, sizeof(boot_id)),
		.host_pid = (uint32_t)column_uint(of.host_pid, row),
		.host_tid = (uint32_t)column_uint(of.host_tid, row),
		.waker_host_tid = (uint32_t)column_uint(of.waker_host_tid, row),
		.address = column_uint(of.lock_address, row),
		.begin_us = (int64_t)clock_wall_us(column_uint(of.start_time, row)),
		.wake_us = (int64_t)clock_wall_us(end_ns - column_uint(of.runq_ns, row)),
		.end_us = (int64_t)clock_wall_us(end_ns),
		.weight = *(const float *)((const char *)row + of.weight->offset),
		.idle = column_uint(of.idle, row) != 0,
		.py_stack = column_strings(of.py_stack, row),
		.user_stack = column_strings(of.user_stack, row),
	};
	wait.thread = name_of(of.thread_name, of.comm, row, thread, sizeof(thread),
			      &wait.thread_named);
	wait.waker = waker_of(row, waker, sizeof(waker), &wait.waker_named);
	locks_add(locks, &wait);
}

void locks_drop(struct lock_waits *locks)
{
	size_t kept = 0;

	for (size_t i = 0; i < locks->n; i++) {
		if (!locks->is_no_lock(locks->records[i].of.host_pid, locks->records[i].of.address))
			locks->records[kept++] = locks->records[i];
	}
	locks->n = kept;
}

void locks_free(struct lock_waits *locks)
{
	struct lock_text *text, *next;

	HASH_ITER(hh, locks->texts, text, next)
	{
		HASH_DEL(locks->texts, text);
		free(text);
	}
	free(locks->records);
	*locks = (struct lock_waits){ 0 };
}
