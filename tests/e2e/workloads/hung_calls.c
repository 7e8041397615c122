// SPDX-License-Identifier: Apache-2.0
/*
 * LD_PRELOAD: while the file $HUNG_CALLS exists, calls do not return: each eighth close() of a BPF
 * link or perf event, or each close() of a perf event (as behind a lock in the kernel), or fsync()
 * and fdatasync() (as on a disk that does not answer), by $HUNG_KIND: "links", "events" or "sync".
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int hangs(const char *kind)
{
	const char *file = getenv("HUNG_CALLS"), *wanted = getenv("HUNG_KIND");

	return file && wanted && !strcmp(kind, wanted) && !access(file, F_OK);
}

static void hang(const char *kind)
{
	while (hangs(kind))
		usleep(10000);
}

/* The links of iterators are attached to nothing: the kernel closes them at once. */
static int is_iterator(int fd)
{
	char name[64], text[1024] = "";
	FILE *f;

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
	f = fopen(name, "re");
	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
		fclose(f);
	}
	return strstr(text, "link_type:\titer") != NULL;
}

static int is_a(const char *kind, int fd)
{
	char name[64], target[64] = "";

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return readlink(name, target, sizeof(target) - 1) > 0 && strstr(target, kind);
}

static int is_link(int fd)
{
	return is_a("perf_event", fd) || (is_a("bpf_link", fd) && !is_iterator(fd));
}

int close(int fd)
{
	static atomic_int n;

	if (hangs("links") && is_link(fd) && atomic_fetch_add(&n, 1) % 8 == 0)
		hang("links");
	if (hangs("events") && is_a("perf_event", fd))
		hang("events");
	return ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
}

int fsync(int fd)
{
	hang("sync");
	return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd)
{
	hang("sync");
	return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
