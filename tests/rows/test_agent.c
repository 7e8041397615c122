// SPDX-License-Identifier: Apache-2.0
/* Rows about the agent: ebpf_probe_health and ebpf_agent. */
#include "row_test.h"

#include <string.h>
#include <unistd.h>

#include "agent/report.h"
#include "base/version.h"
#include "interpreter.h"
#include "process/process_table.h"

static struct governor governor;
static struct report report;

static void begin(void)
{
	report_start(&report, row_set(), row_rows(), &governor, row_pipeline(), 10 * NSEC_PER_SEC);
}

/* Current time, since earlier tests have moved the clock. */
static unsigned long long now_us(void)
{
	return 1700000000000000ULL + row_clock() / 1000;
}

/* ---- ebpf_probe_health ---- */

#define OF_HOST                                                                                    \
	"{'table':'ebpf_probe_health','host':'test','container_id':'','pod_uid':'','host_pid':0,"  \
	"'time':%llu,"

static void health_of_the_host(void **state)
{
	const struct tracker_health live = { .live = true,
					     .method = "ioctl",
					     .what = "eth\"0",
					     .reason = "" },
				    not_live = { .method = "", .what = "", .reason = "no\n\x1b" };

	(void)state;
	begin();
	report_health(&report, "ena", &live);
	report_health(&report, "tcp_loss", &not_live);
	row_expectf(OF_HOST "'tracker':'ena','live':1,'method':'ioctl','python_version':'',"
			    "'binary':'eth\\\"0','build_id':'','reason':''}",
		    now_us());
	row_expectf(OF_HOST "'tracker':'tcp_loss','live':0,'method':'','python_version':'',"
			    "'binary':'','build_id':'','reason':'no\\u000a\\u001b'}",
		    now_us());
}

/* One tracker fails to load, one to attach. */
static void health_of_trackers(void **state)
{
	struct tracker_set *set = row_set();
	struct refused_tracker *refused = &set->refused[0];

	(void)state;
	begin();
	row_tracker("gc_pause")->dead = true;
	refused->tracker = row_tracker("gc_pause")->tracker;
	why_fail(&refused->why, ENODEV, "the kernel is too old");
	set->n_refused = 1;
	report_trackers(&report);
	set->n_refused = 0;
	row_tracker("gc_pause")->dead = false;
	for (size_t i = 0; all_trackers[i]; i++) {
		if (strcmp(all_trackers[i]->name, "gc_pause") != 0)
			row_expectf(OF_HOST "'tracker':'%s','live':1,'method':'',"
					    "'python_version':'','binary':'','build_id':'',"
					    "'reason':''}",
				    now_us(), all_trackers[i]->name);
	}
	row_expectf(OF_HOST "'tracker':'gc_pause','live':0,'method':'','python_version':'',"
			    "'binary':'','build_id':'','reason':'the kernel is too old'}",
		    now_us());
}

#define OF_PROCESS                                                                                 \
	"{'table':'ebpf_probe_health','host':'test','container_id':'$CONTAINER',"                  \
	"'pod_uid':'$POD','host_pid':$PID,'time':%llu,"

static size_t index_of(const char *tracker)
{
	return (size_t)(row_tracker(tracker) - row_set()->items);
}

/* gc_pause is attached to the binary, gil_wait is not; the remaining trackers do not need the
 * binary. */
static void health_of_a_process(void **state)
{
	struct python_binary *binary;

	(void)state;
	begin();
	interpreter_begin();
	binary = process_find((uint32_t)getpid())->file.binary;
	binary->image.major = 3;
	binary->image.minor = 9;
	binary->image.micro = 18;
	binary->image.gc_method = GC_METHOD_SYMBOL;
	memcpy(binary->image.build_id, "\x01\x02\xfe\xff", 4);
	binary->image.build_id_len = 4;
	binary->probes[index_of("gc_pause")].live = true;
	why_fail(&binary->probes[index_of("gil_wait")].refused, ENOTSUP,
		 "its GIL is of no known kind");
	report_process(&report, process_find((uint32_t)getpid()));
	for (size_t i = 0; all_trackers[i]; i++) {
		const char *name = all_trackers[i]->name;
		bool is_gc = !strcmp(name, "gc_pause"), is_gil = !strcmp(name, "gil_wait");

		if (!all_trackers[i]->of_host)
			row_expectf(OF_PROCESS "'tracker':'%s','live':%d,'method':'%s',"
					       "'python_version':'3.9.18',"
					       "'binary':'/usr/bin/python3.9',"
					       "'build_id':'0102feff','reason':'%s'}",
				    now_us(), name, !is_gil, is_gc ? "symbol" : "",
				    is_gil ? "its GIL is of no known kind" : "");
	}
	binary->image.build_id_len = 0;
}

#define OF_UNKNOWN                                                                                 \
	"{'table':'ebpf_probe_health','host':'test','container_id':'','pod_uid':'',"               \
	"'host_pid':4200001,'time':%llu,"

/* Trackers that need the interpreter report the reason; the rest report missing parts of rows. */
static void health_of_a_refused_process(void **state)
{
	(void)state;
	begin();
	interpreter_refuse(ROW_UNKNOWN_PID);
	report_process(&report, process_find(ROW_UNKNOWN_PID));
	for (size_t i = 0; all_trackers[i]; i++) {
		bool needs_it = tracker_needs_interpreter(all_trackers[i]);

		if (!all_trackers[i]->of_host)
			row_expectf(OF_UNKNOWN "'tracker':'%s','live':%d,'method':'',"
					       "'python_version':'','binary':'','build_id':'',"
					       "'reason':'%sit shall not be read'}",
				    now_us(), all_trackers[i]->name, !needs_it,
				    needs_it ? ""
					     : "rows have no Python stacks and no names of "
					       "threads: ");
	}
}

