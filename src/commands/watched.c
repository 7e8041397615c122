// SPDX-License-Identifier: Apache-2.0
/* Processes of a measurement. See watched.h. */
#include "commands/watched.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "host/proc.h"
#include "base/text.h"

enum { NAMED_SHOWN = 8 };

static struct watched *watched_processes, **last = &watched_processes;
static size_t n_all;

static struct watched *find_watched(uint32_t host_pid)
{
	struct watched *w = watched_processes;

	while (w && w->host_pid != host_pid)
		w = w->next;
	return w;
}

static void read_comm(struct watched *w)
{
	char text[64];
	ssize_t len = proc_read(w->host_pid, "comm", text, sizeof(text));

	if (len > 0 && text[len - 1] == '\n')
		text[len - 1] = 0;
	text_printable(w->comm, sizeof(w->comm), len > 0 ? text : "?");
}

static struct watched *add_watched(uint32_t host_pid)
{
	enum { MAX_WATCHED = 20000 };
	struct watched *w = n_all < MAX_WATCHED ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return NULL;
	w->host_pid = host_pid;
	read_comm(w);
	*last = w;
	last = &w->next;
	n_all++;
	return w;
}

/* A number in /proc/PID/status; `missing`: value if absent. */
static unsigned int status_of(const char *text, const char *field, unsigned int missing)
{
	const char *line = strstr(text, field);
	unsigned int value;

	return line && sscanf(line + strlen(field), "%u", &value) == 1 ? value : missing;
}

/* True also for a zombie. (A main thread may end before other threads.) */
static bool has_ended(const struct watched *w)
{
	char text[4096];

	if (proc_start_time(w->host_pid) != w->start_time ||
	    proc_read(w->host_pid, "status", text, sizeof(text)) < 0)
		return true;
	return strstr(text, "\nState:\tZ") && status_of(text, "\nThreads:", 1) <= 1;
}

/* Whether the pid is a process of this host; otherwise sets `reason`. */
static bool is_there(struct watched *w)
{
	char text[4096];
	uint32_t leader;

	w->start_time = proc_start_time(w->host_pid);
	if (!w->start_time || proc_read(w->host_pid, "status", text, sizeof(text)) < 0) {
		proc_say_missing(w->host_pid, &w->reason);
		return false;
	}
	leader = status_of(text, "\nTgid:", w->host_pid);
	if (leader != w->host_pid)
		why_fail(&w->reason, 0, "%u is a thread of process %u: give the pid of the process",
			 w->host_pid, leader);
	return leader == w->host_pid;
}

int watched_choose(const struct pid_list *pids, struct pid_list *ret_there, struct why *why)
{
	*ret_there = (struct pid_list){ calloc(pids->n + 1, sizeof(*pids->items)), 0 };
	if (!ret_there->items)
		return why_fail(why, ENOMEM, "out of memory");
	for (size_t i = 0; i < pids->n; i++) {
		struct watched *w = find_watched(pids->items[i]) ? NULL
								 : add_watched(pids->items[i]);

		if (!w)
			continue;
		w->named = true;
		w->there = is_there(w);
		w->gone = !w->there;
		if (w->there)
			ret_there->items[ret_there->n++] = w->host_pid;
	}
	if (!watched_processes)
		return why_fail(why, EINVAL, "pid: which process? -p PID");
	if (!ret_there->n)
		return why_fail(why, ESRCH, "%s", watched_processes->reason.text);
	return 0;
}

struct watched *watched_first(void)
{
	return watched_processes;
}

const char *watched_short_text(void)
{
	static char text[64];

	snprintf(text, sizeof(text), "process %u", watched_processes->host_pid);
	return watched_processes->next && watched_processes->next->named ? "each of the processes"
									 : text;
}

const char *watched_text(void)
{
	static char text[1024];
	size_t n = 0, shown = 0;
	int len;

	for (const struct watched *w = watched_processes; w; w = w->next)
		n += w->named;
	len = snprintf(text, sizeof(text), "process%s", n > 1 ? "es" : "");
	for (const struct watched *w = watched_processes; w && w->named && shown < NAMED_SHOWN;
	     w = w->next)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "%s %u (%s)",
				shown++ ? "," : "", w->host_pid, w->comm);
	if (n > shown)
		snprintf(text + len, sizeof(text) - (size_t)len, " and %zu more", n - shown);
	return text;
}

void watched_health(uint32_t host_pid, bool live, const char *method, const char *reason)
{
	struct watched *w = find_watched(host_pid);

	if (!w)
		w = add_watched(host_pid);
	if (!w)
		return;
	read_comm(w); /* may have called exec() in between */
	w->live = live;
	snprintf(w->method, sizeof(w->method), "%s", live ? method : "");
	w->reason.text[0] = 0;
	if (!live)
		why_fail(&w->reason, 0, "process %u (%s): the GIL cannot be watched: %.400s",
			 w->host_pid, w->comm, reason);
}

bool watched_all_gone(void)
{
	bool all_gone = true;

	for (struct watched *w = watched_processes; w; w = w->next) {
		if (!w->named)
			continue;
		w->gone |= has_ended(w);
		all_gone &= w->gone;
	}
	return all_gone;
}

bool watched_any_live(void)
{
	const struct watched *w = watched_processes;

	while (w && !w->live)
		w = w->next;
	return w != NULL;
}

bool watched_none_can_be(void)
{
	for (const struct watched *w = watched_processes; w; w = w->next) {
		if (w->live || (w->named && !w->reason.text[0]))
			return false;
	}
	return true;
}

/* The parent of an ended process is unknown: true if a given process may be an ancestor. */
static bool may_descend_from(const struct watched *w, const struct watched *named)
{
	bool only_one = !watched_processes->next || !watched_processes->next->named;

	return only_one || proc_descends_from(w->host_pid, named->host_pid);
}

static bool has_live_descendant(const struct watched *named)
{
	for (const struct watched *w = watched_processes; w; w = w->next) {
		if (w != named && w->live && may_descend_from(w, named))
			return true;
	}
	return false;
}

void watched_conclude(void)
{
	for (struct watched *w = watched_processes; w; w = w->next) {
		if (!w->named || w->live || w->reason.text[0] || has_live_descendant(w))
			continue;
		if (w->gone || has_ended(w))
			why_fail(&w->reason, 0, "process %u (%s) ended before the first check",
				 w->host_pid, w->comm);
		else
			why_fail(&w->reason, 0,
				 "process %u (%s) runs no Python, nor does a descendant: give "
				 "the interpreter's own pid; for details: `underspan doctor -p %u`",
				 w->host_pid, w->comm, w->host_pid);
	}
}

bool watched_is_unmeasured(const struct watched *w)
{
	return !w->live && w->reason.text[0];
}

int watched_say_unmeasured(struct why *why)
{
	const struct watched *before = NULL;

	for (const struct watched *w = watched_processes; w; w = w->next) {
		if (!watched_is_unmeasured(w))
			continue;
		if (before)
			log_error("%s", why->text);
		*why = w->reason;
		before = w;
	}
	return before ? -ENOTSUP : 0;
}

void watched_free(void)
{
	while (watched_processes) {
		struct watched *w = watched_processes;

		watched_processes = w->next;
		free(w);
	}
	last = &watched_processes;
	n_all = 0;
}
