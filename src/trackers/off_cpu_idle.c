// SPDX-License-Identifier: Apache-2.0
/* Idle threads by their Python stacks. See off_cpu_idle.h. */
#include "trackers/off_cpu_idle.h"

#include <string.h>

struct place {
	const char *function, *file; /* the end of its path */
};

/* Frames of waiting itself. */
static const struct place waiting[] = {
	{ "wait", "/threading.py" },
	{ "wait_for", "/threading.py" },
	{ "get", "/queue.py" },
	{ "get", "/multiprocessing/queues.py" },
	{ "recv", "/multiprocessing/connection.py" },
	{ "recv_bytes", "/multiprocessing/connection.py" },
	{ "_recv_bytes", "/multiprocessing/connection.py" },
	{ "_recv", "/multiprocessing/connection.py" },
	{ "__enter__", "/multiprocessing/synchronize.py" },
};

/* Loops of pools: when they wait, they wait for work. */
static const struct place loops[] = {
	{ "_worker", "/concurrent/futures/thread.py" },
	{ "_process_worker", "/concurrent/futures/process.py" },
	{ "worker", "/multiprocessing/pool.py" },
	{ "_handle_tasks", "/multiprocessing/pool.py" },
	{ "_handle_results", "/multiprocessing/pool.py" },
	{ "handler_thread", "/waitress/task.py" },
	{ "run", "/cheroot/workers/threadpool.py" },
	{ "run", "/anyio/_backends/_asyncio.py" },
	{ "_monitor", "/logging/handlers.py" },
	{ "dequeue", "/logging/handlers.py" },
	{ "_target", "/sentry_sdk/worker.py" },
};

/* What threading has outside of the function that a thread was started with, innermost first. */
static const struct place thread_begin[] = {
	{ "_bootstrap_inner", "/threading.py" },
	{ "_bootstrap", "/threading.py" },
};
static const struct place thread_run = { "run", "/threading.py" };

/* Does `text`, of which there are `length` bytes, end with `end`? */
static bool ends_with(const char *text, size_t length, const char *end)
{
	size_t n = strlen(end);

	return length >= n && strncmp(text + length - n, end, n) == 0;
}

/* "Class.function (path:line)", before 3.11 without the class; a path may be relative. */
static bool is_at(const char *frame, const struct place *place)
{
	const char *path = strstr(frame, " ("), *end = strrchr(frame, ':');
	size_t function = strlen(place->function), length, name;

	if (!path || !end || end < path + 2)
		return false;
	name = (size_t)(path - frame);
	path += 2;
	length = (size_t)(end - path);
	if (!ends_with(frame, name, place->function) ||
	    (name > function && frame[name - function - 1] != '.'))
		return false;
	return ends_with(path, length, place->file) ||
	       (length == strlen(place->file) - 1 && ends_with(path, length, place->file + 1));
}

static bool is_one_of(const char *frame, const struct place *places, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (is_at(frame, &places[i]))
			return true;
	}
	return false;
}
#define IS_ONE_OF(frame, places) is_one_of(frame, places, sizeof(places) / sizeof((places)[0]))

/* Is frame `i` the function that a thread was started with, or the thread's own run()? */
static bool is_outermost(const struct column_strings *stack, size_t i)
{
	const char *const *left = stack->items + i + 1;
	size_t n = stack->n - i - 1;

	if (n && is_at(left[0], &thread_run)) {
		left++;
		n--;
	}
	return n == 2 && is_at(left[0], &thread_begin[0]) && is_at(left[1], &thread_begin[1]);
}

bool off_cpu_waits_for_work(const struct column_strings *py_stack)
{
	size_t i = 0;

	while (i < py_stack->n && IS_ONE_OF(py_stack->items[i], waiting))
		i++;
	if (i == py_stack->n)
		return false;
	if (IS_ONE_OF(py_stack->items[i], loops))
		return true;
	/* a Timer or the like: run() of threading itself waits */
	return i > 0 && is_outermost(py_stack, i);
}
