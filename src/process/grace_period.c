// SPDX-License-Identifier: Apache-2.0
/* Which processes live long enough to be reported. See grace_period.h. */
#include "process/grace_period.h"

#include <time.h>

#include "base/delay_queue.h"
#include "base/clock.h"
#include "host/proc.h"
#include "process/process_table.h"

/* A process of the table, verified by `serial`. */
struct grace_period {
	struct delayed delayed;
	uint32_t host_pid;
	uint64_t serial;
};

static struct delay_queue queue[] = { { GRACE_PERIOD_MS } };
static struct grace_period_hooks hooks;
static uint64_t serials;

void grace_period_init(const struct grace_period_hooks *with)
{
	hooks = *with;
}

static void make_reportable(struct process *p)
{
	p->reportable = true;
	if (hooks.reportable)
		hooks.reportable(p);
	if (p->check_waits && hooks.checked)
		hooks.checked(p);
	p->check_waits = false;
}

/* `start_time`: clock ticks since the boot, including suspend. */
static bool is_old(uint64_t start_time)
{
	struct timespec now;
	uint64_t ms;

	if (!start_time || clock_gettime(CLOCK_BOOTTIME, &now))
		return false;
	ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NSEC_PER_MSEC;
	return ms > start_time * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) + GRACE_PERIOD_MS;
}

void grace_period_begin(struct process *p, uint64_t start_time)
{
	struct grace_period *s = NULL;

	if (p->serial && !p->reportable) /* already waiting */
		return;
	if (!p->reportable && !is_old(start_time))
		s = calloc(1, sizeof(*s));
	if (!s) {
		make_reportable(p);
		return;
	}
	s->host_pid = p->host_pid;
	s->serial = p->serial = ++serials;
	delay_queue_push(queue, &s->delayed, clock_monotonic_ns());
}

void grace_period_checked(struct process *p)
{
	if (p->reportable && hooks.checked)
		hooks.checked(p);
	else
		p->check_waits = true;
}

static void end_due(uint64_t now_ns, bool ask)
{
	struct grace_period *s;

	while ((s = (struct grace_period *)delay_queue_pop(queue, now_ns))) {
		struct process *p = process_find(s->host_pid);

		/* the exit event may be pending */
		if (p && p->serial == s->serial && (!ask || proc_start_time(s->host_pid)))
			make_reportable(p);
		free(s);
	}
}

void grace_period_tick(uint64_t now_ns)
{
	end_due(now_ns, false);
}

void grace_period_repeat(void)
{
	for (struct process *p = process_table(); p; p = p->hh.next) {
		if (!p->reportable)
			continue;
		if (hooks.reportable)
			hooks.reportable(p);
		if (hooks.checked && (p->live.threads || p->unread.text[0]))
			hooks.checked(p);
	}
}

void grace_period_end_all(void)
{
	end_due(UINT64_MAX, true);
}

void grace_period_stop(void)
{
	struct delayed *s;

	while ((s = delay_queue_pop(queue, UINT64_MAX)))
		free(s);
}
