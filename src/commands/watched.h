/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of a measurement: the given pids and descendants with interpreters. Records which are
 * measured, by which method, and why others are not.
 */
#ifndef UNDERSPAN_COMMANDS_WATCHED_H
#define UNDERSPAN_COMMANDS_WATCHED_H

#include "base/hash.h"
#include "base/config.h"

struct watched {
	uint32_t host_pid;
	char comm[64]; /* printable */
	bool named;    /* given by -p; otherwise a descendant */
	bool there;    /* given process existed at the start */
	bool gone;     /* has ended since */
	bool live;     /* GIL waits are measured */
	char method[32];
	struct why reason;   /* why GIL waits are not measured; "": unknown */
	uint64_t start_time; /* of a given process: detects pid reuse */
	struct watched *next;
};

/*
 * Records the pids of -p and returns the existing pids in `ret_there` (items freed by the caller).
 * -EINVAL: no pid given; -ESRCH: none exists.
 */
int watched_choose(const struct pid_list *pids, struct pid_list *ret_there, struct why *why);

/* Given processes first, in order. */
struct watched *watched_first(void);

/* "process 12 (gunicorn)", "processes 12 (gunicorn), 34 (celery)": given processes. */
const char *watched_text(void);
const char *watched_short_text(void); /* "process 12", "each of the processes" */

/* Health of gil_wait in a process, from ebpf_probe_health. */
void watched_health(uint32_t host_pid, bool live, const char *method, const char *reason);

/* Checks which given processes have ended; true: all. */
bool watched_all_gone(void);

bool watched_any_live(void);

/* True: every given process is known to be unmeasurable. */
bool watched_none_can_be(void);

/*
 * At the end: sets the reason of unmeasured processes. A given process without Python counts as
 * measured if a descendant is.
 */
void watched_conclude(void);
bool watched_is_unmeasured(const struct watched *w);

/* Logs an error per unmeasured process, the last in `why`. 0: none; -ENOTSUP. */
int watched_say_unmeasured(struct why *why);

void watched_free(void);

#endif
