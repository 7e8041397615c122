// SPDX-License-Identifier: Apache-2.0
/* The end of a process whose main thread does not come back. See stop_guard.h. */
#include "base/stop_guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"

enum { STEP_MS = 100, BEGIN_MS = 2000, LATE_MS = 4800, STACK_BYTES = 64 << 10 };

static int signals_fd = -1;
static void (*when_late)(void);

/* Returns when a signal is pending, or the main thread says that the stop begins. */
static void wait_for_stop(void)
{
	struct pollfd fds[] = { { .fd = signals_fd, .events = POLLIN },
				{ .fd = stop_begun_fd(), .events = POLLIN } };

	while (poll(fds, ARRAY_SIZE(fds), -1) <= 0)
		;
}

static bool stop_has_begun(void)
{
	struct pollfd begun = { .fd = stop_begun_fd(), .events = POLLIN };

	return poll(&begun, 1, 0) == 1;
}

/*
 * A step by the clock, as a busy machine makes each longer. A process that was stopped meanwhile
 * has its time still before it.
 */
static unsigned int step_ms(void)
{
	uint64_t begin_ns = clock_monotonic_ns(), passed_ms;

	poll(NULL, 0, STEP_MS);
	passed_ms = (clock_monotonic_ns() - begin_ns) / NSEC_PER_MSEC;
	return passed_ms < 2 * STEP_MS ? (unsigned int)passed_ms : 2 * STEP_MS;
}

/*
 * A main thread that has not taken the signal has probes set, whose removal takes the kernel a
 * second or two.
 */
static void *guard(void *nothing)
{
	wait_for_stop();
	for (unsigned int ms = 0; ms < LATE_MS && (ms < BEGIN_MS || stop_has_begun());)
		ms += step_ms();
	when_late();
	_exit(1);
	return nothing;
}

int stop_guard_start(void (*late)(void), struct why *why)
{
	sigset_t signals;
	int err;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	signals_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals_fd < 0 || stop_begun_fd() < 0)
		return why_fail(why, errno, "cannot wait for signals: %s", strerror(errno));
	when_late = late;
	err = thread_start_detached(guard, NULL, STACK_BYTES);
	return err ? why_fail(why, err, "cannot start a thread: %s", strerror(err)) : 0;
}
