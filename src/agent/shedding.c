// SPDX-License-Identifier: Apache-2.0
/*
 * The governor's last resort: trackers are taken out, in the order of shed_first, until the rest
 * fits the limit. Without its programs a tracker's cost is unknown, so the cost is remembered and
 * scaled with the host's load; the tracker that was taken out last comes back as soon as it fits,
 * with room to spare. The load of the host may mislead, so there is a trial after governor.retry,
 * and after twice the time when the trial has failed.
 */
#include "agent/governor.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "trackers/take_out.h"

enum {
	INTERVALS_OVER = 3, /* after two intervals the governor samples */
	INTERVALS_OVER_AGAIN = 2,
	INTERVALS_QUIET = 3,
};
/* shares of the limit */
static const double TOLERANCE = 1.1, AIM = 0.9, ROOM = 0.7, NEGLIGIBLE = 0.02;
static const uint64_t LAST_TRIAL_NS = 3600 * NSEC_PER_SEC, BACK_TOO_SOON_NS = 60 * NSEC_PER_SEC;

static const char *name_of(const struct governor *g, size_t i)
{
	return g->set->items[i].tracker->name;
}

/* ---- order ---- */

static bool share_programs(const struct governor *g, size_t a, size_t b)
{
	return g->set->items[a].skeleton == g->set->items[b].skeleton;
}

/* Number of trackers that share programs with tracker `i`, without trackers that are out or chosen.
 */
static size_t n_others(const struct governor *g, size_t i, const bool chosen[MAX_TRACKERS])
{
	size_t n = 0;

	for (size_t k = 0; k < g->set->n; k++)
		n += k != i && share_programs(g, k, i) && !g->set->items[k].out_since_ns &&
		     !chosen[k];
	return n;
}

/* The cost of all trackers that share programs with tracker `i`. */
static double cost_together(const struct governor *g, const struct governor_costs *costs, size_t i)
{
	double sum = 0;

	for (size_t k = 0; k < g->set->n; k++)
		sum += share_programs(g, k, i) ? costs->of[k] : 0;
	return sum;
}

static bool goes_before(const struct governor *g, const struct governor_costs *costs, size_t i,
			size_t other)
{
	const struct tracker *a = g->set->items[i].tracker, *b = g->set->items[other].tracker;
	unsigned int rank = tracker_shed_rank(a, g->shedding.first);
	unsigned int others = tracker_shed_rank(b, g->shedding.first);

	if (rank != others)
		return rank > others;
	if (a->taken_out_last != b->taken_out_last)
		return b->taken_out_last;
	return costs->of[i] > costs->of[other];
}

/* The next tracker to take out; set->n: no tracker whose removal helps. */
static size_t find_next(const struct governor *g, const struct governor_costs *costs,
			const bool chosen[MAX_TRACKERS])
{
	size_t best = g->set->n;

	for (size_t i = 0; i < g->set->n; i++) {
		if (chosen[i] || !tracker_may_be_taken_out(&g->set->items[i]) ||
		    cost_together(g, costs, i) < NEGLIGIBLE * costs->limit)
			continue;
		if (best == g->set->n || goes_before(g, costs, i, best))
			best = i;
	}
	return best;
}

/* ---- out ---- */

static void take_out(struct governor *g, const struct governor_costs *costs, size_t i,
		     uint64_t now_ns)
{
	struct shedding *s = &g->shedding;

	tracker_take_out(&g->set->items[i], now_ns);
	if (s->back_ns && now_ns - s->back_ns < BACK_TOO_SOON_NS &&
	    s->trial_after_ns < LAST_TRIAL_NS)
		s->trial_after_ns *= 2;
	s->order[s->n++] = i;
	s->out_ns = now_ns;
	s->load_then = s->load;
	s->quiet = 0;
	log_warn(
		"governor: %s is taken out: in the kernel the trackers cost %.2f %% of this host's "
		"CPU, the limit is %.2f; from now on it measures nothing",
		name_of(g, i), costs->all, costs->limit);
}

/* Trackers to take out, in order. */
struct choice {
	size_t items[MAX_TRACKERS], n;
	double saves[MAX_TRACKERS]; /* as far as known, percent of the host's CPU */
	bool chosen[MAX_TRACKERS];  /* by tracker */
	bool unsure;		    /* the last tracker may save more, because of shared programs */
};

/* Until the rest fits, or until the rest has to be measured. Returns the rest. */
static double choose(const struct governor *g, const struct governor_costs *costs,
		     struct choice *choice)
{
	double rest = costs->all, saves;
	size_t i;

	while (rest > AIM * costs->limit && !choice->unsure &&
	       (i = find_next(g, costs, choice->chosen)) < g->set->n) {
		choice->unsure = n_others(g, i, choice->chosen) > 0;
		saves = choice->unsure ? costs->of[i] : cost_together(g, costs, i);
		choice->chosen[i] = true;
		choice->saves[choice->n] = saves;
		choice->items[choice->n++] = i;
		rest -= saves;
	}
	return rest;
}

