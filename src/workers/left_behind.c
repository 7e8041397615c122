// SPDX-License-Identifier: Apache-2.0
/* Reader processes of an earlier agent. See left_behind.h. */
#include "workers/left_behind.h"

#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "host/proc.h"

/* proc_owner() takes some 25 us; reading a stack, a few hundred. */
enum { KNOWN_OWNERS = 256 };
static const uint64_t KNOWN_FOR_NS = NSEC_PER_SEC;

static uint64_t owner_of(uint32_t host_pid)
{
	static struct {
		uint64_t owner, until_ns;
		uint32_t host_pid;
	} owners[KNOWN_OWNERS], *known;
	uint64_t now_ns = clock_monotonic_ns();

	known = &owners[host_pid % KNOWN_OWNERS];
	if (known->host_pid != host_pid || now_ns > known->until_ns) {
		known->host_pid = host_pid;
		known->owner = proc_owner(host_pid);
		known->until_ns = now_ns + KNOWN_FOR_NS;
	}
	return known->owner;
}

/*
 * The owner is stored in a resource limit that Linux has ignored since 2.4.30: readable without the
 * process's memory, which a hung call may have locked.
 */
void left_behind_label(uint32_t host_pid)
{
	static uint64_t last;
	uint64_t owner = host_pid ? owner_of(host_pid) : 0;
	struct rlimit limit;

	if (owner == last || getrlimit(RLIMIT_RSS, &limit))
		return;
	limit.rlim_cur = owner;
	if (!setrlimit(RLIMIT_RSS, &limit))
		last = owner;
}

static uint64_t read_label(uint32_t pid)
{
	static const char name[] = "\nMax resident set";
	unsigned long long owner;
	char text[4096];
	const char *line;

	if (proc_read(pid, "limits", text, sizeof(text)) <= 0)
		return 0;
	line = strstr(text, name);
	return line && sscanf(line + sizeof(name) - 1, "%llu", &owner) == 1 ? owner : 0;
}

static bool is_named(uint32_t pid, const char *name)
{
	char comm[64];
	ssize_t n = proc_read(pid, "comm", comm, sizeof(comm));

	return n > 0 && (size_t)n == strlen(name) + 1 && !memcmp(comm, name, strlen(name));
}

static uint64_t hex_field(const char *status, const char *name)
{
	const char *line = strstr(status, name);
	unsigned long long value;

	return line && sscanf(line + strlen(name), "%llx", &value) == 1 ? value : 0;
}

/* A killed process with the readers' name, user and capabilities. */
static bool is_killed_reader(uint32_t pid)
{
	const uint64_t killed = 1ULL << (SIGKILL - 1), reads = 1ULL << CAP_SYS_PTRACE;
	unsigned int uid = 0;
	char status[4096];
	const char *line;

	if (proc_read(pid, "status", status, sizeof(status)) <= 0)
		return false;
	line = strstr(status, "\nUid:");
	return line && sscanf(line, "\nUid: %u", &uid) == 1 && uid == getuid() &&
	       hex_field(status, "\nCapPrm:") & reads &&
	       (hex_field(status, "\nSigPnd:") | hex_field(status, "\nShdPnd:")) & killed;
}

struct found {
	struct left_behind *items;
	size_t n, max;
};

static void look(uint32_t pid, void *context)
{
	struct found *found = context;
	struct left_behind *item = &found->items[found->n];

	if (found->n == found->max || !is_named(pid, READER_NAME) || !is_killed_reader(pid) ||
	    is_named(proc_parent(pid), FORK_SERVER_NAME))
		return;
	item->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	item->owner = read_label(pid);
	found->n += item->pidfd >= 0;
}

size_t readers_left_behind(struct left_behind *ret, size_t max)
{
	struct found found = { ret, 0, max };

	proc_for_each(look, &found);
	return found.n;
}
