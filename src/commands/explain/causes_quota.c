// SPDX-License-Identifier: Apache-2.0
/* A CPU quota as the cause of waits that are not the request's own: a process that may not run
 * accepts and reads nothing, and its threads keep their locks and the GIL. See cause.h. */
#include "commands/explain/cause.h"

#include <stdio.h>
#include <string.h>

#include "commands/explain/timeline.h"

/* Less of a wait is no cause. */
enum { QUOTA_SHARE_PERCENT = 50 };

struct quota cause_quota_in(const json_t *r, int64_t from_us, int64_t to_us)
{
	struct quota quota = { 0 };
	const json_t *window;
	double most = 0, all = (double)(to_us - from_us);
	size_t i;

	json_array_foreach (json_object_get(r, "throttle"), i, window) {
		double whole = (double)(explain_number(window, "end_us") -
					explain_number(window, "begin_us")),
		       stopped = (double)explain_number(window, "throttled_us"),
		       us = (double)explain_overlap_us(window, from_us, to_us);

		if (us <= 0 || whole <= 0)
			continue;
		/* a sum over CPUs may be more than the window */
		us *= stopped < whole ? stopped / whole : 1;
		quota.ms += us / 1000;
		if (us > most)
			quota.window = window;
		most = us > most ? us : most;
	}
	/* of a container and of its pod */
	quota.ms = quota.ms * 1000 > all ? all / 1000 : quota.ms;
	return quota;
}

bool cause_is_quota(const struct quota *quota, double ms)
{
	return quota->window && ms > 0 && quota->ms * 100 >= ms * QUOTA_SHARE_PERCENT;
}

void cause_add_quota(struct cause *c, const struct quota *quota)
{
	long long us = explain_number(quota->window, "quota_us"),
		  period = explain_number(quota->window, "period_us");
	size_t n = strlen(c->said);
	char cpus[32] = "";

	if (us > 0 && period > 0)
		snprintf(cpus, sizeof(cpus), " (%.2f CPUs)", (double)us / (double)period);
	snprintf(c->said + n, sizeof(c->said) - n,
		 "the CPU quota of %.60s%s stopped the process about %.0f ms of that",
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
