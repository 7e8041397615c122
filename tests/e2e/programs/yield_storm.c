// SPDX-License-Identifier: Apache-2.0
/*
 * yield_storm SECONDS: the maximum rate of context switches. On each CPU two real-time processes
 * yield to each other for four fifths of the time. Prints the children's pids, starts on a line of
 * input, reports when all children sleep (the kernel's counts of their switches are final then),
 * and ends at the end of input.
 */
#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_NS = 250000000, STORM_NS = 200000000, MAX_CHILDREN = 64 };

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void child(int cpu, double seconds, int go, int done, int forever)
{
	struct sched_param priority = { .sched_priority = 1 };
	cpu_set_t cpus;
	uint64_t end;
	char c;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) ||
	    sched_setscheduler(0, SCHED_FIFO, &priority))
		err(1, "scheduler");
	if (read(go, &c, 1) < 0)
		err(1, "read");
	end = now() + (uint64_t)(seconds * 1e9);
	while (now() < end) {
		uint64_t at = now() % PERIOD_NS;

		if (at >= STORM_NS)
			usleep((PERIOD_NS - at) / 1000 + 1);
		for (int i = 0; i < 100; i++)
			sched_yield();
	}
	if (write(done, "x", 1) < 0 || read(forever, &c, 1) < 0)
		err(1, "pipe");
	_exit(0);
}

int main(int argc, char **argv)
{
	double seconds = argc == 2 ? atof(argv[1]) : 0;
	int go[2], done[2], forever[2], n = 0;
	pid_t pids[MAX_CHILDREN];
	cpu_set_t cpus;
	char line[80];

	if (pipe(go) || pipe(done) || pipe(forever) || sched_getaffinity(0, sizeof(cpus), &cpus))
		err(1, "pipe");
	for (int cpu = 0; cpu < CPU_SETSIZE && n + 2 <= MAX_CHILDREN; cpu++) {
		for (int i = 0; i < 2 && CPU_ISSET(cpu, &cpus); i++) {
			pids[n] = fork();
			if (!pids[n]) {
				close(go[1]);
				close(forever[1]);
				child(cpu, seconds, go[0], done[1], forever[0]);
			}
			printf("%d ", pids[n++]);
		}
	}
	puts("");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		seconds = 0;
	close(go[1]);
	for (int i = 0; i < n; i++) {
		if (read(done[0], line, 1) != 1)
			err(1, "read");
	}
	puts("done");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	return 0;
}
