// SPDX-License-Identifier: Apache-2.0
/* Python binaries in use, each read and probed once. See binaries.h. */
#include "process/binaries.h"

#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/log.h"
#include "base/clock.h"
#include "base/stop.h"
#include "process/examine.h"
#include "workers/readers.h"

/* Long enough to keep probes during a service restart. */
static const uint64_t UNUSED_BINARY_KEEP_NS = 30 * NSEC_PER_SEC, DETACH_NS = 2 * NSEC_PER_SEC;
/* Of the time of a stop, for the end of the process. */
static const uint64_t END_RESERVE_NS = 500 * NSEC_PER_MSEC;

/* Cached result of a file: exec() costs a look-up instead of reading the file. */
struct cached_result {
	struct file_identity identity;
	enum binary_kind kind;
	struct python_binary *binary; /* BINARY_PYTHON: found by the file's identity otherwise */
	bool no_room;
	struct why why;
	UT_hash_handle hh;
};
enum { MAX_CACHED_RESULTS = 4096 };

static struct python_binary *binaries;
static struct cached_result *cached_results;
static bool id_used[MAX_BINARIES];
static struct binaries_hooks hooks;
static struct python_binary *retired; /* retired, with links still being closed */

void binaries_init(const struct binaries_hooks *with)
{
	hooks = *with;
}

static void drop_cached_result(struct cached_result *v)
{
	HASH_DEL(cached_results, v);
	free(v);
}

/* `of`: only results for files of this binary. */
static void drop_cached_results(const struct python_binary *of)
{
	struct cached_result *v, *next;

	HASH_ITER(hh, cached_results, v, next)
	{
		if (!of || v->binary == of)
			drop_cached_result(v);
	}
}

