/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline's two threads: the writer (seal, spool), and the sender. */
#ifndef UNDERSPAN_DELIVER_H
#define UNDERSPAN_DELIVER_H

#include <stdint.h>

#include "util.h"

struct pipeline;

int deliver_start(struct pipeline *pipeline, struct why *why);

/*
 * All batches are closed: gives the threads until `deadline_ns` and ends them. What is in the
 * spool and cannot be sent at once is left there.
 */
void deliver_stop(struct pipeline *pipeline, uint64_t deadline_ns);

/* Their main functions, writer.c and deliver.c. */
void *writer_main(void *pipeline);
void *sender_main(void *pipeline);

#endif
