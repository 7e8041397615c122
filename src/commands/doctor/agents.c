// SPDX-License-Identifier: Apache-2.0
/* Pairs of agents. See agents.h. */
#include "commands/doctor/agents.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/other_agents.h"
#include "clickhouse/rows.h"
#include "clickhouse/sql_files.h"
#include "commands/doctor/report.h"
#include "commands/report.h"

enum { PAIRS_SHOWN = 3 };

/* A step of the clock makes an agent's own reports overlap, but few of them. */
enum { REPORTS_DOUBLED = 3, HOUR_S = 3600, AHEAD_S = 60 };

static bool are_apart; /* several agents, and no two for the same rows */

void doctor_check_agents(void)
{
	static struct other_agent agents[OTHER_AGENTS_MAX];
	size_t n = other_agents_find(agents), shown = 0;
	char line[400];

	for (size_t i = 0; i < n; i++) {
		for (size_t k = i + 1; k < n && shown < PAIRS_SHOWN; k++) {
			if (!agent_lines_meet(&agents[i].line, &agents[k].line))
				continue;
			snprintf(line, sizeof(line),
				 "processes %u and %u are agents (underspan run) that watch the "
				 "same processes: " OTHER_AGENTS_ADVICE,
				 agents[i].pid, agents[k].pid);
			doctor_say(false, "agents", line);
			shown++;
		}
	}
	are_apart = n > 1 && !shown;
}

static const char *query(const char *path)
{
	for (const struct sql_file *f = sql_files; f->path; f++) {
		if (!strcmp(f->path, path))
			return f->text;
	}
	return NULL; /* impossible: checked by a test */
}

static void say_reports(const json_t *row, const char *host)
{
	double reports = report_number(row, "reports");
	char line[600];

	if (reports < REPORTS_DOUBLED)
		return;
	snprintf(line, sizeof(line),
		 "two agents of host %.200s reported at the same time, for %.0f s of the last hour "
		 "(or its clock was set back): %s",
		 host, report_number(row, "overlap_s"),
		 are_apart ? "those that run now watch different processes"
			   : "each row of a process that both watch is there twice: stop one of "
			     "them, or give them different databases or different processes "
			     "(--pid)");
	doctor_say(are_apart, "reports", line);
}

void doctor_check_reports(struct clickhouse_client *client, const char *host)
{
	char from[32], to[32];
	const struct clickhouse_param params[] = {
		{ "param_host", host }, { "param_from", from }, { "param_to", to }, { 0 }
	};
	struct clickhouse_reply reply = { 0 };
	json_t *rows = NULL;
	long long now_s = time(NULL);
	struct why ignored;

	snprintf(from, sizeof(from), "%lld.000000", now_s - HOUR_S);
	snprintf(to, sizeof(to), "%lld.000000", now_s + AHEAD_S);
	if (!clickhouse_query_rows(client, query("doctor/doubled.sql"), "JSON", params, &rows,
				   &reply, &ignored))
		say_reports(json_array_get(rows, 0), host);
	json_decref(rows);
}
