/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline's two threads: the writer (seal, spool), and the sender. */
#ifndef UNDERSPAN_PIPELINE_DELIVER_H
#define UNDERSPAN_PIPELINE_DELIVER_H

#include <stdint.h>

#include "base/util.h"

struct pipeline;

int deliver_start(struct pipeline *pipeline, struct why *why);

/*
 * Stops both threads by `deadline_ns`, or a little later. All batches must be closed. Spooled
 * batches that cannot be sent at once stay in the spool. False: a thread is held up by a call that
 * does not return, as on a disk that does not answer, and is left behind: free nothing.
 */
bool deliver_stop(struct pipeline *pipeline, uint64_t deadline_ns);

/* Main functions of the threads: writer.c, deliver.c. */
void *writer_main(void *pipeline);
void *sender_main(void *pipeline);

#endif