static void cache_result(const struct file_identity *identity, enum binary_kind kind,
			 const struct binary_file *file, const struct why *why)
{
	struct cached_result *v;

	if (HASH_COUNT(cached_results) >= MAX_CACHED_RESULTS)
		drop_cached_results(NULL);
	v = calloc(1, sizeof(*v));
	if (!v)
		return; /* will be examined again */
	v->identity = *identity;
	v->kind = kind;
	v->binary = file->binary;
	v->no_room = file->no_room;
	v->why = *why;
	HASH_ADD(hh, cached_results, identity, sizeof(v->identity), v);
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

/* The id stays reserved until no probe can fire. */
static void binary_retire(struct python_binary *binary)
{
	struct link_list *lists[MAX_PROBE_SETS];

	hooks.leave(binary, hooks.context);
	binary->next = retired;
	retired = binary;
	for (size_t i = 0; i < MAX_PROBE_SETS; i++)
		lists[i] = &binary->probes[i].links;
	links_retire(lists, MAX_PROBE_SETS, &binary->detached);
}

static void remove_binary(struct python_binary *binary)
{
	HASH_DEL(binaries, binary);
	drop_cached_results(binary);
	binary_retire(binary);
}

static void free_detached(void)
{
	for (struct python_binary **at = &retired; *at;) {
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

/* Retires unused binaries, kept only for a possible restart. */
static void remove_unused(void)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	{
		if (!b->users)
			remove_binary(b);
	}
}

bool binaries_have_room(void)
{
	for (int i = 0; i < MAX_BINARIES; i++) {
		if (!id_used[i])
			return true;
	}
	remove_unused();
	return false;
}

/* ---- examinations ---- */

static struct examine_job *examine_jobs; /* in order of start */

/*
 * Containers of an image run the same lower file through different overlays, with different device
 * numbers. Probes belong to the lower file, whose identity the kernel does not show, but probes of
 * a known binary are visible in the process's memory. Probing the same file twice would make each
 * probe more expensive.
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
	for (size_t i = 0; i < MAX_PROBE_SETS; i++) {
		if (binary->probes[i].links.n)
			return true;
	}
	return false;
}

static void add_candidates(struct examine_job *e)
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

/*
 * A running examination of the same file, or of a file that may be the same. In an overlay the
 * identity may be forged by the owner (FUSE), and the process's memory is read, too: so a stalled
 * examination of another process is not waited for.
 */
static struct examine_job *find_examine_job(const struct binary_request *request)
{
	struct examine_job *e;

	DL_FOREACH(examine_jobs, e)
	{
		if (request->alone || e->stuck
			    ? e->job.host_pid == request->host_pid &&
				      !memcmp(&request->identity, &e->identity, sizeof(e->identity))
			    : may_be_same(&request->identity, &e->identity))
			break;
	}
	return e;
}

static void on_examined(struct job *job);

static struct examine_job *new_examine_job(const struct binary_request *request)
{
	struct examine_job *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->job = (struct job){
		.host_pid = request->host_pid,
		.file = { request->identity.dev, request->identity.ino },
		.finds_processes = true,
		.run = examine,
		.done = on_examined,
	};
	e->library = request->library;
	e->identity = request->identity;
	e->hooks = &hooks;
	e->kind = BINARY_UNKNOWN;
	e->id = take_id();
	add_candidates(e);
	DL_APPEND(examine_jobs, e);
	return e;
}

static void end_examine_job(struct examine_job *e)
{
	DL_DELETE(examine_jobs, e);
	for (size_t i = 0; i < e->n_candidates; i++)
		binary_release(e->candidates[i].binary);
	if (e->id >= 0 && !e->binary)
		id_used[e->id] = false;
	free(e);
}

/* Caches the result for find_cached(), unless a separate examination was faster. */
static void cache_examined(const struct examine_job *e)
{
	struct binary_file file = { .binary = e->same, .no_room = e->no_room };
	struct python_binary *binary;
	struct cached_result *v;

	HASH_FIND(hh, binaries, &e->identity, sizeof(e->identity), binary);
	HASH_FIND(hh, cached_results, &e->identity, sizeof(e->identity), v);
	if (binary || v) {
		if (e->binary)
			binary_retire(e->binary);
		return;
	}
	if (e->binary)
		HASH_ADD(hh, binaries, identity, sizeof(e->identity), e->binary);
	else
		cache_result(&e->identity, e->kind, &file, &e->why);
}

static bool find_cached(struct binary_request *request)
{
	struct cached_result *v;

	request->file = (struct binary_file){ .dev = request->identity.dev,
					      .ino = request->identity.ino };
	request->kind = BINARY_PYTHON;
	HASH_FIND(hh, binaries, &request->identity, sizeof(request->identity),
		  request->file.binary);
	if (request->file.binary)
		return true;
	request->kind = BINARY_UNKNOWN;
	HASH_FIND(hh, cached_results, &request->identity, sizeof(request->identity), v);
	if (v && v->no_room && binaries_have_room()) {
		drop_cached_result(v);
		v = NULL;
	}
	if (!v)
		return false;
	request->kind = v->kind;
	request->file.binary = v->binary;
	request->file.no_room = v->no_room;
	request->why = v->why;
	return true;
}

/*
 * `of_first`: result for the first asker if the result is not cached. Further askers may run a
 * different file by now, and ask again, unless `all`.
 */
static void answer_askers(struct binary_request *askers, enum binary_kind of_first,
			  const struct why *why, bool all)
{
	struct binary_request *request, *next;
	bool first = true;

	LL_FOREACH_SAFE(askers, request, next)
	{
		if (!first && !all) {
			binaries_ask(request);
			continue;
		}
		if (!find_cached(request)) {
			request->kind = of_first;
			request->why = *why;
		}
		request->answered(request);
		first = false;
	}
}

static void on_examined(struct job *job)
{
	struct examine_job *e = (struct examine_job *)job;
	struct binary_request *askers = e->askers;
	enum binary_kind kind = job->ran ? e->kind : BINARY_UNKNOWN;
	bool all = !job->ran || e->given_up; /* asking again at once would stall, too */
	const struct why why = e->why;

	if (kind != BINARY_UNKNOWN && !e->of_process && (kind != BINARY_REFUSED || why.text[0]))
		cache_examined(e);
	end_examine_job(e);
	answer_askers(askers, kind, &why, all);
}

void binaries_ask(struct binary_request *request)
{
	struct examine_job *e;

	request->next = NULL;
	if (find_cached(request)) {
		request->answered(request);
		return;
	}
	e = find_examine_job(request);
	if (e) {
		request->examine_job = e;
		LL_APPEND(e->askers, request);
		return;
	}
	e = new_examine_job(request);
	request->examine_job = e;
	if (e && readers_submit(&e->job)) {
		LL_APPEND(e->askers, request);
		return;
	}
	if (e)
		end_examine_job(e);
	request->answered(request);
}

bool binaries_stalled(const struct binary_request *request)
{
	return request->examine_job && readers_stalled_by(request->examine_job->job.host_pid);
}

static bool is_stuck(const struct examine_job *e)
{
	return readers_stalled_by(e->job.host_pid) || readers_owner_is_full(e->job.host_pid);
}

/* Each asker beyond the first starts a separate examination. */
static void separate_askers(struct examine_job *e)
{
	struct binary_request *request, *next, *others = e->askers ? e->askers->next : NULL;

	if (!others)
		return;
	e->askers->next = NULL;
	LL_FOREACH_SAFE(others, request, next)
	{
		request->alone = true;
		binaries_ask(request);
	}
}

static void separate_askers_of_stuck(void)
{
	struct examine_job *e, *next;

	DL_FOREACH_SAFE(examine_jobs, e, next)
	{
		if (!e->stuck && !is_stuck(e))
			continue;
		e->stuck = true;
		separate_askers(e);
	}
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
		log_info("%s: no process uses the file any more, the probes are removed", b->path);
		remove_binary(b);
	}
	free_detached();
	separate_askers_of_stuck();
}

void binaries_retire_all(void)
{
	struct python_binary *b, *next;

	HASH_ITER(hh, binaries, b, next)
	remove_binary(b);
}

bool binaries_done(void)
{
	uint64_t left_ns = stop_left_ns(END_RESERVE_NS);
	uint64_t until_ns = clock_monotonic_ns() + (left_ns < DETACH_NS ? left_ns : DETACH_NS);
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

	binaries_retire_all();
	for (free_detached(); retired && clock_monotonic_ns() < until_ns; free_detached())
		nanosleep(&pause, NULL);
	drop_cached_results(NULL);
	return !retired;
}
