// SPDX-License-Identifier: Apache-2.0
/* The parts of a request. See parts.h. */
#include "commands/requests/parts.h"

#include <string.h>

#include "base/nearest.h"

const struct ledger_part request_parts[REQUEST_PARTS] = {
	{ "accept_queue", .hidden = true, .may_be_null = true, .reason = "accept" },
	{ "client_wait", .may_be_null = true, .reason = "arrival" },
	{ "queue", .hidden = true, .may_be_null = true, .reason = "arrival" },
	{ "pool_wait", .hidden = true },
	{ "cpu" },
	{ "runq", .hidden = true },
	{ "throttled", .hidden = true },
	{ "gil", .hidden = true, .may_be_null = true, .reason = "gil" },
	{ "gc_own", .may_be_null = true, .reason = "gc" },
	{ "gc_sibling", .hidden = true, .may_be_null = true, .reason = "gc" },
	{ "lock" },
	{ "net" },
	{ "disk" },
	{ "fault" },
	{ "sleep" },
	{ "pipe" },
	{ "child" },
	{ "other" },
	{ "await" },
	{ "loop_busy", .hidden = true },
	{ "client_slow" },
};

int request_part_find(const char *name, struct why *why)
{
	struct nearest nearest;
	char hint[128];

	nearest_begin(&nearest, name, strlen(name));
	for (int i = 0; i < REQUEST_PARTS; i++) {
		if (!strcmp(request_parts[i].name, name))
			return i;
		nearest_try(&nearest, request_parts[i].name);
	}
	nearest_try(&nearest, "endpoint");
	return why_fail(why, EINVAL, "by: '%.64s' is no part of a request%s", name,
			nearest_hint(&nearest, "",
				     "; use endpoint, or a part: see `underspan requests --help`",
				     hint, sizeof(hint)));
}

const char *request_reason_words(const char *reason)
{
	static const struct {
		const char *reason, *words;
	} known[] = {
		{ "gil", "waits for the GIL had no probes there: their time is in lock" },
		{ "gc", "collections had no probes there: their time is in cpu and gil" },
		{ "arrival", "when the bytes arrived was not seen: the wait before the read "
			     "is missing" },
		{ "accept", "the wait in the accept queue was not seen and is missing" },
		{ "work_elsewhere", "the handler's thread is not known: the parts are those of "
				    "the thread that read" },
		{ "head_split", "the head came in pieces: method, path and trace id may be "
				"missing" },
		{ "pipelined", "sent before the answer to the request before: its own begin "
			       "is not known" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!strcmp(known[i].reason, reason))
			return known[i].words;
	}
	return NULL;
}
