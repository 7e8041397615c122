// SPDX-License-Identifier: Apache-2.0
/* Waits for another thread in words. See message.h. */
#include "commands/explain/message.h"

#include <string.h>

#include "base/util.h"

const struct message *message_of(const char *library)
{
	static const struct message messages[] = {
		{ "future", "another thread's result (a future)",
		  "less work in the function that gives the result, or, if it waited until a "
		  "thread of its executor was free, more threads there (max_workers)",
		  .fix_if_gave_up = true },
		{ "result", "a result of multiprocessing's pool",
		  "less work in the function that the pool runs, or, if that waited until a "
		  "process was free, more processes in the pool",
		  .fix_if_gave_up = true },
		{ "queue", "an item of a queue",
		  "less time until another thread puts the item, or more threads that do" },
		{ "full_queue", "room in a full queue",
		  "more threads that take items, or less work for each; a larger queue only "
		  "delays the wait",
		  .fix_if_gave_up = true },
		{ "barrier", "other threads at a barrier",
		  "less work in the thread that comes last to the barrier" },
		{ "semaphore", "a semaphore",
		  "a semaphore with a higher count, or less work while it is held",
		  .fix_if_gave_up = true },
		{ "start", "the start of a new thread",
		  "a thread of a pool that exists (ThreadPoolExecutor) instead of a new one in "
		  "the request: a new one waits for a CPU and for the GIL first" },
		{ "join", "the end of another thread (join())",
		  "less work in that thread, or no wait for its end in the request",
		  .fix_if_gave_up = true },
		{ "event", "an event that another thread sets",
		  "less time until another thread sets the event" },
		{ "condition", "a condition of which another thread tells",
		  "less time until another thread calls notify()" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		if (!strcmp(library, messages[i].library))
			return &messages[i];
	}
	return NULL;
}

void message_name_waits(json_t *waits)
{
	json_t *wait;
	size_t i;

	json_array_foreach (waits, i, wait) {
		const char *cause = json_string_value(json_object_get(wait, "cause"));
		const char *library = json_string_value(json_object_get(wait, "library"));
		const struct message *message = cause && library && !strcmp(cause, "lock")
							? message_of(library)
							: NULL;

		if (message)
			json_object_set_new(wait, "waited_for", json_string(message->words));
	}
}
