/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live part of measure_command.h: runs the agent in this process for selected processes
 * (watched.h) for a limited time. Rows go to a function of the command instead of a database.
 */
#ifndef UNDERSPAN_COMMANDS_MEASURE_H
#define UNDERSPAN_COMMANDS_MEASURE_H

#include "base/config.h"
#include "rows/column.h"

/* Parameters of a measurement. */
struct measure {
	struct string_list trackers;
	const char *probes;	      /* of these trackers: reports to watched_health() */
	const char *needs;	      /* the tracker without which there is no result; NULL: any */
	bool needs_probes;	      /* ends at once if no process can be probed */
	uint64_t default_duration_ns; /* without -d; 0: until stopped */
	bool progress;		      /* shows progress if stderr is a terminal */
	void (*row)(const struct table *table, const void *row);
	void (*each_second)(void); /* may be NULL */
};

/* The last word of the needed tracker about something of the host, as connections in TLS. */
struct measured_word {
	char what[24], text[200];
};

enum { MEASURED_WORDS = 12 };

/* Result. Times: CLOCK_MONOTONIC. */
struct measured {
	uint32_t host_pid;	   /* first of the given pids */
	char comm[64];		   /* its comm, printable */
	uint64_t begin_ns, end_ns; /* start and end of the measurement */
	bool gone;		   /* all given processes have ended */
	uint64_t lost;		   /* events of the first tracker, lost for lack of space */
	struct measured_word words[MEASURED_WORDS];
	size_t n_words;
	struct why refused; /* why the needed tracker does not run; "": it runs */
	char method[32];    /* of the probes; "": none */
};

/* -p and -d. */
extern const struct option_table measure_options;

/* Options of a tracker, which are also options of the command. */
struct option_table measure_tracker_options(const char *tracker);

/* config_parse() for a command with pids as words. */
int measure_parse(const struct option_table *tables, int argc, char **argv, struct why *why);

/* The pids given; whether -d is given. After measure_parse(). */
const struct pid_list *measure_pids(void);
bool measure_is_timed(void);

/*
 * Checks that a process exists, before any expensive step. -EINVAL, -ESRCH with why. `ret` names
 * the process, also if missing.
 */
int measure_check(struct measured *ret, struct why *why);

/* The same, but no pid given: all Python processes of the host. */
int measure_check_any(struct measured *ret, struct why *why);

/* Returns 0, or -errno with why. SIGINT and SIGTERM end the measurement early without error. */
int measure_run(const struct measure *measure, struct measured *ret, struct why *why);

/* For each_second(): whether a tracker measures now, see agent_measures(). */
bool measure_runs(const char *tracker);

/* Ends measure_run() as Ctrl-C does, with the results so far. Any thread. */
void measure_end_early(void);

/* Flushes stdout: 0, or -EIO with why. */
int measure_flush(struct why *why);

/* To be called last, after all files are written: see agent_give_back(). */
void measure_end(void);

static inline double measured_seconds(const struct measured *m)
{
	return (double)(m->end_ns - m->begin_ns) / 1e9;
}

#endif
