/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that go on when a measurement ends. A wait is known when it is over; a thread that slept
 * all the time, maybe for ever, would be missed by who looks for it. What a thread neither ran nor
 * is known to have waited, by the kernel's own count of its CPU time, it waits still.
 */
#ifndef UNDERSPAN_OPEN_WAITS_H
#define UNDERSPAN_OPEN_WAITS_H

#include <stdint.h>

struct open_wait {
	uint32_t host_tid;
	char thread[64];  /* as the kernel calls it */
	char syscall[32]; /* that it is in now; '' none */
	uint64_t ns;	  /* of the measurement, that is not in its results */
};

/* Notes how long each thread ran so far. */
void open_waits_begin(uint32_t host_pid);

/*
 * Calls `each` with those that, between then and `end_ns`, waited longer than `waited` says, which
 * is what is known of a thread's waits: by half a second, and a tenth of the time.
 */
void open_waits_end(uint64_t (*waited)(uint32_t host_tid), uint64_t end_ns,
		    void (*each)(const struct open_wait *wait));

#endif
