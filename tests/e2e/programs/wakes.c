// SPDX-License-Identifier: Apache-2.0
/*
 * Is in futex(FUTEX_WAKE) most of the time, and wakes nobody: whoever takes the current thread for
 * the cause of what an interrupt does meanwhile, takes this one. One thread a CPU; wakes SECONDS.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static time_t end;

static void *wake(void *word)
{
	while (time(NULL) < end) {
		for (int i = 0; i < 10000; i++)
			syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	static int words[1024];
	pthread_t thread;

	end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
	puts("up");
	fflush(stdout);
	for (long i = 1; i < n && i < 1024; i++)
		pthread_create(&thread, NULL, wake, &words[i]);
	wake(&words[0]);
	return 0;
}
