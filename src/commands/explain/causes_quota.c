// SPDX-License-Identifier: Apache-2.0
/* A CPU quota as the cause of waits that are not the request's own: a process that may not run
 * accepts and reads nothing, and its threads keep their locks and the GIL. See cause.h. */
#include "commands/explain/cause.h"

#include <stdio.h>
#include <string.h>

#include "commands/explain/timeline.h"

/* Less of a wait is no cause. */
enum { QUOTA_SHARE_PERCENT = 50 };

/* How long of [from, to) a window of throttle.sql's stopped its cgroup, us. */
static double stopped_us(const json_t *window, int64_t from_us, int64_t to_us)
{
	double whole = (double)(explain_number(window, "end_us") -
				explain_number(window, "begin_us")),
	       stopped = (double)explain_number(window, "throttled_us"),
	       us = (double)explain_overlap_us(window, from_us, to_us);

	if (us <= 0 || whole <= 0)
		return 0;
	/* a sum over CPUs may be more than the window */
	return us * (stopped < whole ? stopped / whole : 1);
}

/* Of one cgroup: a container's quota and its pod's may stop the process at the same time. */
struct quota cause_quota_in(const json_t *r, int64_t from_us, int64_t to_us)
{
	const json_t *windows = json_object_get(r, "throttle"), *window;
	struct quota quota = { 0 };
	double most = 0;
	size_t i;

	json_array_foreach (windows, i, window) {
		double us = stopped_us(window, from_us, to_us);

		if (us > most)
			quota.window = window;
		most = us > most ? us : most;
	}
	json_array_foreach (windows, i, window) {
		if (strcmp(explain_text(window, "cgroup"), explain_text(quota.window, "cgroup")) ==
		    0)
			quota.ms += stopped_us(window, from_us, to_us) / 1000;
	}
	return quota;
}

bool cause_is_quota(const struct quota *quota, double ms)
{
	return quota->window && ms > 0 && quota->ms * 100 >= ms * QUOTA_SHARE_PERCENT;
}

void cause_add_quota(struct cause *c, const char *before, const struct quota *quota)
{
	long long us = explain_number(quota->window, "quota_us"),
		  period = explain_number(quota->window, "period_us");
	size_t n = strlen(c->said);
	char cpus[32] = "";

	if (us > 0 && period > 0)
		snprintf(cpus, sizeof(cpus), " (%.2f CPUs)", (double)us / (double)period);
	snprintf(c->said + n, sizeof(c->said) - n,
		 "%sthe CPU quota of %.60s%s stopped the process about %.0f ms of that", before,
		 explain_text(quota->window, "cgroup"), cpus, quota->ms);
}

struct quota cause_quota_in_waits(const json_t *r, const char *cause)
{
	struct quota all = { 0 };
	const json_t *wait;
	double most = 0;
	size_t i;

	json_array_foreach (json_object_get(r, "waits"), i, wait) {
		struct quota one;

		if (strcmp(explain_text(wait, "cause"), cause) != 0)
			continue;
		one = cause_quota_in(r, explain_number(wait, "begin_us"),
				     explain_number(wait, "end_us"));
		all.ms += one.ms;
		if (one.ms > most)
			all.window = one.window;
		most = one.ms > most ? one.ms : most;
	}
	return all;
}
