/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishes the interpreter addresses of each process to BPF, for trackers that walk Python stacks
 * of threads (bpf/python/threads.bpf.h).
 */
#ifndef UNDERSPAN_PROCESS_RUNTIME_ADDRESSES_H
#define UNDERSPAN_PROCESS_RUNTIME_ADDRESSES_H

#include "process/process.h"

/* Sets the maps of bpf/python/processes.bpf.h. */
void runtime_addresses_start(int processes_fd, int binaries_fd);

/* Whether thread states can be found, by pthread_self() or thread id. */
bool runtime_addresses_walkable(const struct python_binary *binary);

/* The process appeared, or called exec(). */
void runtime_addresses_appeared(uint32_t host_pid);
/* The process ends, but is still in the table. */
void runtime_addresses_gone(uint32_t host_pid);

/* Retries interpreters that were not initialized. */
void runtime_addresses_tick(void);

#endif
