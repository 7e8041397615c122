// SPDX-License-Identifier: Apache-2.0
/* Keeps the agent within its CPU limit. See governor.h. */
#include "agent/governor.h"

#include <bpf/bpf.h>
#include <string.h>

#include "agent/program_costs.h"
#include "base/log.h"
#include "base/clock.h"
#include "workers/reader_process.h"
#include "workers/readers.h"

enum {
	SAMPLE_NS = 100 * 1000 * 1000,
	INTERVALS_OVER = 2, /* before reacting: reading symbols is a one-time cost */
	INTERVALS_QUIET = 3,
	MAX_STEP = 4,
	MAX_SHIFT = 10,
};
static const uint64_t HURRY_NS = NSEC_PER_SEC; /* an interval above the limit */

static double cpu_percent = 1, tracker_cpu_percent = 0.5, rows_per_second = 100;
static bool may_take_out = true;
static uint64_t interval_ns = 5 * NSEC_PER_SEC, retry_ns = 60 * NSEC_PER_SEC;

static const struct option options[] = {
	{ .key = "governor.cpu_percent",
	  .type = OPTION_NUMBER,
	  .target = &cpu_percent,
	  .arg = "P",
	  .help = "limit on the agent's share of the host's CPU, kernel part included; above "
		  "the limit, events are sampled and rows carry weights; where this does not "
		  "help, trackers are taken out for a while; 0: no limit, and no governor",
	  .max = 100,
	  .reloadable = true },
	{ .key = "governor.tracker_cpu_percent",
	  .type = OPTION_NUMBER,
	  .target = &tracker_cpu_percent,
	  .arg = "P",
	  .help = "the same limit for each tracker alone; 0: no limit",
	  .max = 100,
	  .reloadable = true },
	{ .key = "governor.rows_per_second",
	  .type = OPTION_NUMBER,
	  .target = &rows_per_second,
	  .arg = "N",
	  .help = "limit on the rows of each tracker but request, on average of a minute; above "
		  "the limit, events shorter than 32 ms are sampled and rows carry weights; "
		  "0: no limit",
	  .max = 1e9,
	  .reloadable = true },
	{ .key = "governor.interval",
	  .type = OPTION_SECONDS,
	  .target = &interval_ns,
	  .arg = "S",
	  .help = "how often costs are measured",
	  .min = 1,
	  .max = 3600,
	  .reloadable = true },
	{ .key = "governor.take_out",
	  .type = OPTION_BOOL,
	  .target = &may_take_out,
	  .help = "take trackers out where sampling does not hold cpu_percent in the kernel",
	  .reloadable = true },
	{ .key = "governor.retry",
	  .type = OPTION_SECONDS,
	  .target = &retry_ns,
	  .arg = "S",
	  .help = "try a tracker again that was taken out this long ago, also if the load has not "
		  "become less",
	  .min = 1,
	  .max = 3600,
	  .reloadable = true },
};
const struct option_table governor_options = { options, ARRAY_SIZE(options), "Governor" };

/* ns per second as percent of the host's CPU. */
static double percent_of(uint64_t rate)
{
	static long n_cpus;

	if (!n_cpus)
		n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	return (double)rate / 1e7 / (double)(n_cpus > 0 ? n_cpus : 1);
}

static size_t n_items(const struct governor *g)
{
	return g->set->n + 1;
}

static const char *name_of(const struct governor *g, size_t i)
{
	return i < g->set->n ? g->set->items[i].tracker->name : "processes";
}

/* ---- cost in the kernel ---- */

static void begin_sample(struct governor *g, uint64_t now_ns)
{
	uint64_t ns[MAX_TRACKERS + 1], hits[MAX_TRACKERS + 1];

	g->sample_start_ns = now_ns;
	if (g->unmeasured)
		return;
	g->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (g->stats_fd < 0 && !program_costs_kept()) {
		log_info("governor: the run time of BPF programs is not measured (%s): grant "
			 "CAP_SYS_ADMIN, or set sysctl kernel.bpf_stats_enabled=1",
			 strerror(errno));
		g->unmeasured = true;
		return;
	}
	program_costs_read(g->set, ns, hits);
	for (size_t i = 0; i < n_items(g); i++) {
		g->items[i].begin_ns = ns[i];
		g->items[i].begin_hits = hits[i];
	}
}

