// SPDX-License-Identifier: Apache-2.0
/* Does the state of a running interpreter make sense? See live.h. */
#include "python/live.h"

#include <dirent.h>
#include <string.h>

#include "probe/proc.h"
#include "python/objects.h"

enum {
	MAX_READS = 20000, /* sys.modules is read key by key until "sys", which comes first */
	MAX_INTERPRETERS = 64,
	MAX_THREADS = 4096,
	MAX_COMPARED = 64, /* with the kernel's threads: each costs a file or a read */
};

/* One check that does not hold; `err` of a read is handed on. */
static int refuse(struct why *why, int err, const char *what)
{
	if (err && err != -EFAULT && err != -EDQUOT)
		return why_fail(why, -err, "its memory cannot be read: %s", strerror(-err));
	return why_fail(why, EBADMSG, "its state is not where this build should have it: %s", what);
}

static int look_at_threads(struct remote *r, uint64_t interp, python_is_thread is_thread,
			   void *context, struct python_live *live, struct why *why)
{
	const struct python_offsets *o = r->offsets;
	uint64_t tstate, of_interp, ident, native_id;
	int err = remote_u64(r, interp + o->interp_threads_head, &tstate);

	for (; !err && tstate; live->threads++) {
		if (live->threads == MAX_THREADS)
			return refuse(why, 0, "the list of threads does not end");
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
			return refuse(why, 0, "a thread is another interpreter's");
		if (live->threads < MAX_COMPARED && is_thread(r, native_id, ident, context))
			live->known_threads++;
	}
	return err ? refuse(why, err, "the list of threads leads nowhere") : 0;
}

static int look_at_modules(struct remote *r, uint64_t interp, struct python_live *live,
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
	if (!err && !sys.value) /* not imported yet, or deleted from it, which nobody does */
		return n ? refuse(why, 0, "sys.modules has no sys")
			 : why_fail(why, EAGAIN, "the interpreter is being set up");
	if (err)
		return refuse(why, err == -EINVAL ? 0 : err, "sys.modules is no dict");
	live->modules = (uint32_t)n;
	return 0;
}

int python_live_look(struct remote *r, uint64_t runtime, python_is_thread is_thread, void *context,
		     struct python_live *ret, struct why *why)
{
	const struct python_offsets *o = r->offsets;
	struct python_live live = { .runtime = runtime };
	uint64_t interp = 0, next;
	int err = remote_u64(r, runtime + o->runtime_interpreters_head, &next);

	if (err)
		return refuse(why, err, "nothing is there");
	if (!next)
		return why_fail(why, EAGAIN, "the interpreter is not up yet");
	for (; next; live.interpreters++) {
		if (live.interpreters == MAX_INTERPRETERS)
			return refuse(why, 0, "the list of interpreters does not end");
		interp = next;
		err = look_at_threads(r, interp, is_thread, context, &live, why);
		if (err)
			return err;
		if (remote_u64(r, interp + o->interp_next, &next))
			return refuse(why, 0, "the list of interpreters leads nowhere");
	}
	if (!live.threads)
		return why_fail(why, EAGAIN, "the interpreter has no thread yet");
	if (!live.known_threads)
		return refuse(why, 0, "none of its threads is one of the process");
	err = look_at_modules(r, interp, &live, why); /* the oldest, the main one, is the last */
	if (!err)
		*ret = live;
	return err;
}

/* ---- the kernel's threads ---- */

struct kernel_threads {
	uint32_t tids[MAX_COMPARED]; /* as the innermost namespace counts */
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
		return (uint32_t)strtoul(task, NULL, 10); /* a kernel without namespaces */
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
 * pthread_self() is the address of a block that begins with pointers to itself, in glibc on x86-64
 * the first and the third word, in musl the first. On arm64 nothing in it tells.
 */
static enum thread_block look_at_thread_block(struct remote *r, uint64_t ident)
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
		return look_at_thread_block(r, ident) != BLOCK_NONE;
	for (size_t i = 0; i < threads->n; i++) {
		if (threads->tids[i] == native_id)
			return true;
	}
	if (threads->more && native_id && native_id <= UINT32_MAX >> 8)
		return true;
	/* the child of a C library that forks without Python's knowledge keeps its parent's ids */
	return look_at_thread_block(r, ident) == BLOCK_SURE;
}

struct python_live_place python_live_place_of(const struct binary_file *file)
{
	return (struct python_live_place){
		.dev = file->dev,
		.ino = file->ino,
		.load_va = file->binary->image.load_va,
		.runtime_va = file->binary->image.runtime_va,
		.offsets = file->binary->offsets,
	};
}

int python_live_check(uint32_t host_pid, const struct python_live_place *place,
		      struct python_live *ret, struct why *why)
{
	struct remote r = remote_of(host_pid, &place->offsets, MAX_READS);
	struct kernel_threads threads;
	uint64_t base;
	int err = proc_file_base(host_pid, place->dev, place->ino, &base);

	if (err == -ENOENT)
		return why_fail(why, EAGAIN, "the interpreter is not mapped yet");
	if (err)
		return why_fail(why, -err, "/proc/%u/maps cannot be read: %s", host_pid,
				strerror(-err));
	read_threads(host_pid, &threads);
	return python_live_look(&r, base - place->load_va + place->runtime_va, is_kernel_thread,
				&threads, ret, why);
}