/* Result of the state check, or the reason why the state is not read. */
static void health_of_an_interpreter(void **state)
{
	struct process *process;

	(void)state;
	begin();
	interpreter_begin();
	process = process_find((uint32_t)getpid());
	process->live.threads = 3;
	report_python(&report, process);
	row_expectf(OF_PROCESS "'tracker':'python','live':1,'method':'table',"
			       "'python_version':'3.9.18','binary':'/usr/bin/python3.9',"
			       "'build_id':'','reason':''}",
		    now_us());
	process->live.threads = 0;
	why_fail(&process->unread, EBADMSG, "it has no threads");
	report_python(&report, process);
	row_expectf(OF_PROCESS "'tracker':'python','live':0,'method':'table',"
			       "'python_version':'3.9.18','binary':'/usr/bin/python3.9',"
			       "'build_id':'','reason':'it has no threads'}",
		    now_us());
}

/* ---- the clock ---- */

static void a_step_of_the_clock(void **state)
{
	const int64_t hour = 3600 * (int64_t)NSEC_PER_SEC;

	(void)state;
	begin();
	report_clock(&report); /* steps made by earlier tests */
	row_forget();
	row_wall_clock_step(0); /* calibrates */
	row_clock_advance(5 * NSEC_PER_SEC);
	row_wall_clock_step(-hour);
	report_clock(&report);
	report_clock(&report); /* once */
	row_expectf(OF_HOST "'tracker':'clock','live':1,'method':'','python_version':'',"
			    "'binary':'','build_id':'','reason':'the wall clock was stepped by "
			    "-3600.000000 s; rows carry the clock time of the event, "
			    "uncertain for 5.000 s before this step'}",
		    now_us() - 3600000000);
	row_clock_advance(NSEC_PER_SEC);
	row_wall_clock_step(hour);
	report_clock(&report);
	row_forget();
	row_clock_advance(NSEC_PER_SEC);
	row_suspend(hour);
	report_clock(&report);
	row_expectf(OF_HOST "'tracker':'clock','live':1,'method':'','python_version':'',"
			    "'binary':'','build_id':'','reason':'the host was suspended for "
			    "3600.000 s'}",
		    now_us() + 3600000000);
	row_clock_advance(NSEC_PER_SEC);
	row_wall_clock_step(-hour); /* for later tests */
	report_clock(&report);
	row_forget();
	row_clock_advance(NSEC_PER_SEC);
}

/* ---- ebpf_agent ---- */

/* An interval with a row from a cgroup's counters and four health rows. */
static void counts(void **state)
{
	struct tracker_output output = row_output("cpu_throttle");
	struct cpu_throttle_event event = {
		.header = ROW_HEADER, .now = { 1, 1, 1 }, .periods.first_ns = ROW_END_NS, .ended = 1
	};
	struct governor_tracker *governed = &governor.items[index_of("cpu_throttle")];
	unsigned long long begin_us;

	(void)state;
	begin();
	report_tick(&report, row_clock() + 10 * NSEC_PER_SEC); /* earlier counts */
	row_forget();
	row_clock_advance(10 * NSEC_PER_SEC);
	begin_us = now_us();
	governed->cost = (struct governor_cost){ 5000000001, 5000000002, 5000000003 };
	governed->sampling = (struct sampling){ 4, 5 };
	governor.has_bpf = governor.has_agent = true;
	cpu_throttle_take(&output, &event);
	for (int i = 0; i < 4; i++)
		report_health(&report, "ena", &(struct tracker_health){ .live = true });
	row_clock_advance(10 * NSEC_PER_SEC);
	report_tick(&report, row_clock());
	*governed = (struct governor_tracker){ 0 };
	governor.has_bpf = governor.has_agent = false;

	row_skip_to("'table':'ebpf_agent'");
	row_skip_to("'tracker':'cpu_throttle'");
	row_expectf("{'table':'ebpf_agent','host':'test','version':'" UNDERSPAN_VERSION
		    "','tracker':'cpu_throttle','start_time':%llu,'end_time':%llu,"
		    "'seen':1,'filtered':0,'sampled':0,'lost_ring':0,'lost_state':0,"
		    "'bad_event':0,'rows':1,'pending':0,'read_fail':0,'stack_late':0,"
		    "'stack_state':0,'stack_moved':0,'stack_room':0,'stack_share':0,"
		    "'rows_gone':0,'rows_unread':0,'rows_unnamed':0,'recovered':0,'inserted':1,"
		    "'dropped_memory':0,'dropped_spool':0,'dropped_corrupt':0,"
		    "'dropped_refused':0,'lost_crash':0,'queued_rows':0,'spooled_rows':0,"
		    "'retries':0,'columns_left_out':0,'bytes_sent':0,'bpf_ns':5000000001,"
		    "'bpf_hits':5000000002,'agent_ns':5000000003,'sampling_level':4,"
		    "'skip_shift':5}",
		    begin_us, now_us());
	/* of a table of sums, which has no programs */
	row_skip_to("'bpf_ns':null,'bpf_hits':null,'agent_ns':null,");
	row_forget();
}

static const struct CMUnitTest tests[] = {
	ROW_TEST(health_of_the_host),
	ROW_TEST(health_of_trackers),
	ROW_TEST(health_of_a_process),
	ROW_TEST(health_of_a_refused_process),
	ROW_TEST(health_of_an_interpreter),
	ROW_TEST(a_step_of_the_clock),
	ROW_TEST(counts),
};
ROW_GROUP("agent", tests)