/* If the last tracker was expensive, some of the earlier trackers may stay. */
static void spare_some(const struct governor_costs *costs, struct choice *choice, double rest)
{
	for (size_t k = choice->n; k-- > 0;) {
		if (choice->unsure || rest + choice->saves[k] > ROOM * costs->limit)
			continue;
		rest += choice->saves[k];
		choice->n--;
		for (size_t m = k; m < choice->n; m++) {
			choice->items[m] = choice->items[m + 1];
			choice->saves[m] = choice->saves[m + 1];
		}
	}
}

static bool take_out_some(struct governor *g, const struct governor_costs *costs, uint64_t now_ns)
{
	struct shedding *s = &g->shedding;
	struct choice choice = { .n = 0 };
	double rest = choose(g, costs, &choice);

	spare_some(costs, &choice, rest);
	for (size_t k = 0; k < choice.n; k++) {
		take_out(g, costs, choice.items[k], now_ns);
		g->items[choice.items[k]].saved = choice.saves[k];
	}
	s->measure_saving = choice.unsure;
	s->before = rest;
	return choice.n > 0;
}

/* ---- back ---- */

/* False: the tracker cannot be put back at present. */
static bool put_back(struct governor *g, const struct governor_costs *costs, uint64_t now_ns)
{
	struct shedding *s = &g->shedding;
	size_t i = s->order[s->n - 1];
	struct why why;
	int err = tracker_put_back(&g->set->items[i], &why);

	if (err == -EAGAIN)
		return false;
	s->n--;
	s->quiet = 0;
	s->back_ns = s->out_ns = now_ns;
	if (err)
		log_warn("governor: %s stays out until the agent is started again: %s",
			 name_of(g, i), why.text);
	else
		log_info(
			"governor: %s is put back: in the kernel the trackers cost %.2f %% of this "
			"host's CPU, the limit is %.2f",
			name_of(g, i), costs->all, costs->limit);
	return true;
}

/* Expected cost of the next tracker to put back, scaled by the host's load. */
static double estimate(const struct shedding *s, const struct governor *g)
{
	return g->items[s->order[s->n - 1]].saved * host_load_ratio(&s->load, &s->load_then);
}

static bool fits_again(const struct governor *g, const struct governor_costs *costs,
		       uint64_t now_ns)
{
	const struct shedding *s = &g->shedding;

	if (costs->limit <= 0)
		return true;
	if (now_ns - s->out_ns >= s->trial_after_ns)
		return costs->all < ROOM * costs->limit;
	return costs->all + estimate(s, g) < ROOM * costs->limit;
}

/* Puts back at least one tracker, and further trackers as long as the limit allows. */
static bool put_back_some(struct governor *g, const struct governor_costs *costs, uint64_t now_ns)
{
	struct shedding *s = &g->shedding;
	double rest = costs->all;
	size_t before = s->n;

	do {
		rest += estimate(s, g);
	} while (put_back(g, costs, now_ns) && s->n &&
		 (costs->limit <= 0 || rest + estimate(s, g) < ROOM * costs->limit));
	s->expected = rest;
	s->before = costs->all;
	if (!s->n)
		s->trial_after_ns = 0;
	return s->n < before;
}

/* In the interval after a change. Adds the measured saving of the tracker taken out last to the
 * known saving; lowers the expected costs if a tracker that was put back costs less than expected.
 */
static void learn(struct governor *g, const struct governor_costs *costs)
{
	struct shedding *s = &g->shedding;
	double share;

	if (s->measure_saving && s->n && s->before > costs->all)
		g->items[s->order[s->n - 1]].saved += s->before - costs->all;
	if (s->expected > s->before && costs->all < s->expected) {
		share = costs->all > s->before
				? (costs->all - s->before) / (s->expected - s->before)
				: 0;
		for (size_t k = 0; k < s->n; k++)
			g->items[s->order[k]].saved *= share;
	}
	s->measure_saving = false;
	s->expected = 0;
}

bool shedding_adjust(struct governor *g, const struct governor_costs *costs, uint64_t now_ns)
{
	struct shedding *s = &g->shedding;
	bool over = costs->limit > 0 && costs->all > TOLERANCE * costs->limit;

	host_load_read(&s->load, now_ns);
	if (!s->trial_after_ns)
		s->trial_after_ns = g->retry_ns;
	learn(g, costs);
	s->over = over ? s->over + 1 : 0;
	if (s->over >= (s->n ? INTERVALS_OVER_AGAIN : INTERVALS_OVER))
		return take_out_some(g, costs, now_ns);
	if (!s->n || over)
		return false;
	s->quiet = fits_again(g, costs, now_ns) ? s->quiet + 1 : 0;
	return s->quiet >= INTERVALS_QUIET && put_back_some(g, costs, now_ns);
}
