// SPDX-License-Identifier: Apache-2.0
/* The parts of a request. See parts.h. */
#include "commands/request_parts.h"

#include <string.h>

#include "base/nearest.h"
#include "base/util.h"

const struct ledger_part request_parts[REQUEST_PARTS] = {
	{ "accept_queue", "accept queue: connected, not accepted", "accept queue", .hidden = true,
	  .may_be_null = true, .reason = "accept" },
	{ "client_wait", "client: had not sent its request", "wait for the client",
	  .may_be_null = true, .reason = "arrival" },
	{ "queue", "queue: bytes there, not read", "queue", .hidden = true, .may_be_null = true,
	  .reason = "arrival" },
	{ "pool_wait", "pool: read, no thread ran it", "pool", .hidden = true },
	{ "cpu", "CPU", "CPU" },
	{ "runq", "run queue: ready, no CPU free", "run queue", .hidden = true },
	{ "throttled", "throttled: CPU quota used up", "CPU quota", .hidden = true },
	{ "gil", "GIL: another thread had it", "GIL", .hidden = true, .may_be_null = true,
	  .reason = "gil" },
	{ "gc_own", "GC: collections of its own", "collections of its own", .may_be_null = true,
	  .reason = "gc" },
	{ "gc_sibling", "GC: collections of other threads", "collections of other threads",
	  .hidden = true, .may_be_null = true, .reason = "gc" },
	{ "lock", "lock", "lock" },
	{ "net", "network", "network" },
	{ "disk", "disk", "disk" },
	{ "fault", "page faults", "page faults" },
	{ "sleep", "asleep", "sleep" },
	{ "pipe", "pipe", "pipe" },
	{ "child", "child process", "child process" },
	{ "other", "off the CPU otherwise", "other waits" },
	{ "await", "awaited: event loop had nothing to do", "await" },
	{ "loop_busy", "loop busy: several requests open", "busy loop", .hidden = true },
	{ "client_slow", "client: did not take the answer", "slow client" },
};

/* Names of trackers, tables and other reports, with the parts that they are here. */
static const char *part_of(const char *name)
{
	static const char *const others[][2] = {
		{ "gil_wait", "gil" },	       { "handoff", "queue" },
		{ "hand_off", "queue" },       { "gc", "gc_own, or gc_sibling" },
		{ "gc_pause", "gc_own" },      { "tcp_accept", "accept_queue" },
		{ "accept", "accept_queue" },  { "loop", "loop_busy" },
		{ "loop_stall", "loop_busy" }, { "cpu_throttle", "throttled" },
		{ "throttle", "throttled" },   { "on_cpu", "cpu" },
		{ "network", "net" },	       { "db", "net" },
		{ "database", "net" },	       { "io", "disk, or net" },
		{ "run_queue", "runq" },       { "off_cpu", "sleep, lock, net or disk" },
		{ "path", "endpoint" },	       { "url", "endpoint" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (!strcmp(others[i][0], name))
			return others[i][1];
	}
	return NULL;
}

int request_part_find(const char *name, struct why *why)
{
	struct nearest nearest;
	char hint[128];

	if (strchr(name, ','))
		return why_fail(why, EINVAL, "by: one part at a time, as in --by=%.*s",
				(int)strcspn(name, ","), name);
	if (part_of(name))
		return why_fail(why, EINVAL, "by: '%s' is no part of a request: use --by=%s", name,
				part_of(name));
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

const struct ledger_part *request_part_named(const char *name)
{
	for (int i = 0; i < REQUEST_PARTS; i++) {
		if (!strcmp(request_parts[i].name, name))
			return &request_parts[i];
	}
	return NULL;
}

/* ---- reasons ---- */

static const struct {
	const char *reason, *words;
} reasons[] = {
	{ "gil", "waits for the GIL have no probe in this process: their time is in lock and CPU" },
	{ "gc", "collections have no probe in this process: their time is in CPU and GIL" },
	{ "arrival", "when the first byte came was not seen: the wait before the read is missing" },
	{ "accept", "the wait in the accept queue was not seen and is missing" },
	{ "work_elsewhere",
	  "other threads worked for the request, or may have: their CPU, locks and disks "
	  "are not in the parts" },
	{ "head_split",
	  "not all of the head was looked at: method, path and trace id may be missing" },
	{ "pipelined",
	  "sent before the previous request was answered: the wait includes parts of the "
	  "previous request" },
	{ "unsent",
	  "written, but not all sent: the client got the rest later, for its own reading or the "
	  "network" },
	{ "nagle",
	  "written, but the kernel held the last bytes back until the client acknowledged earlier "
	  "ones (Nagle's algorithm): up to 40 ms more for the client; the server should set "
	  "TCP_NODELAY, or write head and body at once" },
};

const char *request_reason_words(const char *reason)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		if (!strcmp(reasons[i].reason, reason))
			return reasons[i].words;
	}
	return NULL;
}

const char *request_reason_tracker(const char *reason)
{
	return !strcmp(reason, "gil") ? "gil_wait" : !strcmp(reason, "gc") ? "gc_pause" : NULL;
}

json_t *request_parts_json(void)
{
	json_t *parts = json_array(), *words = json_object();

	for (int i = 0; i < REQUEST_PARTS; i++)
		json_array_append_new(parts,
				      json_pack("{s:s, s:s, s:b}", "name", request_parts[i].name,
						"words", request_parts[i].words, "hidden",
						request_parts[i].hidden));
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		json_object_set_new(words, reasons[i].reason, json_string(reasons[i].words));
	return json_pack("{s:o, s:o}", "parts", parts, "reasons", words);
}
