// SPDX-License-Identifier: Apache-2.0
/* State check of interpreters. See state_check.h. */
#include "process/state_check.h"

#include <utlist.h>

#include "base/retry_queue.h"
#include "base/clock.h"
#include "host/proc.h"
#include "process/process_table.h"
#include "workers/readers.h"

enum { LAST_STEP = 4, MAX_CHECKS = 65536 };
enum { MAX_INVALID_READS = 3 }; /* state read during a change may look invalid once */

/* Referenced by the process's `check`; without a reference the process is gone. */
struct state_check {
	struct retry_item retry;
	uint32_t host_pid;
	uint64_t start_time;

	struct job job;
	bool reported; /* reported as stalled */
	struct python_live_location location;
	/* the result */
	int err;
	struct python_live live;
	struct why why;
	struct state_check *prev, *next; /* list of running checks */
};

static struct state_check_hooks hooks;
static struct state_check *being_read;

static void on_due(struct retry_item *item, uint64_t now_ns);
static struct retry_queue queue = { .delays_ms = { 100, 200, 500, 2000, [LAST_STEP] = 20000 },
				    .max = MAX_CHECKS,
				    .run = on_due };

void state_checks_init(const struct state_check_hooks *with)
{
	hooks = *with;
}

static void give_up(struct state_check *check)
{
	struct process *p = process_find(check->host_pid);

	if (p && p->check == check)
		p->check = NULL;
	retry_item_free(&queue, &check->retry);
}

static void wait_for(struct state_check *check, size_t step, uint64_t now_ns)
{
	retry_item_wait(&queue, &check->retry, step < LAST_STEP ? step : LAST_STEP, now_ns);
}

void state_check_soon(struct process *p, uint64_t start_time)
{
	struct state_check *check = retry_item_new(&queue, sizeof(*check));

	if (!check)
		return;
	check->host_pid = p->host_pid;
	check->start_time = start_time;
	p->check = check;
	wait_for(check, 0, clock_monotonic_ns());
}

static struct state_check *check_of_job(struct job *job)
{
	return CONTAINER_OF(job, struct state_check, job);
}

static void read_state(struct job *job)
{
	struct state_check *check = check_of_job(job);

	check->err = python_live_check(job->host_pid, &check->location, &check->live, &check->why);
}

/* True: final result. */
static bool judge(struct process *p, const struct state_check *check)
{
	int err = check->err;
	bool state_invalid, later;

	p->live = check->live;
	p->unread = check->why;
	p->invalid_reads += err == -EBADMSG;
	state_invalid = err == -EBADMSG && p->invalid_reads >= MAX_INVALID_READS;
	if (err && check->retry.step < LAST_STEP && !state_invalid)
		return false;
	/* a program may initialize the interpreter much later */
	later = !state_invalid && (err == -EAGAIN || err == -EBADMSG);
	if (!(later && p->unread_reported))
		hooks.checked(p);
	p->unread_reported = later;
	if (state_invalid)
		hooks.state_invalid(p);
	return !later;
}

static void have_state(struct job *job)
{
	struct state_check *check = check_of_job(job);
	struct process *p = process_find(check->host_pid);

	DL_DELETE(being_read, check);
	if (!job->ran || !p || p->check != check || judge(p, check))
		give_up(check);
	else
		wait_for(check, check->retry.step + 1, clock_monotonic_ns());
}

/* False: readers overloaded, or stalled by the process. */
static bool begin(struct state_check *check, const struct process *p)
{
	check->job = (struct job){ .host_pid = p->host_pid,
				   .finds_processes = true,
				   .run = read_state,
				   .done = have_state };
	check->location = binary_live_location(&p->file);
	check->live = (struct python_live){ 0 };
	check->why.text[0] = '\0';
	check->reported = false;
	if (!readers_submit(&check->job))
		return false;
	DL_APPEND(being_read, check);
	return true;
}

static void report_stalled(void)
{
	struct state_check *check;

	DL_FOREACH(being_read, check)
	{
		struct process *p = process_find(check->host_pid);

		if (check->reported || !p || p->check != check || !readers_stalled_by(p->host_pid))
			continue;
		check->reported = true;
		why_fail(&p->unread, 0, "the process's memory or /proc/%u/maps does not answer",
			 p->host_pid);
		if (!p->unread_reported)
			hooks.checked(p);
	}
}

/* The process ended and the pid was reused. */
static bool is_another(const struct state_check *check)
{
	return check->start_time && proc_start_time(check->host_pid) != check->start_time;
}

static void on_due(struct retry_item *item, uint64_t now_ns)
{
	struct state_check *check = (struct state_check *)item;
	struct process *p = process_find(check->host_pid);

	if (!p || p->check != check || !p->file.binary || is_another(check))
		give_up(check);
	else if (!begin(check, p))
		wait_for(check, item->step, now_ns);
}

void state_checks_tick(uint64_t now_ns)
{
	retry_queue_tick(&queue, now_ns);
	report_stalled();
}

void state_checks_stop(void)
{
	retry_queue_clear(&queue);
}
