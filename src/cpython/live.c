// SPDX-License-Identifier: Apache-2.0
/* Sanity check of a live interpreter. See live.h. */
#include "cpython/live.h"

#include <dirent.h>
#include <string.h>

#include "host/proc.h"
#include "cpython/objects.h"
#include "workers/reader_process.h"

enum {
	MAX_READS = 20000, /* sys.modules is read up to "sys", normally the first key */
	MAX_INTERPRETERS = 64,
	MAX_THREADS = 4096,
	MAX_COMPARED = 64, /* comparisons with the kernel's threads: each costs a file or a read */
};

/* Reports a failed check; passes on the error of a read. */
static int fail_check(struct why *why, int err, const char *what)
{
	if (err && err != -EFAULT && err != -EDQUOT)
		return why_fail(why, -err, "the process's memory cannot be read: %s",
				strerror(-err));
	return why_fail(why, EBADMSG,
			"the interpreter's state is not where expected for this build: %s", what);
}

static int check_threads(struct remote *r, uint64_t interp, python_is_thread is_thread,
			 void *context, struct python_live *live, struct why *why)
{
	const struct python_offsets *o = r->offsets;
	uint64_t tstate, of_interp, ident, native_id;
	int err = remote_u64(r, interp + o->interp_threads_head, &tstate);

	for (; !err && tstate; live->threads++) {
		if (live->threads == MAX_THREADS)
			return fail_check(why, 0, "the list of threads does not end");
		native_id = 0;
		err = remote_u64(r, tstate + o->tstate_interp, &of_interp);
		if (!err)
			err = remote_u64(r, tstate + o->tstate_thread_id, &ident);
		if (!err && o->tstate_native_thread_id)
			err = remote_u64(r, tstate + o->tstate_native_thread_id, &native_id);
		if (!err)
			err = remote_u64(r, tstate + o->tstate_next, &tstate);
		if (err)
			break;
		if (of_interp != interp)
			return fail_check(why, 0, "a thread belongs to a different interpreter");
		if (live->threads < MAX_COMPARED && is_thread(r, native_id, ident, context))
			live->known_threads++;
	}
	return err ? fail_check(why, err, "the list of threads leads nowhere") : 0;
}

static int check_modules(struct remote *r, uint64_t interp, struct python_live *live,
			 struct why *why)
{
	struct python_key sys = { .name = "sys" };
	uint64_t modules, n = 0;
	int err = remote_u64(r, interp + r->offsets->interp_modules, &modules);

	if (!err && !modules)
		return why_fail(why, EAGAIN, "the interpreter is being set up");
	if (!err)
		err = python_dict_size(r, modules, &n);
	if (!err)
		err = python_dict_get(r, modules, &sys, 1);
	if (!err && !sys.value) /* not imported so far */
		return n ? fail_check(why, 0, "sys.modules has no sys")
			 : why_fail(why, EAGAIN, "the interpreter is being set up");
	if (err)
		return fail_check(why, err == -EINVAL ? 0 : err, "sys.modules is no dict");
	live->modules = (uint32_t)n;
	return 0;
}

int python_live_read(struct remote *r, uint64_t runtime, python_is_thread is_thread, void *context,
		     struct python_live *ret, struct why *why)
{
	const struct python_offsets *o = r->offsets;
	struct python_live live = { .runtime = runtime };
	uint64_t interp = 0, next;
	int err = remote_u64(r, runtime + o->runtime_interpreters_head, &next);

	if (err)
		return fail_check(why, err, "nothing is there");
	if (!next)
		return why_fail(why, EAGAIN, "the interpreter is still starting");
	for (; next; live.interpreters++) {
		if (live.interpreters == MAX_INTERPRETERS)
			return fail_check(why, 0, "the list of interpreters does not end");
		interp = next;
		err = check_threads(r, interp, is_thread, context, &live, why);
		if (err)
			return err;
		if (remote_u64(r, interp + o->interp_next, &next))
			return fail_check(why, 0, "the list of interpreters leads nowhere");
	}
	if (!live.threads)
		return why_fail(why, EAGAIN, "the interpreter has no thread so far");
	if (!live.known_threads)
		return fail_check(why, 0,
				  "no thread of the interpreter is a thread of the process");
	err = check_modules(r, interp, &live, why); /* the main interpreter is the last */
	if (!err)
		*ret = live;
	return err;
}

/* ---- the kernel's threads ---- */

