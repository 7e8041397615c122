/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thread names from the module threading of another process: the dict threading._active of the main
 * interpreter, as used by threading.current_thread().
 */
#ifndef UNDERSPAN_CPYTHON_THREADS_H
#define UNDERSPAN_CPYTHON_THREADS_H

#include "cpython/objects.h"

enum { PYTHON_THREAD_NAME_MAX = 512 };

/* Address of threading._active in a process, with cached keys for fast repeated reads. */
struct python_threads {
	uint64_t active;    /* address of threading._active; 0: not found */
	uint64_t n_modules; /* size of sys.modules at the last search */
	uint64_t str_type;
	struct python_key name, native_id; /* attributes of a Thread */
};

/*
 * The main interpreter of the runtime at `runtime`; -EINVAL: not an interpreter.
 */
int python_main_interpreter(struct remote *r, uint64_t runtime, uint64_t *ret);

/* -ENOENT: threading is not imported; immediate if no module was imported since the last call. */
int python_threads_find(struct remote *r, uint64_t runtime, struct python_threads *threads);

/*
 * The name of a thread. `ident`: pthread_self() as in threading.get_ident(); 0: unknown, search by
 * native id `tid`. -ENOENT: a thread with this ident has another native id. The main thread is
 * accepted anyway, since a forked child keeps its parent's native id.
 */
int python_thread_name(struct remote *r, struct python_threads *threads, uint64_t ident,
		       uint32_t tid, bool is_main, char ret[PYTHON_THREAD_NAME_MAX]);

/*
 * The same for threads of subinterpreters: searches each subinterpreter, at a read per module.
 * -ENOENT: not found.
 */
int python_thread_name_elsewhere(struct remote *r, uint64_t runtime, uint64_t ident, uint32_t tid,
				 char ret[PYTHON_THREAD_NAME_MAX]);

#endif
