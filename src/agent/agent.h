/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running agent: trackers, discovery and pipeline around an epoll loop on the collector thread.
 * Other threads: the pipeline's writer and sender, and the readers (readers.h).
 */
#ifndef UNDERSPAN_AGENT_AGENT_H
#define UNDERSPAN_AGENT_AGENT_H

#include "agent/options.h"
#include "pipeline/pipeline.h"

struct agent;

/*
 * Checks the host and loads the trackers without attaching. SIGTERM and SIGINT, blocked by
 * stop_block_signals(), end the process during the load (see stop.h).
 */
int agent_new(const struct agent_options *options, struct agent **ret_agent, struct why *why);

/*
 * Attaches, finds Python processes, logs "ready" and runs until SIGTERM, SIGINT, the end of
 * duration_ns, or until `watch_fd` (-1: none) becomes readable: the store child has ended, an
 * error. Takes ownership of `sink`. Blocks SIGTERM and SIGINT; an earlier signal counts, too. 0, or
 * -errno with why: start failed, or rows could not be delivered.
 */
int agent_run(struct agent *agent, struct sink *sink, int watch_fd, struct why *why);

/* Whether a tracker measures now: not refused, and not taken out. Thread: the collector. */
bool agent_measures(const struct agent *agent, const char *tracker);

/* Whether the governor has taken a tracker out. Thread: the collector. */
bool agent_has_out(const struct agent *agent, const char *tracker);

/*
 * False: a thread is still setting or removing probes, or writing to a disk that does not answer;
 * its data are not freed, see agent_give_back(). (Files that may never answer are read in other
 * processes, reader_process.h.)
 */
bool agent_free(struct agent *agent);

/*
 * Last resort of a process that cannot exit: closes all descriptors but the first three, which
 * releases probes, BPF programs and the spool's lock for the next agent.
 */
void agent_give_back(void);

#endif
