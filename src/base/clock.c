// SPDX-License-Identifier: Apache-2.0
/* Monotonic to wall time. See clock.h. */
#include "base/clock.h"

#include <pthread.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/util.h"

enum { MAX_PIECES = 32, NOISE_NS = 2000 };

/* Offset of the clocks from since_ns until the next piece. */
struct piece {
	uint64_t since_ns;
	int64_t wall_minus_monotonic_ns;
	int64_t gap_ns; /* duration of the measurement: the error is at most half of it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece pieces[MAX_PIECES]; /* oldest first */
static size_t n_pieces;
static uint64_t last_reading_ns;
static int64_t last_slept_ns; /* CLOCK_BOOTTIME minus CLOCK_MONOTONIC */
static struct clock_step last_step;
static bool step_pending;

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * (int64_t)NSEC_PER_SEC + ts.tv_nsec;
}

uint64_t clock_monotonic_ns(void)
{
	return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_thread_cpu_ns(void)
{
	return (uint64_t)read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_process_cpu_ns(void)
{
	return (uint64_t)read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/* Offset of clock `id` to CLOCK_MONOTONIC. */
static struct piece measure(clockid_t id)
{
	struct piece best = { .gap_ns = INT64_MAX };

	/* the measurement with the shortest duration is the most precise */
	for (int i = 0; i < 8; i++) {
		int64_t before = read_clock(CLOCK_MONOTONIC);
		int64_t other = read_clock(id);
		int64_t after = read_clock(CLOCK_MONOTONIC);

		if (after - before < best.gap_ns)
			best = (struct piece){
				.since_ns = (uint64_t)before,
				.wall_minus_monotonic_ns = other - (before + (after - before) / 2),
				.gap_ns = after - before,
			};
	}
	return best;
}

static void note_step(const struct piece *before, const struct piece *now)
{
	int64_t slept = measure(CLOCK_BOOTTIME).wall_minus_monotonic_ns;

	last_step = (struct clock_step){
		.ns = now->wall_minus_monotonic_ns - before->wall_minus_monotonic_ns,
		.slept_ns = slept - last_slept_ns,
		.after_ns = last_reading_ns,
		.before_ns = now->since_ns,
	};
	if (last_step.slept_ns < (int64_t)NSEC_PER_MSEC)
		last_step.slept_ns = 0;
	last_slept_ns = slept;
	step_pending = true;
}

void clock_calibrate(void)
{
	struct piece now = measure(CLOCK_REALTIME), *last;
	int64_t off;

	pthread_mutex_lock(&lock);
	if (!n_pieces) {
		pieces[n_pieces++] = now;
		last_slept_ns = measure(CLOCK_BOOTTIME).wall_minus_monotonic_ns;
	}
	last = &pieces[n_pieces - 1];
	off = now.wall_minus_monotonic_ns - last->wall_minus_monotonic_ns;
	if (llabs(off) > (now.gap_ns + last->gap_ns) / 2 + NOISE_NS) {
		note_step(last, &now);
		if (n_pieces == MAX_PIECES)
			memmove(pieces, pieces + 1, --n_pieces * sizeof(*pieces));
		pieces[n_pieces++] = now;
	} else if (now.gap_ns < last->gap_ns) {
		last->wall_minus_monotonic_ns = now.wall_minus_monotonic_ns;
		last->gap_ns = now.gap_ns;
	}
	last_reading_ns = now.since_ns;
	pthread_mutex_unlock(&lock);
}

bool clock_take_step(struct clock_step *ret)
{
	bool pending;

	pthread_mutex_lock(&lock);
	pending = step_pending;
	if (pending)
		*ret = last_step;
	step_pending = false;
	pthread_mutex_unlock(&lock);
	return pending;
}

uint64_t clock_wall_us(uint64_t monotonic_ns)
{
	int64_t ns = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = n_pieces; i-- > 0;) {
		ns = (int64_t)monotonic_ns + pieces[i].wall_minus_monotonic_ns;
		if (monotonic_ns >= pieces[i].since_ns)
			break;
	}
	pthread_mutex_unlock(&lock);
	return ns > 0 ? (uint64_t)ns / NSEC_PER_USEC : 0;
}

static int arm(int fd)
{
	/* must never expire: only the cancellation by a step is of use */
	const struct itimerspec never = { .it_value.tv_sec = INT32_MAX };

	return timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL)
		       ? -errno
		       : 0;
}

int clock_watch(void)
{
	int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	int err = fd < 0 ? -errno : arm(fd);

	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

void clock_watch_fired(int fd)
{
	uint64_t expirations;

	if (read(fd, &expirations, sizeof(expirations)) < 0 && errno == ECANCELED)
		clock_calibrate();
	arm(fd);
}
