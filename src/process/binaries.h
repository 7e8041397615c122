/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python binaries in use on this host: each file (executable or libpython) is read and probed once
 * per inode, for all processes and containers, also through different overlays. Unused binaries are
 * retired after a while.
 */
#ifndef UNDERSPAN_PROCESS_BINARIES_H
#define UNDERSPAN_PROCESS_BINARIES_H

#include <stdbool.h>
#include <stdint.h>

#include "process/binary.h"

void binaries_init(const struct binaries_hooks *hooks);

/*
 * Retires all binaries. Probes are removed on other threads, which takes time in the kernel;
 * binaries_done() waits for them, at most two seconds. False: not done.
 */
void binaries_retire_all(void);
bool binaries_done(void);

/*
 * Answers at once for a known file; otherwise the file is read first (examine.h), once for all
 * askers, on a reader thread.
 */
void binaries_ask(struct binary_request *request);

/* Whether reading the file is stalled. */
bool binaries_stalled(const struct binary_request *request);

/* Whether another binary can be probed. If not, starts to retire unused binaries. */
bool binaries_have_room(void);

void binary_hold(struct python_binary *binary);
void binary_release(struct python_binary *binary);

/* Retires binaries unused for a while. */
void binaries_tick(uint64_t now_ns);

#endif