static void end_sample(struct governor *g, uint64_t now_ns)
{
	uint64_t ns[MAX_TRACKERS + 1], hits[MAX_TRACKERS + 1];
	double scale = (double)(now_ns - g->interval_start_ns) /
		       (double)(now_ns - g->sample_start_ns),
	       seconds = (double)(now_ns - g->interval_start_ns) / 1e9;

	if (g->unmeasured)
		return;
	program_costs_read(g->set, ns, hits);
	if (g->stats_fd >= 0)
		close(g->stats_fd);
	g->stats_fd = -1;
	for (size_t i = 0; i < n_items(g); i++) {
		struct governor_tracker *t = &g->items[i];
		double estimate = (double)(ns[i] - t->begin_ns) * scale;

		t->cost.bpf_ns += (uint64_t)estimate;
		t->cost.bpf_hits += (uint64_t)((double)(hits[i] - t->begin_hits) * scale);
		skip_cost_measured(&t->skip_cost, ns[i] - t->begin_ns, hits[i] - t->begin_hits,
				   t->sampling.skip_shift);
		t->bpf_rate = (uint64_t)(estimate / seconds);
	}
	g->has_bpf = true;
}

/* ---- cost in user space ---- */

void governor_work_begins(struct governor *g)
{
	g->work_begin_ns = clock_thread_cpu_ns();
	g->process_begin_ns = g->set->process_cpu_ns + readers_discovery_cpu().collector_ns;
}

void governor_work_ends(struct governor *g)
{
	g->work_ns += clock_thread_cpu_ns() - g->work_begin_ns;
	/* discovery uses the same rings and readers: subtracted */
	g->work_ns -= g->set->process_cpu_ns + readers_discovery_cpu().collector_ns -
		      g->process_begin_ns;
}

/* Divides the collector's work and the sender's work by rows; other work is discovery. */
static void share_out(struct governor *g, const uint64_t *rows, uint64_t now_ns)
{
	uint64_t process = clock_process_cpu_ns() + reader_process_cpu_ns();
	uint64_t thread = clock_thread_cpu_ns();
	uint64_t finding = readers_discovery_cpu().readers_ns;
	uint64_t all = process - g->process_ns;
	uint64_t own = thread - g->thread_ns + finding - g->finding_ns;
	uint64_t for_rows = g->work_ns + (all > own ? all - own : 0), rest, n = 0;
	double seconds = (double)(now_ns - g->interval_start_ns) / 1e9;

	for (size_t i = 0; i < g->set->n; i++)
		n += rows[i] - g->items[i].rows;
	if (!n || for_rows > all)
		for_rows = n ? all : 0;
	rest = all - for_rows;
	for (size_t i = 0; i < n_items(g); i++) {
		struct governor_tracker *t = &g->items[i];
		uint64_t ns = rest;

		if (i < g->set->n) {
			ns = n ? (uint64_t)((double)for_rows * (double)(rows[i] - t->rows) /
					    (double)n)
			       : 0;
			t->rows = rows[i];
		}
		t->cost.agent_ns += ns;
		t->agent_rate = (uint64_t)((double)ns / seconds);
	}
	g->has_agent = true;
	g->process_ns = process;
	g->thread_ns = thread;
	g->finding_ns = finding;
	g->work_ns = 0;
}

/* ---- sampling steps ---- */

static uint64_t cost_of(const struct governor_tracker *t)
{
	return t->bpf_rate + t->agent_rate;
}

static double total_percent(const struct governor *g)
{
	uint64_t total = 0;

	for (size_t i = 0; i < n_items(g); i++)
		total += cost_of(&g->items[i]);
	return percent_of(total);
}

static void describe_sampling(const struct tracker *tracker, const struct sampling *sampling,
			      char *buf, size_t size)
{
	if (!sampling->level && !sampling->skip_shift) {
		snprintf(buf, size, "all, sampling is off");
		return;
	}
	buf[0] = '\0';
	if (sampling->skip_shift)
		snprintf(buf, size, "one in %u%s", 1U << sampling->skip_shift,
			 sampling->level ? "; of these, " : "");
	if (sampling->level && tracker->without_durations)
		snprintf(buf + strlen(buf), size - strlen(buf), "one in %u", 1U << sampling->level);
	else if (sampling->level)
		snprintf(buf + strlen(buf), size - strlen(buf),
			 "all of %llu ms and longer, short events less often, at least one in %u",
			 (1ULL << sampling->level) * SAMPLING_FIRST_NS / NSEC_PER_MSEC,
			 1U << sampling->level);
}

static uint32_t at_most(uint32_t value, uint32_t limit)
{
	return value < limit ? value : limit;
}

static uint32_t at_least(uint32_t value, uint32_t limit)
{
	return value > limit ? value : limit;
}

