// SPDX-License-Identifier: Apache-2.0
/*
 * wakes SECONDS: a thread per CPU calls futex(FUTEX_WAKE) all the time without waking a thread. A
 * tracker that attributes wake-ups by interrupts to the current thread would name these threads.
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
