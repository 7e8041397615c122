// SPDX-License-Identifier: Apache-2.0
/*
 * Causes in words. See causes.h. One rule per part of the ledger: a large part names the event, and
 * rows of the same time may name the reason. A rule without evidence for a remedy gives none.
 */
#include "commands/explain/causes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/explain/timeline.h"
#include "base/text.h"
#include "base/util.h"

/* Minimum share of the request, and minimum duration, of a reported part. */
enum { SHARE_PERCENT = 10, LEAST_MS = 2, CAUSES_MAX = 4, SAID_MAX = 512 };

struct cause {
	const char *name; /* as in the JSON */
	double ms;
	char said[SAID_MAX], fix[SAID_MAX];
};

#define SAY(c, ...) snprintf((c)->said, sizeof((c)->said), __VA_ARGS__)
#define FIX(c, ...) snprintf((c)->fix, sizeof((c)->fix), __VA_ARGS__)

/* Of the waits with a cause, where the longest was: ", in PLACE"; "": not known. */
struct place {
	char text[340];
};

static struct place place_of(const json_t *rows, const char *cause)
{
	struct place place = { "" };
	int64_t longest = -1;
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		int64_t us = explain_number(row, "end_us") - explain_number(row, "begin_us");

		if ((cause && strcmp(explain_text(row, "cause"), cause) != 0) || us <= longest ||
		    !*explain_text(row, "place"))
			continue;
		longest = us;
		snprintf(place.text, sizeof(place.text), ", in %.300s", explain_text(row, "place"));
	}
	return place;
}

static const char await_instead[] =
	"use await instead of blocking calls (asyncio.sleep, an asynchronous client, "
	"asyncio.to_thread for computations and for clients without an asynchronous form); more "
	"workers help further requests";

/* The remedy, with the code that blocked the loop longest between two times, if known. */
static void fix_blocked_loop(const json_t *r, struct cause *c, const char *from, const char *to)
{
	int64_t from_us = explain_number(r, from), to_us = explain_number(r, to), longest = 0;
	const json_t *stall, *worst = NULL;
	size_t i;

	json_array_foreach (json_object_get(r, "stalls"), i, stall) {
		int64_t begin = explain_number(stall, "begin_us");
		int64_t end = explain_number(stall, "end_us");
		int64_t us = (end < to_us ? end : to_us) - (begin > from_us ? begin : from_us);

		if (us <= longest || !*explain_text(stall, "place"))
			continue;
		longest = us;
		worst = stall;
	}
	if (!worst) {
		FIX(c, "%s", await_instead);
		return;
	}
	FIX(c, "in %.200s, which kept the event loop for %.1f ms: %s", explain_text(worst, "place"),
	    (double)(explain_number(worst, "end_us") - explain_number(worst, "begin_us")) / 1000,
	    await_instead);
}

/* ---- before the handler ---- */

static const char fix_gil[] = "move that work to another process, or serve with more processes of "
			      "fewer threads";

/* The longest wait for the GIL in [from, to) of a thread that only accepts connections. */
static const json_t *longest_kept(const json_t *r, int64_t from_us, int64_t to_us, double *ret_ms)
{
	const json_t *wait, *longest = NULL;
	int64_t sum = 0, most = 0;
	size_t i;

	json_array_foreach (json_object_get(r, "kept"), i, wait) {
		int64_t begin = explain_number(wait, "begin_us");
		int64_t end = explain_number(wait, "end_us");
		int64_t us = (end < to_us ? end : to_us) - (begin > from_us ? begin : from_us);

		if (us <= 0)
			continue;
		sum += us;
		longest = us > most ? wait : longest;
		most = us > most ? us : most;
	}
	*ret_ms = (double)(sum < to_us - from_us ? sum : to_us - from_us) / 1000;
	return longest;
}

/* Reports a thread that only accepts connections and waited for the GIL most of [from, to). */
static bool kept_by_gil(const json_t *r, struct cause *c, int64_t from_us, int64_t to_us,
			const char *what)
{
	double ms;
	const json_t *wait = longest_kept(r, from_us, to_us, &ms);
	const char *place = explain_text(wait, "place");

	if (ms * 2 < c->ms)
		return false;
	c->name = "gil_before";
	SAY(c, "%s: thread %.60s, which accepts connections, waited for the GIL %.1f ms of that%s",
	    what, thread_label(wait, "tid", "thread_name").text, ms,
	    explain_number(wait, "by_tid") ? "" : "; the holder is not known");
	if (!explain_number(wait, "by_tid"))
		return true;
	snprintf(c->said + strlen(c->said), sizeof(c->said) - strlen(c->said),
		 "; the longest holder was thread %.60s%s%.200s",
		 thread_label(wait, "by_tid", "by_name").text, *place ? ", in " : "", place);
	FIX(c, "%s", fix_gil);
	return true;
}