/* The level that limits rows: skipped events are no rows either. */
static uint32_t level_for_rows(const struct governor_tracker *t, uint32_t skip_shift)
{
	return t->row_limit.level > skip_shift ? t->row_limit.level - skip_shift : 0;
}

/* Both limits hold. `ret_text`: the events reported from now on. */
static bool set_sampling(struct governor *g, size_t i, const struct sampling *for_cpu,
			 char *ret_text, size_t text_size)
{
	struct sampling both = *for_cpu;
	__u32 zero = 0;

	both.level = at_least(both.level, level_for_rows(&g->items[i], both.skip_shift));
	if (bpf_map_update_elem(g->set->items[i].sampling_fd, &zero, &both, BPF_ANY)) {
		log_warn("governor: %s: cannot set the sampling: %s", name_of(g, i),
			 strerror(errno));
		return false;
	}
	describe_sampling(g->set->items[i].tracker, &both, ret_text, text_size);
	return true;
}

static void apply_sampling(struct governor *g, size_t i, const struct sampling *sampling,
			   double limit)
{
	struct governor_tracker *t = &g->items[i];
	char text[160];

	t->over = t->quiet = 0;
	if (!set_sampling(g, i, sampling, text, sizeof(text)))
		return;
	log_info("governor: %s costs %.2f %% of this host's CPU (%.2f in the kernel, %.2f in the "
		 "agent), all together %.2f, the limit is %.2f: events reported from now on: %s",
		 name_of(g, i), percent_of(cost_of(t)), percent_of(t->bpf_rate),
		 percent_of(t->agent_rate), total_percent(g), limit, text);
	t->sampling = *sampling;
}

static unsigned int steps_for(double ratio)
{
	unsigned int steps = 1;

	for (; ratio > 2 && steps < MAX_STEP; ratio /= 2)
		steps++;
	return steps;
}

/* Increases sampling of the larger part of the cost. False: no further step. */
static bool turn_down(struct governor *g, size_t i, double percent, double limit)
{
	struct governor_tracker *t = &g->items[i];
	struct sampling s = t->sampling;
	unsigned int steps = steps_for(percent / limit), useful = 0;

	if (g->set->items[i].sampling_fd < 0)
		return false;
	if (g->set->items[i].tracker->sampled_by_skip && t->bpf_rate > t->agent_rate)
		useful = skip_cost_useful_shift(&t->skip_cost, s.skip_shift, MAX_SHIFT);
	if (useful > s.skip_shift)
		s.skip_shift = at_most(s.skip_shift + steps, useful);
	else if (t->agent_rate >= t->bpf_rate / 4)
		s.level = at_most(at_least(s.level, level_for_rows(t, s.skip_shift)) + steps,
				  SAMPLING_LEVEL_MAX);
	if (s.skip_shift == t->sampling.skip_shift && s.level == t->sampling.level)
		return false;
	apply_sampling(g, i, &s, limit);
	t->at_end = false;
	return true;
}

static void say_end(struct governor *g, size_t i, double limit)
{
	struct governor_tracker *t = &g->items[i];

	if (t->at_end)
		return;
	t->at_end = true;
	log_warn("governor: %s costs %.2f %% of this host's CPU (%.2f in the kernel, %.2f in the "
		 "agent), the limit is %.2f, and sampling does not help: leave the tracker out "
		 "of --trackers, or raise governor.cpu_percent",
		 name_of(g, i), percent_of(cost_of(t)), percent_of(t->bpf_rate),
		 percent_of(t->agent_rate), limit);
}

static size_t find_costliest(const struct governor *g)
{
	size_t best = 0;

	for (size_t i = 1; i < n_items(g); i++) {
		if (cost_of(&g->items[i]) > cost_of(&g->items[best]))
			best = i;
	}
	return best;
}

static bool is_over(struct governor_tracker *t, double percent, double limit)
{
	if (limit <= 0 || percent <= limit)
		return false;
	return ++t->over >= INTERVALS_OVER;
}

/* Number of steps back that fit the limit: a step at most doubles the cost. */
static unsigned int steps_back(double cost, double total)
{
	double room = MAX_STEP;
	unsigned int steps = 0;

	if (tracker_cpu_percent > 0)
		room = 0.7 * tracker_cpu_percent / (cost + 1e-9);
	if ((0.7 * cpu_percent - total) / (cost + 1e-9) + 1 < room)
		room = (0.7 * cpu_percent - total) / (cost + 1e-9) + 1;
	for (; room >= 2 && steps < MAX_STEP; room /= 2)
		steps++;
	return steps;
}

