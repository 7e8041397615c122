// SPDX-License-Identifier: Apache-2.0
/* Is the state of an interpreter where it should be? See state_check.h. */
#include "probe/state_check.h"

#include <utlist.h>

#include "delay_queue.h"
#include "probe/clock.h"
#include "probe/proc.h"
#include "probe/process_table.h"
#include "readers.h"

static struct delay_queue queues[] = { { 100 }, { 200 }, { 500 }, { 2000 }, { 20000 } };
enum { LAST_STEP = ARRAY_SIZE(queues) - 1, MAX_CHECKS = 65536 };
enum { UNSOUND_LOOKS = 3 }; /* what is read while it changes may look wrong once */

/* The process it is about has it as its `check`; if none has, the check is of one that is gone. */
struct state_check {
	struct delayed delayed;
	uint32_t host_pid;
	uint64_t start_time;
	size_t step;

	struct job job;
	bool told; /* that it is held up */
	struct python_live_place place;
	/* the result */
	int err;
	struct python_live live;
	struct why why;
	struct state_check *prev, *next; /* of those that are being read */
};

static struct state_check_hooks hooks;
static struct state_check *being_read;
static size_t n_checks;

void state_checks_init(const struct state_check_hooks *with)
{
	hooks = *with;
}

static void give_up(struct state_check *check)
{
	struct process *p = process_find(check->host_pid);

	if (p && p->check == check)
		p->check = NULL;
	n_checks--;
	free(check);
}

static void wait_for(struct state_check *check, size_t step, uint64_t now_ns)
{
	check->step = step < LAST_STEP ? step : LAST_STEP;
	delay_queue_push(&queues[check->step], &check->delayed, now_ns);
}

void state_check_soon(struct process *p, uint64_t start_time)
{
	struct state_check *check = n_checks < MAX_CHECKS ? calloc(1, sizeof(*check)) : NULL;

	if (!check)
		return;
	n_checks++;
	check->host_pid = p->host_pid;
	check->start_time = start_time;
	p->check = check;
	wait_for(check, 0, clock_monotonic_ns());
}

static struct state_check *check_of_job(struct job *job)
{
	return (struct state_check *)(void *)((char *)job - offsetof(struct state_check, job));
}

static void read_state(struct job *job)
{
	struct state_check *check = check_of_job(job);

	check->err = python_live_check(job->host_pid, &check->place, &check->live, &check->why);
}

/* True when there is no more to be learned of it. */
static bool judge(struct process *p, const struct state_check *check)
{
	int err = check->err;
	bool unsound, later;

	p->live = check->live;
	p->unread = check->why;
	p->unsound_looks += err == -EBADMSG;
	unsound = err == -EBADMSG && p->unsound_looks >= UNSOUND_LOOKS;
	if (err && check->step < LAST_STEP && !unsound)
		return false;
	/* a program may have the interpreter in it for long before it starts it */
	later = !unsound && (err == -EAGAIN || err == -EBADMSG);
	if (!(later && p->told_unread))
		hooks.checked(p);
	p->told_unread = later;
	if (unsound)
		hooks.unsound(p);
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
		wait_for(check, check->step + 1, clock_monotonic_ns());
}

/* False: the readers have too much to do, or the process holds up its own. */
static bool begin(struct state_check *check, const struct process *p)
{
	check->job = (struct job){ .host_pid = p->host_pid,
				   .finds_processes = true,
				   .run = read_state,
				   .done = have_state };
	check->place = python_live_place_of(&p->file);
	check->live = (struct python_live){ 0 };
	check->why.text[0] = '\0';
	check->told = false;
	if (!readers_give(&check->job))
		return false;
	DL_APPEND(being_read, check);
	return true;
}

static void tell_held_up(void)
{
	struct state_check *check;

	DL_FOREACH(being_read, check)
	{
		struct process *p = process_find(check->host_pid);

		if (check->told || !p || p->check != check || !readers_held_up_by(p->host_pid))
			continue;
		check->told = true;
		why_fail(&p->unread, 0, "its memory, or /proc/%u/maps, does not answer",
			 p->host_pid);
		if (!p->told_unread)
			hooks.checked(p);
	}
}

/* The process ended, and its pid is another one's. */
static bool is_another(const struct state_check *check)
{
	return check->start_time && proc_start_time(check->host_pid) != check->start_time;
}

void state_checks_tick(uint64_t now_ns)
{
	for (size_t step = 0; step <= LAST_STEP; step++) {
		struct state_check *check;

		while ((check = (struct state_check *)delay_queue_pop(&queues[step], now_ns))) {
			struct process *p = process_find(check->host_pid);

			if (!p || p->check != check || !p->file.binary || is_another(check))
				give_up(check);
			else if (!begin(check, p))
				wait_for(check, step, now_ns);
		}
	}
	tell_held_up();
}

void state_checks_stop(void)
{
	for (size_t step = 0; step <= LAST_STEP; step++) {
		struct state_check *check;

		while ((check = (struct state_check *)delay_queue_pop(&queues[step], UINT64_MAX)))
			give_up(check);
	}
}