static void queue(const json_t *r, struct cause *c)
{
	long long busy = explain_number(r, "busy_threads"), threads = explain_number(r, "threads");
	int64_t handled = explain_number(r, "handled_us");
	double pool = explain_ms(r, "pool_wait_ms");

	if (explain_is_loop(r)) {
		c->name = "loop_blocked";
		SAY(c, "the request had arrived, and the event loop did not read it");
		fix_blocked_loop(r, c, "from_us", "handled_us");
		return;
	}
	c->name = "threads_missing";
	if (threads > 0 && busy >= threads && threads == 1) {
		SAY(c,
		    "the only thread that serves requests here was busy with an earlier request");
		FIX(c, "more threads or workers (gunicorn --threads, --workers), or shorter "
		       "requests on that thread");
	} else if (threads > 0 && busy >= threads) {
		SAY(c, "all %lld threads that serve requests here were busy at the arrival",
		    threads);
		FIX(c, "more threads or workers (gunicorn --threads, --workers), or shorter "
		       "requests on these threads");
	} else if (!kept_by_gil(r, c, handled - (int64_t)((c->ms + pool) * 1000), handled,
				"the request had arrived, and no thread read it")) {
		c->name = "queue";
		SAY(c,
		    "the request had arrived, and no thread read it, although only %lld of the "
		    "%lld threads that serve requests here were busy: the cause is not known",
		    busy, threads);
	}
}

static void accept_queue(const json_t *r, struct cause *c)
{
	static const char waited[] = "the connection waited in the listener's accept queue";
	long long busy = explain_number(r, "busy_threads"), threads = explain_number(r, "threads");
	int64_t from = explain_number(r, "from_us");

	if (explain_is_loop(r)) {
		c->name = "workers_missing";
		SAY(c, "%s: the event loop did not accept it", waited);
		fix_blocked_loop(r, c, "from_us", "handled_us");
	} else if (kept_by_gil(r, c, from, from + (int64_t)(c->ms * 1000), waited)) {
		return;
	} else if (threads > 1 && busy < threads) {
		c->name = "accept_queue";
		SAY(c,
		    "%s, although only %lld of the %lld threads that serve requests here were "
		    "busy: the cause is not known",
		    waited, busy, threads);
	} else {
		c->name = "workers_missing";
		SAY(c, "%s: no process accepted it", waited);
		FIX(c, "more workers: a process that serves one request at a time accepts only "
		       "between requests; or shorter requests");
	}
}

static void pool_wait(const json_t *r, struct cause *c)
{
	(void)r;
	c->name = "pool_missing";
	SAY(c, "the request was read, but no thread of the server's pool was free");
	FIX(c, "a larger pool (waitress --threads, anyio's limit of 40 threads), or shorter "
	       "requests in the pool");
}

static void client_wait(const json_t *r, struct cause *c)
{
	(void)r;
	c->name = "client_late";
	SAY(c, "the client had connected, but had not sent the request");
	FIX(c, "a proxy in front that takes whole requests (nginx buffers them)");
}

/* ---- the interpreter ---- */

static const json_t *longest_collection(const json_t *r)
{
	const json_t *row, *longest = NULL;
	int64_t most = -1;
	size_t i;

	json_array_foreach (json_object_get(r, "gc"), i, row) {
		int64_t us = explain_number(row, "end_us") - explain_number(row, "begin_us");

		if (us > most)
			longest = row;
		most = us > most ? us : most;
	}
	return longest;
}

static void put_collection(const json_t *r, struct cause *c, const char *whose)
{
	const json_t *gc = longest_collection(r);
	const char *place = gc ? explain_text(gc, "place") : "";
	size_t n;

	SAY(c, "%s stopped the request", whose);
	n = strlen(c->said);
	if (gc)
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; the longest: generation %lld, thread %.60s%s%.300s",
			 (long long)explain_number(gc, "generation"),
			 thread_label(gc, "tid", "thread_name").text,
			 *place ? ", triggered by " : "", place);
	FIX(c, "gc.freeze() when the application is loaded, before workers fork, so that "
	       "collections skip these objects; higher thresholds (gc.set_threshold); or "
	       "collections between requests");
}

