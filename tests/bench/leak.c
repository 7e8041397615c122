// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into the agent: leaks the resource named in SOAK_LEAK (memory, fds, maps) in each round
 * of its loop. soak.py must detect the leak: `make soak LEAK=fds` must fail.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static void leak_map(void)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = attr.value_size = 4;
	attr.max_entries = 1;
	syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
}

/* About 10 rounds per second: 20 KB of memory, or a descriptor or a map every three seconds. */
static void leak(const char *what)
{
	static void *volatile leaked; /* otherwise removed by the compiler */
	static unsigned int round;

	if (!strcmp(what, "memory"))
		memset(leaked = malloc(2048), 1, 2048);
	else if (++round % 32 == 0 && !strcmp(what, "fds"))
		(void)!dup(2);
	else if (round % 32 == 0 && !strcmp(what, "maps"))
		leak_map();
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
	static int (*real)(int, struct epoll_event *, int, int);
	const char *what = getenv("SOAK_LEAK");

	if (!real)
		real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	if (what)
		leak(what);
	return real(fd, events, max, timeout);
}
