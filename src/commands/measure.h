/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `gil` and `offcpu` have in common: the agent itself, in this process, on one process and for
 * a while. Its rows go to a function of the command's instead of a database.
 */
#ifndef UNDERSPAN_MEASURE_H
#define UNDERSPAN_MEASURE_H

#include "config.h"
#include "pipeline/column.h"

/* What the command wants to see. */
struct measure {
	struct string_list trackers;
	/* Watching the GIL needs a Python whose GIL can be watched: ends at once where there is
	 * none. */
	bool of_gil;
	uint64_t default_duration_ns; /* without -d; 0: until it is stopped */
	bool progress;		      /* says how far it is, where stderr is a terminal */
	void (*row)(const struct table *table, const void *row);
	void (*each_second)(void); /* may be NULL */
};

/* What is known when it is over. Times: CLOCK_MONOTONIC. */
struct measured {
	uint32_t host_pid;
	char comm[64];
	uint64_t begin_ns, end_ns; /* the process was watched */
	bool gone;		   /* it ended meanwhile */
	uint64_t lost;	 /* events of the trackers that became no rows, for want of room */
	char method[32]; /* of watching the GIL */
};

/* -p and -d. */
extern const struct option_table measure_options;

/* The options of a tracker; the commands' are theirs, too. */
struct option_table measure_tracker_options(const char *tracker);

/* Each row counts here: the governor stays out of it. What keeps it cheap is that it is short. */
int measure_govern_nothing(struct why *why);

/* Is there one process to look at? -EINVAL, -ESRCH with why. To be asked before anything costs. */
int measure_check(struct measured *ret, struct why *why);

/* Returns 0, or -errno with why. SIGINT and SIGTERM end it early, which is no error. */
int measure_run(const struct measure *measure, struct measured *ret, struct why *why);

/* What was printed must have been written: 0, or -EIO with why. */
int measure_flush(struct why *why);

/* The command's last act, when all its files are written: see agent_give_back(). */
void measure_end(void);

static inline double measured_seconds(const struct measured *m)
{
	return (double)(m->end_ns - m->begin_ns) / 1e9;
}

#endif
