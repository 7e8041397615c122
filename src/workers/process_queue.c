// SPDX-License-Identifier: Apache-2.0
/* Queues of jobs per process, and shares of owners. See process_queue.h. */
#include "workers/process_queue.h"

#include "base/util.h"
#include "host/proc.h"

void job_list_append(struct job_list *list, struct job *job)
{
	job->next = NULL;
	if (list->first)
		list->last->next = job;
	else
		list->first = job;
	list->last = job;
}

struct job *job_list_take_first(struct job_list *list)
{
	struct job *job = list->first;

	if (job)
		list->first = job->next;
	return job;
}

struct process_queue *process_queue_find(struct process_queues *s, uint32_t host_pid)
{
	struct process_queue *q;

	HASH_FIND(hh, s->all, &host_pid, sizeof(host_pid), q);
	return q;
}

struct process_queue *process_queue_new(struct process_queues *s, uint32_t host_pid)
{
	struct process_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->host_pid = host_pid;
	HASH_ADD(hh, s->all, host_pid, sizeof(q->host_pid), q);
	return q;
}

void process_queue_free(struct process_queues *s, struct process_queue *q)
{
	HASH_DEL(s->all, q);
	free(q);
}

void process_queue_make_ready(struct process_queues *s, struct process_queue *q)
{
	q->next = NULL;
	q->waits_since = s->round;
	if (s->first_ready)
		s->last_ready->next = q;
	else
		s->first_ready = q;
	s->last_ready = q;
}

bool process_queue_stalled(const struct process_queues *s, const struct process_queue *q)
{
	return q->since_round && s->round > q->since_round + READERS_PATIENCE;
}

bool process_queue_starved(const struct process_queues *s, const struct process_queue *q)
{
	return !q->since_round && s->round > q->waits_since + 3 * READERS_PATIENCE;
}

size_t process_queues_count_stalled(const struct process_queues *s)
{
	size_t n = 0;

	for (const struct process_queue *q = s->busy; q; q = q->next)
		n += process_queue_stalled(s, q);
	return n;
}

/* ---- shares of owners ---- */

/* Determined only if readers are short, since the look-up costs microseconds. */
static uint64_t owner_of(struct process_queue *q)
{
	if (!q->owner)
		q->owner = proc_owner(q->host_pid);
	return q->owner;
}

/* Share of an owner: at most as much as remains, so that a further owner finds room. */
static size_t share_of_one(size_t most, size_t all, size_t used)
{
	size_t left = all > used ? all - used : 0;

	return left < most ? left : most;
}

/* Whether the owner's share is not used up. */
static bool has_share(const struct process_queues *s, const struct reader_use *own, uint64_t owner)
{
	size_t used = s->n_busy + reader_processes_hung();

	return own->owner < share_of_one(READERS_OF_OWNER, READERS_MAX, used) &&
	       (!(reader_tenant(owner) & 1) ||
		own->tenant < share_of_one(READERS_OF_TENANT, READERS_MAX, used));
}

/* `stalled`: stalled jobs only. */
static struct reader_use used_by(const struct process_queues *s, uint64_t owner, bool stalled)
{
	struct reader_use use = reader_processes_hung_of(owner);

	for (struct process_queue *q = s->busy; q; q = q->next) {
		if (stalled && !process_queue_stalled(s, q))
			continue;
		use.owner += owner_of(q) == owner;
		use.tenant += reader_tenant(owner_of(q)) == reader_tenant(owner);
	}
	return use;
}

bool process_queues_owner_stalled(const struct process_queues *s, uint64_t owner)
{
	const struct reader_use use = used_by(s, owner, true);

	return use.owner && !has_share(s, &use, owner);
}

static bool owner_has_room(const struct process_queues *s, struct process_queue *q)
{
	struct reader_use use;

	if (s->n_busy + reader_processes_hung() < READERS_OF_OWNER)
		return true;
	use = used_by(s, owner_of(q), false);
	return has_share(s, &use, owner_of(q));
}

/* ---- running jobs ---- */

struct process_queue *process_queue_take_ready(struct process_queues *s)
{
	struct process_queue **at = &s->first_ready, *before = NULL, *q;

	while (*at && !owner_has_room(s, *at)) {
		before = *at;
		at = &before->next;
	}
	q = *at;
	if (q)
		*at = q->next;
	if (q && s->last_ready == q)
		s->last_ready = before;
	return q;
}

void process_queue_begin(struct process_queues *s, struct process_queue *q,
			 struct reader_watch *watch)
{
	q->since_round = s->round;
	q->watch = watch;
	q->next = s->busy;
	s->busy = q;
	s->n_busy++;
}

void process_queue_end(struct process_queues *s, struct process_queue *q)
{
	struct process_queue **at = &s->busy;

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	q->since_round = 0;
	q->watch = NULL;
	s->n_busy--;
	q->n--;
}

void process_queue_give_up(struct process_queue *q)
{
	if (q->watch->give_up) /* its thread may be reading the owner */
		return;
	q->watch->owner = owner_of(q);
	q->watch->give_up = true;
}
