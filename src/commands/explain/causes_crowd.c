// SPDX-License-Identifier: Apache-2.0
/* The cause of a wait for a CPU: which Python threads had the CPUs meanwhile, or that none had.
 * Processes of other kinds have no samples. See cause.h. */
#include "commands/explain/cause.h"

#include <stdio.h>
#include <string.h>

#include "commands/explain/timeline.h"

/* Less of the wait is no cause, and one sample of 19 a second is no evidence. */
enum { SHARE_PERCENT = 50, LEAST_MS = 100 };

/* The process that computed longest meanwhile; NULL: none for as long. */
static const json_t *had_the_cpus(const json_t *r, const struct cause *c)
{
	const json_t *most = json_array_get(json_object_get(r, "crowd"), 0);
	double ms = explain_ms(most, "process_ms");

	return ms >= LEAST_MS && ms * 100 >= c->ms * SHARE_PERCENT ? most : NULL;
}

/*
 * One CPU at least was in use for the whole wait: by no watched Python, where their samples are a
 * quarter of it at most. Of a short wait too few samples are expected.
 */
static void add_others(const json_t *r, struct cause *c)
{
	enum { LEAST_WAIT_MS = 300, SAMPLED_PERCENT = 25, COVERED_PERCENT = 99 };
	const json_t *total = json_array_get(json_object_get(r, "crowd_total"), 0);
	double computed = explain_ms(total, "computed_ms");
	size_t n = strlen(c->said);

	if (explain_ms(total, "covered") * 100 < COVERED_PERCENT || c->ms < LEAST_WAIT_MS ||
	    computed * 100 > c->ms * SAMPLED_PERCENT)
		return;
	snprintf(c->said + n, sizeof(c->said) - n,
		 "; all other Python threads that are watched computed for about %.0f ms "
		 "meanwhile: another program had the CPU, or the hypervisor (`top` shows both)",
		 computed);
}

void cause_runq(const json_t *r, struct cause *c)
{
	const json_t *most = had_the_cpus(r, c);
	const char *place = explain_text(most, "place"), *thread = explain_text(most, "by_thread");
	bool own = explain_number(most, "own") != 0;
	char of[160] = "other threads of its process";
	size_t n;

	c->name = "cpu_missing";
	SAY(c, "the thread was ready to run, and no CPU was free");
	FIX(c, "a larger instance, or less other work on this host");
	if (!most) {
		add_others(r, c);
		return;
	}
	if (!own)
		snprintf(of, sizeof(of), "%.40s, pid %lld", explain_text(most, "by_comm"),
			 (long long)explain_number(most, "by_pid"));
	n = strlen(c->said);
	snprintf(c->said + n, sizeof(c->said) - n,
		 "; meanwhile %s computed for about %.0f ms, longest%s%.60s%s%.200s", of,
		 explain_ms(most, "process_ms"), *thread ? " thread " : " a thread without a name",
		 thread, *place ? ", in " : "", place);
	if (own)
		FIX(c, "fewer threads that compute at once in this process (of numpy: "
		       "OMP_NUM_THREADS), a larger instance, or less other work on this host");
}
