/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running agent: trackers, discovery and pipeline around one epoll loop, the collector. Other
 * threads are the pipeline's writer and sender, and the readers (readers.h).
 */
#ifndef UNDERSPAN_AGENT_H
#define UNDERSPAN_AGENT_H

#include "config.h"
#include "pipeline/pipeline.h"
#include "util.h"

struct agent_options {
	struct string_list trackers; /* empty: all */
	struct pid_list pids;	     /* empty: every Python process of the host */
	uint64_t duration_ns;	     /* 0: until a signal */
	uint64_t report_interval_ns; /* of ebpf_agent rows */
	const char *host;	     /* NULL: the machine's name */
	struct pipeline_limits limits;
	/*
	 * SIGHUP: reads the configuration once more, into these options as well; 0 or -errno with
	 * why, and then nothing has changed. NULL: SIGHUP is ignored.
	 */
	int (*reload)(struct agent_options *options, struct why *why);
};

struct agent;

/*
 * Checks the host and loads the trackers; attaches nothing yet. SIGTERM and SIGINT, which
 * stop_block_signals() has blocked, end the process meanwhile (see stop.h).
 */
int agent_new(const struct agent_options *options, struct agent **ret_agent, struct why *why);

/*
 * Attaches, finds the Python processes, logs "ready" and runs until SIGTERM, SIGINT, the end of
 * duration_ns, or until `watch_fd` (-1: none) becomes readable, which is an error: it is the
 * store child. Takes `sink` over. Blocks SIGTERM and SIGINT; one that came before ends it, too.
 * Returns 0, or -errno with why: something did not start, or rows could not be delivered.
 */
int agent_run(struct agent *agent, struct sink *sink, int watch_fd, struct why *why);

/*
 * False: a thread waits for a file that does not answer, and what it may use yet is not freed. No
 * signal ends it, and the process is there as long as it is: see agent_give_back().
 */
bool agent_free(struct agent *agent);

/*
 * The last act of a process that cannot end: closes all its files but the first three. With them
 * go its probes, its BPF programs and the spool's lock, of which the next agent is in need.
 */
void agent_give_back(void);

#endif
