// SPDX-License-Identifier: Apache-2.0
/* CPU times and names. See proc_times.h. */
#include "commands/top/proc_times.h"

#include <stdio.h>
#include <time.h>

#include "base/util.h"
#include "host/proc.h"

uint64_t proc_times_of_process(uint32_t host_pid)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid((pid_t)host_pid, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t proc_times_of_thread(uint32_t host_pid, uint32_t host_tid)
{
	char path[64], text[128];
	unsigned long long ns;

	snprintf(path, sizeof(path), "task/%u/schedstat", host_tid);
	if (proc_read(host_pid, path, text, sizeof(text)) <= 0 || sscanf(text, "%llu", &ns) != 1)
		return 0;
	return ns;
}

void proc_times_comm(uint32_t host_pid, char *buf, size_t size)
{
	ssize_t len = proc_read(host_pid, "comm", buf, size);

	if (len > 0 && buf[len - 1] == '\n')
		buf[len - 1] = 0;
	if (len <= 0)
		snprintf(buf, size, "?");
}
