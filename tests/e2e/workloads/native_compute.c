// SPDX-License-Identifier: Apache-2.0
/* A library with a thread of its own that computes, for on_cpu_truth.py. */
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_t thread;
static int tid;

static void *compute(void *seconds)
{
	struct timespec used = { 0 };

	tid = (int)syscall(SYS_gettid);
	while (used.tv_sec < *(int *)seconds)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return NULL;
}

void begin(int seconds)
{
	static int the_seconds;

	the_seconds = seconds;
	pthread_create(&thread, NULL, compute, &the_seconds);
}

/* The thread's id. */
int end(void)
{
	pthread_join(thread, NULL);
	return tid;
}