struct kernel_threads {
	uint32_t tids[MAX_COMPARED]; /* ids of the innermost PID namespace */
	size_t n;
	bool more;
};

static uint32_t namespaced_tid(uint32_t host_pid, const char *task)
{
	char name[64], text[4096], *line, *rest;
	uint32_t tid = 0;

	snprintf(name, sizeof(name), "task/%.20s/status", task);
	if (proc_read(host_pid, name, text, sizeof(text)) <= 0)
		return 0;
	line = strstr(text, "\nNSpid:");
	if (!line)
		return (uint32_t)strtoul(task, NULL, 10); /* kernel without PID namespaces */
	line += strlen("\nNSpid:");
	line[strcspn(line, "\n")] = '\0';
	for (char *word = strtok_r(line, "\t ", &rest); word; word = strtok_r(NULL, "\t ", &rest))
		tid = (uint32_t)strtoul(word, NULL, 10);
	return tid;
}

static void read_threads(uint32_t host_pid, struct kernel_threads *ret)
{
	struct dirent *entry;
	char path[64];
	DIR *dir;

	*ret = (struct kernel_threads){ 0 };
	snprintf(path, sizeof(path), "/proc/%u/task", host_pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		ret->more = ret->n == MAX_COMPARED;
		if (ret->more)
			break;
		ret->tids[ret->n++] = namespaced_tid(host_pid, entry->d_name);
	}
	if (dir)
		closedir(dir);
}

enum thread_block { BLOCK_NONE, BLOCK_UNCERTAIN, BLOCK_SURE };

/*
 * pthread_self() is the address of a block with pointers to itself: glibc on x86-64 in the first
 * and third word, musl in the first. On arm64 the block has no such mark.
 */
static enum thread_block check_thread_block(struct remote *r, uint64_t ident)
{
	uint64_t words[3];

	if (remote_read(r, ident, words, sizeof(words)))
		return BLOCK_NONE;
#ifdef __x86_64__
	return words[0] == ident || words[2] == ident ? BLOCK_SURE : BLOCK_NONE;
#else
	return BLOCK_UNCERTAIN;
#endif
}

static bool is_kernel_thread(struct remote *r, uint64_t native_id, uint64_t ident, void *context)
{
	const struct kernel_threads *threads = context;

	if (!r->offsets->tstate_native_thread_id) /* before 3.11 */
		return check_thread_block(r, ident) != BLOCK_NONE;
	for (size_t i = 0; i < threads->n; i++) {
		if (threads->tids[i] == native_id)
			return true;
	}
	if (threads->more && native_id && native_id <= UINT32_MAX >> 8)
		return true;
	/* a child forked by a C library, unknown to Python, keeps its parent's ids */
	return check_thread_block(r, ident) == BLOCK_SURE;
}

static int check_at(uint32_t host_pid, const struct python_live_location *location,
		    struct python_live *ret, struct why *why)
{
	struct remote r = remote_of(host_pid, &location->offsets, MAX_READS);
	struct kernel_threads threads;
	uint64_t base;
	int err = proc_file_base(host_pid, location->dev, location->ino, &base);

	if (err == -ENOENT)
		return why_fail(why, EAGAIN, "the interpreter is not mapped so far");
	if (err)
		return why_fail(why, -err, "/proc/%u/maps cannot be read: %s", host_pid,
				strerror(-err));
	read_threads(host_pid, &threads);
	return python_live_read(&r, base - location->load_va + location->runtime_va,
				is_kernel_thread, &threads, ret, why);
}

/* Passed to a reader process and back. */
struct live_check {
	uint32_t host_pid;
	struct python_live_location location;
	struct python_live live;
	struct why why;
	int err;
};

static void check_in_process(void *argument, struct read_extra *extra)
{
	struct live_check *check = argument;

	(void)extra;
	check->err = check_at(check->host_pid, &check->location, &check->live, &check->why);
}

int python_live_check(uint32_t host_pid, const struct python_live_location *location,
		      struct python_live *ret, struct why *why)
{
	struct live_check check = { .host_pid = host_pid, .location = *location };
	int err = reader_process_run(check_in_process, &check, sizeof(check), NULL);

	if (err)
		return why_fail(why, -err, "the process's memory or /proc/%u/maps does not answer",
				host_pid);
	if (check.err && why)
		*why = check.why;
	if (!check.err)
		*ret = check.live;
	return check.err;
}
