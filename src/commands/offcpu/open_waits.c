// SPDX-License-Identifier: Apache-2.0
/* Open waits. See open_waits.h. */
#include "commands/offcpu/open_waits.h"

#include <dirent.h>
#include <string.h>

#include "base/hash.h"
#include "base/clock.h"
#include "host/proc.h"
#include "host/syscall_names.h"
#include "base/text.h"
#include "base/util.h"

struct ran {
	uint32_t host_tid, host_pid;
	uint64_t ns;
	UT_hash_handle hh;
};

/* Shorter open waits are normal. */
static const uint64_t SHORT_NS = NSEC_PER_SEC / 2;

static uint64_t begin_ns;
static struct ran *threads;

static bool read_of_thread(uint32_t pid, uint32_t tid, const char *name, char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%u/%s", tid, name);
	return proc_read(pid, path, buf, size) > 0;
}

/* Total CPU time of a thread; false: ended. */
static bool ran_ns(uint32_t pid, uint32_t tid, uint64_t *ret)
{
	char text[128];
	unsigned long long ns;

	if (!read_of_thread(pid, tid, "schedstat", text, sizeof(text)) ||
	    sscanf(text, "%llu", &ns) != 1)
		return false;
	*ret = ns;
	return true;
}

static void for_each_thread(uint32_t pid, void (*each)(uint32_t pid, uint32_t tid))
{
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	dir = opendir(path);
	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir));) {
		uint32_t tid = (uint32_t)strtoul(e->d_name, NULL, 10);

		if (tid)
			each(pid, tid);
	}
	closedir(dir);
}

static void note(uint32_t pid, uint32_t tid)
{
	struct ran *ran = calloc(1, sizeof(*ran));

	if (!ran)
		return;
	ran->host_tid = tid;
	ran->host_pid = pid;
	if (!ran_ns(pid, tid, &ran->ns)) {
		free(ran);
		return;
	}
	HASH_ADD(hh, threads, host_tid, sizeof(ran->host_tid), ran);
}

void open_waits_begin(uint32_t host_pid)
{
	begin_ns = clock_monotonic_ns();
	for_each_thread(host_pid, note);
}

/* The system call a thread is in; "": none. Threads of the kernel have no registers: all are 0, as
 * in read(). */
static const char *syscall_of(uint32_t pid, uint32_t tid)
{
	unsigned long long sp;
	char text[256];
	int nr;

	if (!read_of_thread(pid, tid, "syscall", text, sizeof(text)) ||
	    sscanf(text, "%d %*s %*s %*s %*s %*s %*s %llx", &nr, &sp) != 2 || !sp)
		return "";
	return syscall_name(nr);
}

static void fill(uint32_t pid, uint32_t tid, struct open_wait *wait)
{
	char text[128];

	if (read_of_thread(pid, tid, "comm", text, sizeof(text))) {
		text[strcspn(text, "\n")] = 0;
		text_printable(wait->thread, sizeof(wait->thread), text);
	}
	snprintf(wait->syscall, sizeof(wait->syscall), "%s", syscall_of(pid, tid));
}

void open_waits_end(uint64_t (*waited)(uint32_t host_tid), uint64_t end_ns,
		    void (*each)(const struct open_wait *wait))
{
	uint64_t wall = end_ns > begin_ns ? end_ns - begin_ns : 0;
	struct ran *ran, *next;

	/* only threads present at the start: start times of later threads are unknown */
	HASH_ITER(hh, threads, ran, next)
	{
		struct open_wait wait = { .host_tid = ran->host_tid };
		uint64_t ns, known = waited(ran->host_tid);

		if (ran_ns(ran->host_pid, ran->host_tid, &ns)) {
			known += ns - ran->ns;
			wait.ns = wall > known ? wall - known : 0;
			if (wait.ns > wall / 10 && wait.ns > SHORT_NS) {
				fill(ran->host_pid, ran->host_tid, &wait);
				each(&wait);
			}
		}
		HASH_DEL(threads, ran);
		free(ran);
	}
}
