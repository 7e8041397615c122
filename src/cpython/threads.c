// SPDX-License-Identifier: Apache-2.0
/* threading._active of another process. See threads.h. */
#include "cpython/threads.h"

#include <string.h>

#include "base/util.h"

enum { MAX_INTERPRETERS = 32 };

int python_main_interpreter(struct remote *r, uint64_t runtime, uint64_t *ret)
{
	const struct python_offsets *o = r->offsets;
	uint64_t interp = 0, next, tstate, of_tstate;
	char cookie[8];
	int err = 0;

	if (o->minor >= 13) {
		err = remote_read(r, runtime, cookie, sizeof(cookie));
		if (!err && memcmp(cookie, "xdebugpy", sizeof(cookie)) != 0)
			err = -EINVAL;
	}
	if (!err)
		err = remote_u64(r, runtime + o->runtime_interpreters_head, &next);
	/* newest first, main interpreter last */
	for (int i = 0; !err && next; i++) {
		if (i == MAX_INTERPRETERS)
			return -EINVAL;
		interp = next;
		err = remote_u64(r, interp + o->interp_next, &next);
	}
	if (!err && interp)
		err = remote_u64(r, interp + o->interp_threads_head, &tstate);
	if (!err && interp)
		err = remote_u64(r, tstate + o->tstate_interp, &of_tstate);
	if (!err && (!interp || of_tstate != interp))
		err = -EINVAL;
	if (!err)
		*ret = interp;
	return err;
}

static int find_in(struct remote *r, uint64_t interp, struct python_threads *threads)
{
	struct python_key module = { .name = "threading" }, active = { .name = "_active" };
	uint64_t modules, n_modules, dict;
	enum { MODULE_DICT = 16 };
	int err = remote_u64(r, interp + r->offsets->interp_modules, &modules);

	if (!err)
		err = python_dict_size(r, modules, &n_modules);
	if (err)
		return err;
	if (n_modules == threads->n_modules && !threads->active)
		return -ENOENT;
	threads->active = 0;
	err = python_dict_get(r, modules, &module, 1);
	if (!err && !module.value)
		err = -ENOENT;
	if (err == -ENOENT)
		threads->n_modules = n_modules;
	if (!err)
		err = remote_u64(r, module.value + MODULE_DICT, &dict);
	if (!err)
		err = python_dict_get(r, dict, &active, 1);
	if (!err && !active.value)
		err = -ENOENT; /* being imported */
	if (!err)
		err = python_type(r, active.object, &threads->str_type);
	if (err)
		return err;
	threads->active = active.value;
	threads->name = (struct python_key){ .name = "_name" };
	threads->native_id = (struct python_key){ .name = "_native_id" };
	return 0;
}

int python_threads_find(struct remote *r, uint64_t runtime, struct python_threads *threads)
{
	uint64_t interp;
	int err = python_main_interpreter(r, runtime, &interp);

	return err ? err : find_in(r, interp, threads);
}

static int read_thread(struct remote *r, struct python_threads *threads, uint64_t thread,
		       uint64_t *ret_native_id)
{
	struct python_key keys[] = { threads->name, threads->native_id };
	int err = python_attributes(r, thread, keys, ARRAY_SIZE(keys));

	if (!err && (!keys[0].value || !keys[1].value)) {
		/* absent, or the keys are new objects: compare texts next time */
		keys[0].object = keys[1].object = 0;
		err = -ENOENT;
	}
	if (!err)
		err = python_int(r, keys[1].value, ret_native_id);
	threads->name = keys[0];
	threads->native_id = keys[1];
	return err;
}

struct native_id_search {
	struct remote *r;
	struct python_threads *threads;
	uint64_t thread;
	uint32_t tid;
};

static bool has_native_id(uint64_t value, void *context)
{
	struct native_id_search *s = context;
	uint64_t native_id;

	if (read_thread(s->r, s->threads, value, &native_id) || native_id != s->tid)
		return false;
	s->thread = value;
	return true;
}

static int find_thread(struct remote *r, struct python_threads *threads, uint64_t ident,
		       uint32_t tid, uint64_t *ret)
{
	struct native_id_search s = { r, threads, 0, tid };
	int err;

	if (ident)
		return python_dict_get_int(r, threads->active, ident, ret);
	err = python_dict_find(r, threads->active, has_native_id, &s);
	if (!err)
		*ret = s.thread;
	return err;
}

int python_thread_name(struct remote *r, struct python_threads *threads, uint64_t ident,
		       uint32_t tid, bool is_main, char ret[PYTHON_THREAD_NAME_MAX])
{
	char name[PYTHON_THREAD_NAME_MAX];
	uint64_t thread, native_id, now;
	int err;

	r->str_type = threads->str_type;
	err = find_thread(r, threads, ident, tid, &thread);
	if (!err)
		err = read_thread(r, threads, thread, &native_id);
	if (!err && native_id != tid && !is_main)
		err = -ENOENT;
	if (!err)
		err = python_text(r, threads->name.value, name, sizeof(name), NULL);
	/* the thread may have ended or been renamed, and the memory reused */
	if (!err)
		err = remote_u64(r, threads->name.slot, &now);
	if (!err && now != threads->name.value)
		err = -EAGAIN;
	if (!err)
		err = remote_u64(r, threads->native_id.slot, &now);
	if (!err && now != threads->native_id.value)
		err = -EAGAIN;
	if (!err)
		memcpy(ret, name, sizeof(name));
	return err;
}

int python_thread_name_elsewhere(struct remote *r, uint64_t runtime, uint64_t ident, uint32_t tid,
				 char ret[PYTHON_THREAD_NAME_MAX])
{
	const struct python_offsets *o = r->offsets;
	uint64_t interp, next;
	int err = remote_u64(r, runtime + o->runtime_interpreters_head, &interp);

	for (int i = 0; !err && interp && i < MAX_INTERPRETERS; i++) {
		struct python_threads threads = { 0 };

		err = remote_u64(r, interp + o->interp_next, &next);
		if (err || !next) /* the main interpreter is the last */
			break;
		r->str_type = 0;
		if (!find_in(r, interp, &threads) &&
		    !python_thread_name(r, &threads, ident, tid, false, ret))
			return 0;
		interp = next;
	}
	return err ? err : -ENOENT;
}
