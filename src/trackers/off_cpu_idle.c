// SPDX-License-Identifier: Apache-2.0
/* Idle detection by Python stack. See off_cpu_idle.h. */
#include "trackers/off_cpu_idle.h"

#include <string.h>

struct code_location {
	const char *function, *file; /* `file`: suffix of the path */
};

/* Frames of waiting functions. */
static const struct code_location waiting[] = {
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

/* Main loops of pools: waiting there means waiting for work. */
static const struct code_location loops[] = {
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

/* Frames of module threading outside of a thread's target function, innermost first. */
static const struct code_location thread_begin[] = {
	{ "_bootstrap_inner", "/threading.py" },
	{ "_bootstrap", "/threading.py" },
};
static const struct code_location thread_run = { "run", "/threading.py" };

/* Whether `text` of `length` bytes ends with `end`. */
static bool ends_with(const char *text, size_t length, const char *end)
{
	size_t n = strlen(end);

	return length >= n && strncmp(text + length - n, end, n) == 0;
}

/* "Class.function (path:line)", before 3.11 without the class; a path may be relative. */
static bool is_at(const char *frame, const struct code_location *location)
{
	const char *path = strstr(frame, " ("), *end = strrchr(frame, ':');
	size_t function = strlen(location->function), length, name;

	if (!path || !end || end < path + 2)
		return false;
	name = (size_t)(path - frame);
	path += 2;
	length = (size_t)(end - path);
	if (!ends_with(frame, name, location->function) ||
	    (name > function && frame[name - function - 1] != '.'))
		return false;
	return ends_with(path, length, location->file) ||
	       (length == strlen(location->file) - 1 &&
		ends_with(path, length, location->file + 1));
}

static bool is_one_of(const char *frame, const struct code_location *locations, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (is_at(frame, &locations[i]))
			return true;
	}
	return false;
}
#define IS_ONE_OF(frame, locations)                                                                \
	is_one_of(frame, locations, sizeof(locations) / sizeof((locations)[0]))

/* Whether frame `i` is a thread's target function or run(). */
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
	/* a Timer: threading's run() waits */
	return i > 0 && is_outermost(py_stack, i);
}
