// SPDX-License-Identifier: Apache-2.0
/* Options of all commands: a single configuration file serves all. See commands.h. */
#include "agent/governor.h"
#include "agent/metrics.h"
#include "commands/database.h"
#include "commands/commands.h"
#include "commands/doctor/counts.h"
#include "commands/doctor/spans.h"
#include "commands/measure.h"
#include "commands/window.h"
#include "pipeline/options.h"
#include "trackers/trackers.h"

const struct option_table *commands_all_options(void)
{
	static struct option_table all[MAX_TRACKERS + 24];
	const struct option_table fixed[] = {
		run_options,	      store_options,	  sql_options,
		schema_options,	      gil_options,	  offcpu_options,
		requests_options,     doctor_options,	  top_options,
		measure_options,      pipeline_options,	  governor_options,
		metrics_options,      clickhouse_options, doctor_counts_options,
		doctor_spans_options, window_options,	  window_against_options,
		timeline_options
	};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		all[n++] = fixed[i];
	for (size_t i = 0; all_trackers[i]; i++) {
		if (all_trackers[i]->n_options)
			all[n++] = tracker_options(all_trackers[i]);
	}
	all[n] = (struct option_table){ 0 };
	return all;
}
