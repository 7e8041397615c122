/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads as the module threading of another process knows them: the dict threading._active, which
 * threading.current_thread() itself looks into, of the main interpreter.
 */
#ifndef UNDERSPAN_PYTHON_THREADS_H
#define UNDERSPAN_PYTHON_THREADS_H

#include "python/objects.h"

enum { PYTHON_THREAD_NAME_MAX = 512 };

/* Where one process has it, and what makes it quick to read again. */
struct python_threads {
	uint64_t active;    /* threading._active; 0: not found */
	uint64_t n_modules; /* in sys.modules when it was looked for */
	uint64_t str_type;
	struct python_key name, native_id; /* attributes of a Thread */
};

/*
 * The main interpreter of the runtime at this address, or -EINVAL when what is there does not
 * behave like one.
 */
int python_main_interpreter(struct remote *r, uint64_t runtime, uint64_t *ret);

/* -ENOENT when threading is not imported, at once when nothing was imported since the last time. */
int python_threads_find(struct remote *r, uint64_t runtime, struct python_threads *threads);

/*
 * The name of a thread. `ident` is its pthread_self(), as threading.get_ident() gives it; 0: not
 * known, and the thread is searched by `tid`, its native id. A thread of that ident whose native
 * id is another one is not this thread: -ENOENT. The main thread of a process is, for a forked one
 * still has its parent's native id.
 */
int python_thread_name(struct remote *r, struct python_threads *threads, uint64_t ident,
		       uint32_t tid, bool is_main, char ret[PYTHON_THREAD_NAME_MAX]);

/*
 * The same for threads that are not the main interpreter's: those of each other one are looked for
 * anew, which takes a read for each of its modules. -ENOENT where there is none.
 */
int python_thread_name_elsewhere(struct remote *r, uint64_t runtime, uint64_t ident, uint32_t tid,
				 char ret[PYTHON_THREAD_NAME_MAX]);

#endif
