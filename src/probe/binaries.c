// SPDX-License-Identifier: Apache-2.0
/* The Python binaries in use, each read and probed once. See binaries.h. */
#include "probe/binaries.h"

#include <string.h>
#include <time.h>
#include <utlist.h>

#include "log.h"
#include "probe/clock.h"
#include "probe/examine.h"
#include "readers.h"

/* Long enough that a restarting service finds its probes still in place. */
static const uint64_t UNUSED_BINARY_KEEP_NS = 30 * NSEC_PER_SEC;

/* What was said of a file, so that each exec costs a look-up and not a look into the file. */
struct verdict {
	struct file_identity identity;
	enum binary_kind kind;
	struct python_binary *binary; /* BINARY_PYTHON: known by the file's identity elsewhere */
	bool no_room;
	struct why why;
	UT_hash_handle hh;
};
enum { MAX_VERDICTS = 4096 };

static struct python_binary *binaries;
static struct verdict *verdicts;
static bool id_used[MAX_BINARIES];
static struct binaries_hooks hooks;
static struct python_binary *leaving; /* let go, but not all of their links are closed */

void binaries_init(const struct binaries_hooks *with)
{
	hooks = *with;
}

static void forget_verdict(struct verdict *v)
{
	HASH_DEL(verdicts, v);
	free(v);
}

/* `of`: only those on the files of this binary. */
static void forget_verdicts(const struct python_binary *of)
{
	struct verdict *v, *next;

	HASH_ITER(hh, verdicts, v, next)
	{
		if (!of || v->binary == of)
			forget_verdict(v);
	}
}

static void remember_verdict(const struct file_identity *identity, enum binary_kind kind,
			     const struct binary_file *file, const struct why *why)
{
	struct verdict *v;

	if (HASH_COUNT(verdicts) >= MAX_VERDICTS)
		forget_verdicts(NULL);
	v = calloc(1, sizeof(*v));
	if (!v)
		return; /* it will be looked at again */
	v->identity = *identity;
	v->kind = kind;
	v->binary = file->binary;
	v->no_room = file->no_room;
	v->why = *why;
	HASH_ADD(hh, verdicts, identity, sizeof(v->identity), v);
}

/* ---- binaries ---- */

static int take_id(void)
{
	for (int i = 0; i < MAX_BINARIES; i++) {
		if (!id_used[i]) {
			id_used[i] = true;
			return i;
		}
	}
	return -1;
}

/* Its number stays taken until none of its probes can fire any more. */
static void binary_let_go(struct python_binary *binary)
{
	HASH_DEL(binaries, binary);
	forget_verdicts(binary);
	hooks.leave(binary, hooks.context);
	binary->next = leaving;
	leaving = binary;
	links_retire(binary->links, MAX_TRACKERS, &binary->detached);
}

static void forget_detached(void)
{
	for (struct python_binary **at = &leaving; *at;) {
		struct python_binary *binary = *at;

		if (!atomic_load(&binary->detached)) {
			at = &binary->next;
			continue;
		}
		*at = binary->next;
		id_used[binary->id] = false;
		free(binary);
	}
}

/* What is kept only for the case that it comes back. */
static void let_unused_go(void)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	{
		if (!b->users)
			binary_let_go(b);
	}
}

bool binaries_have_room(void)
{
	for (int i = 0; i < MAX_BINARIES; i++) {
		if (!id_used[i])
			return true;
	}
	let_unused_go();
	return false;
}

/* ---- files that are being read ---- */

/* A file that does not answer takes a reader for as long: the readers are not for these alone. */
enum { MAX_READ_AT_ONCE = 8 };
static struct examination *examinations; /* in the order of their begin */
static size_t n_given;

/*
 * Containers of one image run one file, each through an overlay of its own, which gives it another
 * device. Probes are in the file below; the kernel does not say which that is, but it shows the
 * probes of a binary that is known already in the memory of the process. To probe that file again
 * would make each probe of it dearer, for all.
 */
static bool may_be_same(const struct file_identity *a, const struct file_identity *b)
{
	struct file_identity same = *a;

	if (a->overlay_ctime_ns)
		same.dev = b->dev;
	return !memcmp(&same, b, sizeof(same));
}

static bool is_probed(const struct python_binary *binary)
{
	for (size_t i = 0; i < MAX_TRACKERS; i++) {
		if (binary->links[i].n)
			return true;
	}
	return false;
}

static void add_candidates(struct examination *e)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	{
		struct examine_candidate *c = &e->candidates[e->n_candidates];

		if (e->n_candidates == MAX_CANDIDATES || !may_be_same(&e->identity, &b->identity))
			continue;
		binary_hold(b);
		e->n_candidates++;
		c->binary = b;
		memcpy(c->build_id, b->image.build_id, sizeof(c->build_id));
		c->build_id_len = b->image.build_id_len;
		c->is_probed = is_probed(b);
		c->has_site = b->image.n_gc_exit > 0;
		c->site = b->image.gc_exit[0];
		c->load_va = b->image.load_va;
	}
}

/* One of the same file, or of what may turn out to be the same one. */
static struct examination *find_examination(const struct file_identity *identity)
{
	struct examination *e;

