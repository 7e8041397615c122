// SPDX-License-Identifier: Apache-2.0
/* Event loops at /metrics. See loop_metrics.h. */
#include "trackers/loop_metrics.h"

#include <bpf/bpf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "process/processes.h"
#include "rows/services.h"

enum { GROUPS_MAX = 64 };
static const uint64_t GROUP_KEEP_NS = 900 * NSEC_PER_SEC; /* without a loop, if there is no room */

/* A service; the last entry sums the rest. */
struct group {
	char labels[SERVICE_LABELS_MAX];
	uint64_t seen_ns; /* 0: free */
	uint64_t stalls, stall_ns;
	uint64_t loops, lag_ns; /* at the moment */
};

static struct group groups[GROUPS_MAX + 1];

static struct group *group_of(const char *labels, uint64_t now_ns)
{
	struct group *place = NULL;

	for (size_t i = 0; i < GROUPS_MAX; i++) {
		struct group *group = &groups[i];

		if (group->seen_ns && !strcmp(group->labels, labels)) {
			group->seen_ns = now_ns;
			return group;
		}
		if (now_ns - group->seen_ns > GROUP_KEEP_NS &&
		    (!place || group->seen_ns < place->seen_ns))
			place = group;
	}
	if (!place) {
		labels = "service=\"other\"";
		place = &groups[GROUPS_MAX];
	}
	if (place != &groups[GROUPS_MAX] || !place->seen_ns)
		*place = (struct group){ 0 };
	snprintf(place->labels, sizeof(place->labels), "%s", labels);
	place->seen_ns = now_ns;
	return place;
}

void loop_metrics_stop(void)
{
	memset(groups, 0, sizeof(groups));
}

void loop_metrics_add_row(const struct row_common *common, const struct loop_stall_event *event)
{
	const char *labels = services_labels(common->host_pid, event->header.cgroup_id,
					     common->comm, common->end_ns);
	struct group *group = group_of(labels, common->end_ns);

	group->stalls += (uint64_t)llroundf(common->weight);
	group->stall_ns += (uint64_t)llround((double)common->duration_ns * common->weight);
}

static void look_at(const struct loop_thread *loop, uint64_t now_ns)
{
	struct group *group;

	if (!loop->kind || !processes_find(loop->host_pid))
		return;
	group = group_of(services_labels(loop->host_pid, 0, "", now_ns), now_ns);
	group->loops++;
	if (loop->busy_ns && loop->busy_ns < now_ns && now_ns - loop->busy_ns > group->lag_ns)
		group->lag_ns = now_ns - loop->busy_ns;
}

static void look_at_loops(int threads)
{
	uint64_t now = clock_monotonic_ns(), key, *from = NULL;
	struct loop_thread loop;

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		groups[i].loops = groups[i].lag_ns = 0;
	for (int n = 0; n < 2 * LOOP_THREADS_MAX && !bpf_map_get_next_key(threads, from, &key);
	     n++, from = &key) {
		if (!bpf_map_lookup_elem(threads, &key, &loop))
			look_at(&loop, now);
	}
}

static void expose(struct exposition *to, const struct metric_family *family, bool live,
		   struct metric_value (*value)(const struct group *group))
{
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		/* without a loop there is no lag */
		if (!groups[i].seen_ns || (live && !groups[i].loops))
			continue;
		if (!any)
			exposition_head(to, family);
		any = true;
		exposition_sample(to, groups[i].labels, value(&groups[i]));
	}
}

static struct metric_value loops_of(const struct group *group)
{
	return METRIC_NUMBER(group->loops);
}

static struct metric_value lag_of(const struct group *group)
{
	return METRIC_TIME(group->lag_ns);
}

static struct metric_value stalls_of(const struct group *group)
{
	return METRIC_NUMBER(group->stalls);
}

static struct metric_value stall_time_of(const struct group *group)
{
	return METRIC_TIME(group->stall_ns);
}

void loop_metrics_expose(struct exposition *to, int threads)
{
	static const struct metric_family loops = { "event_loops", METRIC_GAUGE, NULL,
						    "event loops that run" };
	static const struct metric_family lag = {
		"event_loop_lag_seconds", METRIC_GAUGE, "seconds",
		"for how long the loop that polled longest ago has been busy without a poll"
	};
	static const struct metric_family stalls = {
		"event_loop_stalls", METRIC_COUNTER, NULL,
		"stalls that have ended, of loop_stall.min_duration_us and longer"
	};
	static const struct metric_family stall_time = { "event_loop_stall_seconds", METRIC_COUNTER,
							 "seconds", "duration of these stalls" };

	look_at_loops(threads);
	expose(to, &loops, true, loops_of);
	expose(to, &lag, true, lag_of);
	expose(to, &stalls, false, stalls_of);
	expose(to, &stall_time, false, stall_time_of);
}
