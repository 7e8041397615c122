/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits still open at the end of a measurement. A wait is recorded at its end, so a thread asleep
 * all the time would be missing. Time that a thread neither ran (kernel's CPU time) nor has
 * recorded waits for is an open wait.
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_OPEN_WAITS_H
#define UNDERSPAN_COMMANDS_OFFCPU_OPEN_WAITS_H

#include <stdint.h>

struct open_wait {
	uint32_t host_tid;
	char thread[64];  /* the kernel's name */
	char syscall[32]; /* current system call; '': none */
	uint64_t ns;	  /* part of the measurement missing in the rows */
};

/* Records the CPU time of each thread. */
void open_waits_begin(uint32_t host_pid);

/*
 * Calls `each` for threads with a wait until `end_ns` that exceeds the recorded time `waited` by at
 * least half a second and a tenth of the measurement.
 */
void open_waits_end(uint64_t (*waited)(uint32_t host_tid), uint64_t end_ns,
		    void (*each)(const struct open_wait *wait));

#endif
