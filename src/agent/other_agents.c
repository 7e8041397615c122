// SPDX-License-Identifier: Apache-2.0
/* Agents of this host. See other_agents.h. */
#include "agent/other_agents.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "host/proc.h"

/* A link per process is read: 3 us each. */
static const uint64_t EVERY_NS = 60 * NSEC_PER_SEC;

/* ---- which processes are agents ---- */

static bool runs_underspan(uint32_t pid)
{
	char name[32], path[PATH_MAX];
	const char *base;
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%u/exe", pid);
	n = readlink(name, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	base = strrchr(path, '/');
	return base && (!strcmp(base, "/underspan") || !strcmp(base, "/underspan (deleted)"));
}

static bool is_of_our_users(uint32_t pid)
{
	struct stat own, its;
	char name[40];

	snprintf(name, sizeof(name), "/proc/%u/ns/user", pid);
	return !stat("/proc/self/ns/user", &own) && !stat(name, &its) && own.st_dev == its.st_dev &&
	       own.st_ino == its.st_ino;
}

/*
 * A program's name proves nothing, but the right to trace a host does: who has it in this user
 * namespace needs no false alarm.
 */
static bool may_trace(uint32_t pid)
{
	char text[8192], *line;
	uint64_t caps = 0;

	if (!is_of_our_users(pid) || proc_read(pid, "status", text, sizeof(text)) <= 0)
		return false;
	line = strstr(text, "\nCapEff:");
	if (line)
		sscanf(line, "\nCapEff: %" SCNx64, &caps);
	return caps & (1ULL << CAP_SYS_ADMIN | 1ULL << CAP_BPF);
}

struct search {
	struct other_agent *found;
	size_t n;
};

/*
 * Helpers of an agent, and its store, are children of the same program. The command line is the
 * process's memory, which may not answer: only of one that has the right to trace anyway.
 */
static void look_at(uint32_t pid, void *context)
{
	static char words[64 << 10];
	struct search *search = context;
	struct other_agent *other = &search->found[search->n];
	ssize_t n;

	if (search->n == OTHER_AGENTS_MAX || pid == (uint32_t)getpid() || !runs_underspan(pid) ||
	    !may_trace(pid) || runs_underspan(proc_parent(pid)))
		return;
	n = proc_read(pid, "cmdline", words, sizeof(words));
	if (n <= 0 || !agent_line_parse(words, (size_t)n, &other->line))
		return;
	other->pid = pid;
	other->start_time = proc_start_time(pid);
	search->n += other->start_time != 0;
}

size_t other_agents_find(struct other_agent ret[OTHER_AGENTS_MAX])
{
	struct search search = { .found = ret };

	proc_for_each(look_at, &search);
	return search.n;
}

/* ---- warnings ---- */

static struct {
	uint32_t pid;
	uint64_t start_time;
} told[OTHER_AGENTS_MAX];
static size_t n_told;

static void tell(const struct other_agent *other)
{
	for (size_t i = 0; i < n_told; i++) {
		if (told[i].pid == other->pid && told[i].start_time == other->start_time)
			return;
	}
	if (n_told == ARRAY_SIZE(told))
		return;
	told[n_told].pid = other->pid;
	told[n_told++].start_time = other->start_time;
	log_warn(
		"process %u is an agent (underspan run) that watches the same processes: " OTHER_AGENTS_ADVICE,
		other->pid);
}

void other_agents_tick(uint64_t now_ns)
{
	static struct other_agent found[OTHER_AGENTS_MAX];
	static struct agent_line own;
	static uint64_t next_ns;
	static char words[64 << 10];
	size_t n;
	ssize_t len;

	if (now_ns < next_ns)
		return;
	if (!next_ns) {
		len = proc_read((uint32_t)getpid(), "cmdline", words, sizeof(words));
		if (len <= 0 || !agent_line_parse(words, (size_t)len, &own)) {
			next_ns = UINT64_MAX; /* no rows for a database */
			return;
		}
	}
	next_ns = now_ns + EVERY_NS;
	n = other_agents_find(found);
	for (size_t i = 0; i < n; i++) {
		if (agent_lines_meet(&own, &found[i].line))
			tell(&found[i]);
	}
}