static void maybe_step_back(struct governor *g, size_t i, double total)
{
	struct governor_tracker *t = &g->items[i];
	unsigned int steps = steps_back(percent_of(cost_of(t)), total);
	struct sampling s = t->sampling;

	if (!s.level && !s.skip_shift)
		return;
	t->quiet = steps ? t->quiet + 1 : 0;
	if (t->quiet < INTERVALS_QUIET)
		return;
	for (; steps; steps--) {
		if (s.skip_shift && (s.skip_shift >= s.level || !s.level))
			s.skip_shift--;
		else if (s.level)
			s.level--;
	}
	apply_sampling(g, i, &s, tracker_cpu_percent);
}

static void adjust_sampling(struct governor *g)
{
	double total = total_percent(g);
	size_t most = find_costliest(g);

	for (size_t i = 0; i < g->set->n; i++) {
		struct governor_tracker *t = &g->items[i];
		double percent = percent_of(cost_of(t)), limit = tracker_cpu_percent;
		bool too_much = limit > 0 && percent > limit;

		if (i == most && total > cpu_percent &&
		    (!too_much || total / cpu_percent > percent / limit)) {
			percent = total;
			limit = cpu_percent;
			too_much = true;
		}
		if (!too_much) {
			t->over = 0;
			t->at_end = false;
			maybe_step_back(g, i, total);
		} else if (is_over(t, percent, limit) && !turn_down(g, i, percent, limit)) {
			say_end(g, i, limit);
		}
	}
}

static void limit_rows(struct governor *g, uint64_t now_ns)
{
	double seconds = (double)(now_ns - g->interval_start_ns) / 1e9;
	char text[160];

	for (size_t i = 0; i < g->set->n; i++) {
		const struct running_tracker *running = &g->set->items[i];
		struct governor_tracker *t = &g->items[i];

		if (running->sampling_fd < 0 || running->tracker->limits_its_rows)
			continue;
		if (row_limit_adjust(&t->row_limit, running->event_rows, seconds,
				     rows_per_second) &&
		    set_sampling(g, i, &t->sampling, text, sizeof(text)))
			log_info("governor: %s makes %.0f rows per second, "
				 "governor.rows_per_second is %g: events reported from now on: %s",
				 name_of(g, i), t->row_limit.rate, rows_per_second, text);
	}
}

/* ---- trackers out and back ---- */

/* Returns whether trackers were taken out or put back. */
static bool adjust_trackers(struct governor *g, uint64_t now_ns)
{
	struct governor_costs costs = { .limit = may_take_out ? cpu_percent : 0 };

	for (size_t i = 0; i < g->set->n; i++) {
		costs.of[i] = percent_of(g->items[i].bpf_rate);
		costs.all += costs.of[i];
	}
	/* not settled: measured again soon */
	g->pace_ns = interval_ns;
	if (costs.all > cpu_percent && interval_ns > HURRY_NS)
		g->pace_ns = HURRY_NS;
	return shedding_adjust(g, &costs, now_ns);
}

/* ---- intervals ---- */

static void begin_interval(struct governor *g, uint64_t now_ns)
{
	g->interval_start_ns = now_ns;
	g->sample_start_ns = 0;
}

bool governor_is_on(void)
{
	return cpu_percent > 0;
}

void governor_start(struct governor *g, struct tracker_set *set, const struct string_list *first)
{
	*g = (struct governor){
		.set = set, .stats_fd = -1, .pace_ns = interval_ns, .shedding.first = first
	};
	g->process_ns = clock_process_cpu_ns() + reader_process_cpu_ns();
	g->thread_ns = clock_thread_cpu_ns();
	begin_interval(g, clock_monotonic_ns());
}

bool governor_tick(struct governor *g, const uint64_t *rows, uint64_t now_ns)
{
	uint64_t age = now_ns - g->interval_start_ns;
	bool changed;

	if (!governor_is_on() && !g->shedding.n)
		return false;
	if (!g->sample_start_ns) {
		if (age + SAMPLE_NS >= g->pace_ns)
			begin_sample(g, now_ns);
		return false;
	}
	if (age < g->pace_ns || now_ns - g->sample_start_ns < SAMPLE_NS)
		return false;
	end_sample(g, now_ns);
	limit_rows(g, now_ns);
	share_out(g, rows, now_ns);
	adjust_sampling(g);
	g->retry_ns = retry_ns;
	changed = adjust_trackers(g, now_ns);
	begin_interval(g, now_ns);
	return changed;
}

void governor_stop(struct governor *g)
{
	if (g->stats_fd >= 0)
		close(g->stats_fd);
	g->stats_fd = -1;
}
