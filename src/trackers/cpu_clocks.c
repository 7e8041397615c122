// SPDX-License-Identifier: Apache-2.0
/* Clocks of the CPUs. See cpu_clocks.h. */
#include "trackers/cpu_clocks.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "host/perf_event.h"

#define ONLINE "/sys/devices/system/cpu/online"

static struct bpf_link **clocks; /* by CPU */
static int n_clocks;
static char online[4096]; /* when the clocks were opened */

void cpu_clocks_give(struct link_list *links)
{
	for (int cpu = 0; cpu < n_clocks; cpu++) {
		if (clocks[cpu])
			link_list_add(links, clocks[cpu]);
	}
	free(clocks);
	clocks = NULL;
	n_clocks = 0;
	online[0] = '\0';
}

void cpu_clocks_close(void)
{
	struct link_list links = { 0 };

	cpu_clocks_give(&links);
	link_list_destroy(&links);
}

/* An event of a CPU that goes offline does not return with the CPU. */
static bool cpus_have_changed(void)
{
	char now[sizeof(online)] = "unknown";
	AUTO_FCLOSE FILE *file = fopen(ONLINE, "re");

	if (file && !fgets(now, sizeof(now), file))
		snprintf(now, sizeof(now), "unknown");
	if (!strcmp(now, online))
		return false;
	cpu_clocks_close();
	memcpy(online, now, sizeof(online));
	return true;
}

static void tell(const struct tracker_output *output, int err)
{
	static char reason[128];

	snprintf(reason, sizeof(reason), "clocks of CPUs cannot be opened (perf_event_open(): %s)",
		 strerror(err));
	log_warn("on_cpu: %s: there are no samples of them", reason);
	output->health(output,
		       &(struct tracker_health){ .live = false, .method = "", .reason = reason });
}

void cpu_clocks_tick(const struct tracker_output *output, struct bpf_program *program,
		     uint64_t period_ns)
{
	int failed = 0, n = libbpf_num_possible_cpus();

	if (n <= 0 || !cpus_have_changed())
		return;
	clocks = calloc((size_t)n, sizeof(*clocks));
	if (!clocks)
		return;
	n_clocks = n;
	for (int cpu = 0; cpu < n; cpu++) {
		clocks[cpu] = perf_event_attach(-1, cpu, PERF_COUNT_SW_CPU_CLOCK, period_ns,
						program, NULL);
		if (!clocks[cpu] && errno != ENODEV)
			failed = errno;
	}
	if (failed)
		tell(output, failed);
}
