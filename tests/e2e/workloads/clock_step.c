// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into the agent: shifts CLOCK_REALTIME by the seconds in $CLOCK_STEP_FILE, a shared
 * int64. A real step would affect the whole machine.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;

__attribute__((constructor)) static void open_step(void)
{
	const char *path = getenv("CLOCK_STEP_FILE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);

	seconds = memory == MAP_FAILED ? NULL : memory;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int result = (int)syscall(SYS_clock_gettime, id, ts);

	if (result == 0 && id == CLOCK_REALTIME && seconds)
		ts->tv_sec += *seconds;
	return result;
}