static void gc_sibling(const json_t *r, struct cause *c)
{
	c->name = "gc_sibling";
	put_collection(r, c, "garbage collections of other threads");
}

static void gc_own(const json_t *r, struct cause *c)
{
	c->name = "gc_own";
	put_collection(r, c, "garbage collections triggered by its own thread");
}

static void gil(const json_t *r, struct cause *c)
{
	const json_t *holder = json_array_get(json_object_get(r, "holders"), 0);
	const char *place = explain_text(holder, "place");

	c->name = "gil";
	if (!holder || !explain_number(holder, "tid")) {
		SAY(c, "other threads held the GIL; the holders are not known");
		return;
	}
	SAY(c, "other threads held the GIL, thread %.60s longest (%.1f ms)%s%.300s",
	    thread_label(holder, "tid", "thread_name").text, explain_ms(holder, "held_ms"),
	    *place ? ", in " : "", place);
	FIX(c, "%s", fix_gil);
}

static void lock(const json_t *r, struct cause *c)
{
	c->name = explain_is_loop(r) ? "loop_blocked" : "lock";
	SAY(c, "the thread waited for a lock%s%s",
	    place_of(json_object_get(r, "waits"), "lock").text,
	    explain_has(r, "gil_ms") ? ""
				     : " (waits for the GIL are not measured separately here and "
				       "may be included)");
	if (explain_is_loop(r))
		fix_blocked_loop(r, c, "handled_us", "to_us");
	else if (explain_has(r, "gil_ms"))
		FIX(c, "do less while holding that lock, or provide more of the guarded "
		       "resource (a larger pool of connections)");
}

/* ---- event loops ---- */

static void loop_busy(const json_t *r, struct cause *c)
{
	c->name = "loop_blocked";
	SAY(c,
	    "the event loop ran or was blocked in further requests (%lld open at once): the "
	    "share of each is not known",
	    (long long)explain_number(r, "open_requests"));
	fix_blocked_loop(r, c, "handled_us", "to_us");
}

static void await(const json_t *r, struct cause *c)
{
	(void)r;
	c->name = "await";
	SAY(c, "the coroutine awaited a service, a timer or a thread, and the event loop was "
	       "idle");
}

/* ---- the machine ---- */

static void throttled(const json_t *r, struct cause *c)
{
	const json_t *window = json_array_get(json_object_get(r, "throttle"), 0);
	long long quota = explain_number(window, "quota_us"),
		  period = explain_number(window, "period_us");

	c->name = "cpu_limit";
	if (quota > 0 && period > 0)
		SAY(c, "the CPU quota of %.60s was used up (%.2f CPUs)",
		    explain_text(window, "cgroup"), (double)quota / (double)period);
	else
		SAY(c, "a CPU quota was used up");
	FIX(c, "a higher CPU limit (resources.limits.cpu, CPUQuota=), or fewer threads that "
	       "compute at once");
}

static void runq(const json_t *r, struct cause *c)
{
	(void)r;
	c->name = "cpu_missing";
	SAY(c, "the thread was ready to run, and no CPU was free");
	FIX(c, "a larger instance, or less other work on this host");
}

/* ---- parts of the handler ---- */

/* A blocking call in an event loop stops all requests of the loop, independent of the cause. */
static bool blocks_loop(const json_t *r, struct cause *c, const char *what, const char *cause)
{
	if (!explain_is_loop(r))
		return false;
	c->name = "loop_blocked";
	SAY(c, "a call in a coroutine blocked the event loop's thread (%s)%s", what,
	    place_of(json_object_get(r, "waits"), cause).text);
	fix_blocked_loop(r, c, "handled_us", "to_us");
	return true;
}

static void net(const json_t *r, struct cause *c)
{
	if (blocks_loop(r, c, "a socket", "net"))
		return;
	c->name = "net";
	if (explain_ms(r, "net_peer_ms") > 0)
		SAY(c, "the thread waited for sockets, %.1f ms of it for %.60s port %lld%s",
		    explain_ms(r, "net_peer_ms"), explain_text(r, "net_peer_ip"),
		    (long long)explain_number(r, "net_peer_port"),
		    place_of(json_object_get(r, "waits"), "net").text);
	else
		SAY(c, "the thread waited for sockets%s",
		    place_of(json_object_get(r, "waits"), "net").text);
	FIX(c, "ask that peer less often or for less data; ebpf_tcp_loss shows whether the "
	       "network lost packets");
}

