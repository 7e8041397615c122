// SPDX-License-Identifier: Apache-2.0
/* Stop requests during the start. See stop.h. */
#include "base/stop.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

static const uint64_t STOP_NS = 5 * NSEC_PER_SEC;

static uint64_t begun_ns; /* written by the collector thread only; 0: not stopping */

sigset_t stop_block_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* RLIMIT_FSIZE is handled like a full disk */
	return signals;
}

static int begun_fd = -1;

int stop_begun_fd(void)
{
	if (begun_fd < 0)
		begun_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return begun_fd;
}

void stop_begins(void)
{
	if (begun_ns)
		return;
	begun_ns = clock_monotonic_ns();
	if (begun_fd >= 0)
		eventfd_write(begun_fd, 1);
}

bool stop_requested(void)
{
	sigset_t pending;

	if (sigpending(&pending) ||
	    (sigismember(&pending, SIGTERM) != 1 && sigismember(&pending, SIGINT) != 1))
		return false;
	stop_begins();
	return true;
}

uint64_t stop_left_ns(uint64_t reserve_ns)
{
	uint64_t gone = begun_ns ? clock_monotonic_ns() - begun_ns + reserve_ns : 0;

	return gone < STOP_NS ? STOP_NS - gone : 0;
}

static void (*before_end)(void);

static void end_at_once(int signal_number)
{
	(void)signal_number;
	before_end();
	_exit(0);
}

static void let_through(bool through)
{
	struct sigaction action = { .sa_handler = through ? end_at_once : SIG_DFL };
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	/* blocked while the handlers change: no signal can be lost */
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	if (through)
		pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

void stop_at_once_begin(void (*before)(void))
{
	before_end = before;
	let_through(true);
}

void stop_at_once_end(void)
{
	let_through(false);
}
