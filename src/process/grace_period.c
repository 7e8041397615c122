// SPDX-License-Identifier: Apache-2.0
/* Which processes live long enough to be reported. See grace_period.h. */
#include "process/grace_period.h"

#include <time.h>

#include "base/retry_queue.h"
#include "base/clock.h"
#include "host/proc.h"
#include "process/process_table.h"

/* A process of the table, verified by `serial`. */
struct grace_period {
	struct retry_item retry;
	uint32_t host_pid;
	uint64_t serial;
};

static void on_end(struct retry_item *item, uint64_t now_ns);

static struct retry_queue queue = { .delays_ms = { GRACE_PERIOD_MS },
				    .max = SIZE_MAX,
				    .run = on_end };
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
		s = retry_item_new(&queue, sizeof(*s));
	if (!s) {
		make_reportable(p);
		return;
	}
	s->host_pid = p->host_pid;
	s->serial = p->serial = ++serials;
	retry_item_wait(&queue, &s->retry, 0, clock_monotonic_ns());
}

void grace_period_checked(struct process *p)
{
	if (p->reportable && hooks.checked)
		hooks.checked(p);
	else
		p->check_waits = true;
}

static void on_end(struct retry_item *item, uint64_t now_ns)
{
	const struct grace_period *s = (const struct grace_period *)item;
	struct process *p = process_find(s->host_pid);
	bool early = now_ns == UINT64_MAX; /* the exit event may be pending */

	if (p && p->serial == s->serial && (!early || proc_start_time(s->host_pid)))
		make_reportable(p);
	retry_item_free(&queue, item);
}

void grace_period_tick(uint64_t now_ns)
{
	retry_queue_tick(&queue, now_ns);
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
	retry_queue_tick(&queue, UINT64_MAX);
}

void grace_period_stop(void)
{
	retry_queue_clear(&queue);
}