static void disk(const json_t *r, struct cause *c)
{
	if (blocks_loop(r, c, "a disk", "disk"))
		return;
	c->name = "disk";
	SAY(c, "the thread waited for a disk%s",
	    place_of(json_object_get(r, "waits"), "disk").text);
}

static void fault(const json_t *r, struct cause *c)
{
	c->name = "fault";
	SAY(c, "the thread waited for missing pages of memory%s",
	    place_of(json_object_get(r, "waits"), "page_fault").text);
	FIX(c, "more memory, if the host swaps or drops its page cache");
}

static void sleeping(const json_t *r, struct cause *c)
{
	if (blocks_loop(r, c, "a sleep", "sleep"))
		return;
	c->name = "sleep";
	SAY(c, "the code slept%s", place_of(json_object_get(r, "waits"), "sleep").text);
}

static void pipe_wait(const json_t *r, struct cause *c)
{
	if (blocks_loop(r, c, "a pipe", "pipe"))
		return;
	c->name = "pipe";
	SAY(c, "the thread waited for a pipe%s",
	    place_of(json_object_get(r, "waits"), "pipe").text);
}

static void child(const json_t *r, struct cause *c)
{
	if (blocks_loop(r, c, "a child process", "child"))
		return;
	c->name = "child";
	SAY(c, "the thread waited for a child process%s",
	    place_of(json_object_get(r, "waits"), "child").text);
}

static void cpu(const json_t *r, struct cause *c)
{
	c->name = explain_is_loop(r) ? "loop_blocked" : "cpu";
	SAY(c, "the thread computed%s",
	    explain_has(r, "gc_own_ms")
		    ? ""
		    : " (its own collections are not measured separately here)");
	if (explain_is_loop(r))
		fix_blocked_loop(r, c, "handled_us", "to_us");
}

static void client_slow(const json_t *r, struct cause *c)
{
	c->name = "client_slow";
	SAY(c, "the client read the answer (%lld bytes) more slowly than the server wrote",
	    (long long)explain_number(r, "bytes_out"));
	FIX(c, "a proxy in front that takes whole answers (nginx buffers them), or smaller "
	       "answers");
}

static const struct {
	const char *column;
	void (*tell)(const json_t *r, struct cause *c);
} rules[] = {
	{ "accept_queue_ms", accept_queue },
	{ "client_wait_ms", client_wait },
	{ "queue_ms", queue },
	{ "pool_wait_ms", pool_wait },
	{ "cpu_ms", cpu },
	{ "runq_ms", runq },
	{ "throttled_ms", throttled },
	{ "gil_ms", gil },
	{ "gc_own_ms", gc_own },
	{ "gc_sibling_ms", gc_sibling },
	{ "lock_ms", lock },
	{ "net_ms", net },
	{ "disk_ms", disk },
	{ "fault_ms", fault },
	{ "sleep_ms", sleeping },
	{ "pipe_ms", pipe_wait },
	{ "child_ms", child },
	{ "await_ms", await },
	{ "loop_busy_ms", loop_busy },
	{ "client_slow_ms", client_slow },
};

static int by_ms(const void *a, const void *b)
{
	const struct cause *x = a, *y = b;

	return x->ms < y->ms ? 1 : x->ms > y->ms ? -1 : 0;
}

json_t *causes_of(const json_t *request)
{
	struct cause *found = calloc(ARRAY_SIZE(rules), sizeof(*found));
	double whole = explain_ms(request, "duration_ms");
	json_t *causes = found ? json_array() : NULL;
	size_t n = 0;

	for (size_t i = 0; found && i < ARRAY_SIZE(rules); i++) {
		double ms = explain_ms(request, rules[i].column);

		if (ms < LEAST_MS || ms * 100 < whole * SHARE_PERCENT)
			continue;
		found[n].ms = ms;
		rules[i].tell(request, &found[n++]);
	}
	if (n)
		qsort(found, n, sizeof(*found), by_ms);
	for (size_t i = 0; causes && i < n && i < CAUSES_MAX; i++) {
		/* a name may be cut within a character */
		char said[SAID_MAX], fix[SAID_MAX];

		text_printable(said, sizeof(said), found[i].said);
		text_printable(fix, sizeof(fix), found[i].fix);
		json_array_append_new(causes,
				      json_pack("{s:s, s:f, s:s, s:s}", "cause", found[i].name,
						"ms", found[i].ms, "said", said, "fix", fix));
	}
	free(found);
	return causes;
}