	DL_FOREACH(examinations, e)
	{
		if (may_be_same(identity, &e->identity))
			break;
	}
	return e;
}

static void examined(struct job *job);

static struct examination *new_examination(const struct binary_question *q)
{
	struct examination *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->job = (struct job){
		.host_pid = q->host_pid, .finds_processes = true, .run = examine, .done = examined
	};
	e->library = q->library;
	e->identity = q->identity;
	e->hooks = &hooks;
	e->kind = BINARY_UNKNOWN;
	e->id = take_id();
	add_candidates(e);
	DL_APPEND(examinations, e);
	return e;
}

static void end_examination(struct examination *e)
{
	DL_DELETE(examinations, e);
	n_given -= e->given;
	for (size_t i = 0; i < e->n_candidates; i++)
		binary_release(e->candidates[i].binary);
	if (e->id >= 0 && !e->binary)
		id_used[e->id] = false;
	free(e);
}

/* Puts what was found out where recall() finds it. */
static void learn(const struct examination *e)
{
	struct binary_file file = { .binary = e->same, .no_room = e->no_room };

	if (e->binary)
		HASH_ADD(hh, binaries, identity, sizeof(e->identity), e->binary);
	else
		remember_verdict(&e->identity, e->kind, &file, &e->why);
}

static bool recall(struct binary_question *q)
{
	struct verdict *v;

	q->file = (struct binary_file){ .dev = q->identity.dev, .ino = q->identity.ino };
	q->kind = BINARY_PYTHON;
	HASH_FIND(hh, binaries, &q->identity, sizeof(q->identity), q->file.binary);
	if (q->file.binary)
		return true;
	q->kind = BINARY_UNKNOWN;
	HASH_FIND(hh, verdicts, &q->identity, sizeof(q->identity), v);
	if (v && v->no_room && binaries_have_room()) {
		forget_verdict(v);
		v = NULL;
	}
	if (!v)
		return false;
	q->kind = v->kind;
	q->file.binary = v->binary;
	q->file.no_room = v->no_room;
	q->why = v->why;
	return true;
}

/*
 * `of_first`: what the one whose process ran the file is told where nothing is to be remembered.
 * Others may have asked for another file, or run it still: they ask again, unless `all`.
 */
static void answer(struct binary_question *askers, enum binary_kind of_first, bool all)
{
	struct binary_question *q, *next;
	bool first = true;

	LL_FOREACH_SAFE(askers, q, next)
	{
		if (!first && !all) {
			binaries_ask(q);
			continue;
		}
		if (!recall(q))
			q->kind = of_first;
		q->answered(q);
		first = false;
	}
}

static struct examination *first_waiting(void)
{
	struct examination *e;

	DL_FOREACH(examinations, e)
	{
		if (!e->given)
			break;
	}
	return e;
}

/* Gives the readers as many as they are to have at once. */
static void give_waiting(void)
{
	struct examination *e;

	while (n_given < MAX_READ_AT_ONCE && (e = first_waiting())) {
		struct binary_question *askers = e->askers;

		e->given = readers_give(&e->job);
		n_given += e->given;
		if (e->given)
			continue;
		end_examination(e);
		answer(askers, BINARY_UNKNOWN, true);
	}
}

static void examined(struct job *job)
{
	struct examination *e = (struct examination *)job;
	struct binary_question *askers = e->askers;
	enum binary_kind kind = job->ran ? e->kind : BINARY_UNKNOWN;
	bool ended = !job->ran;

	if (kind != BINARY_UNKNOWN && (kind != BINARY_REFUSED || e->why.text[0]))
		learn(e);
	end_examination(e);
	answer(askers, kind, ended);
	if (!ended)
		give_waiting();
}

void binaries_ask(struct binary_question *q)
{
	struct examination *e;

	q->next = NULL;
	if (recall(q)) {
		q->answered(q);
		return;
	}
	e = find_examination(&q->identity);
	if (!e)
		e = new_examination(q);
	if (!e) {
		q->answered(q);
		return;
	}
	LL_APPEND(e->askers, q);
	if (!e->given)
		give_waiting();
}

bool binaries_held_up(const struct binary_question *q)
{
	const struct examination *e = find_examination(&q->identity);

	return e && e->given && readers_held_up_by(e->job.host_pid);
}

void binary_hold(struct python_binary *binary)
{
	binary->users++;
}

void binary_release(struct python_binary *binary)
{
	if (--binary->users == 0)
		binary->unused_since_ns = clock_monotonic_ns();
}

void binaries_tick(uint64_t now_ns)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	{
		if (b->users || now_ns - b->unused_since_ns < UNUSED_BINARY_KEEP_NS)
			continue;
		log_info("%s: no process uses it any more, its probes are removed", b->path);
		binary_let_go(b);
	}
	forget_detached();
}

void binaries_leave_all(void)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	binary_let_go(b);
}

void binaries_done(void)
{
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

	binaries_leave_all();
	for (forget_detached(); leaving; forget_detached())
		nanosleep(&pause, NULL);
	forget_verdicts(NULL);
}
