/* SPDX-License-Identifier: Apache-2.0 */
/* CPU times and names of processes and threads, from the kernel. */
#ifndef UNDERSPAN_COMMANDS_TOP_PROC_TIMES_H
#define UNDERSPAN_COMMANDS_TOP_PROC_TIMES_H

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds; 0: it has ended. */
uint64_t proc_times_of_process(uint32_t host_pid);
uint64_t proc_times_of_thread(uint32_t host_pid, uint32_t host_tid);

/* "?": it has ended. */
void proc_times_comm(uint32_t host_pid, char *buf, size_t size);

#endif
