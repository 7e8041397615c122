// SPDX-License-Identifier: Apache-2.0
/* Runs the row tests, all or the given groups. See row_test.h. */
#include "row_test.h"

#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent_tables.h"
#include "agent/event_rows.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "host/cgroup.h"
#include "host/proc.h"
#include "interpreter.h"
#include "pipeline/json.h"
#include "pipeline/pipeline.h"
#include "process/process_table.h"
#include "rows/enrich.h"
#include "rows/identities.h"
#include "rows/services.h"
#include "rows/names.h"
#include "workers/readers.h"

/* ---- clock: replaces libc's by the linker's --wrap ---- */

static atomic_uint_fast64_t monotonic_ns = ROW_NOW_NS;
static atomic_uint_fast64_t suspended_ns;
static atomic_int_fast64_t wall_minus_monotonic_ns = 1700000000 * (int64_t)NSEC_PER_SEC;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	uint64_t ns = monotonic_ns;

	if (id != CLOCK_MONOTONIC && id != CLOCK_BOOTTIME && id != CLOCK_REALTIME)
		return __real_clock_gettime(id, ret);
	if (id == CLOCK_BOOTTIME)
		ns += suspended_ns;
	if (id == CLOCK_REALTIME)
		ns += (uint64_t)wall_minus_monotonic_ns;
	ret->tv_sec = (time_t)(ns / NSEC_PER_SEC);
	ret->tv_nsec = (long)(ns % NSEC_PER_SEC);
	return 0;
}

uint64_t row_clock(void)
{
	return monotonic_ns;
}

void row_clock_advance(uint64_t ns)
{
	monotonic_ns += ns;
}

void row_wall_clock_step(int64_t ns)
{
	wall_minus_monotonic_ns += ns;
	clock_calibrate();
}

void row_suspend(uint64_t ns)
{
	suspended_ns += ns;
	row_wall_clock_step((int64_t)ns);
}

/* ---- the agent, from ring buffer to sink ---- */

static struct tracker_set set;
static const struct table *tables[AGENT_TABLES_MAX];
static size_t n_tables;
static struct pipeline *pipeline;
static struct buffer lines;
static struct rows rows;
static size_t lines_read; /* bytes */

static void add_line(struct sink *sink, const struct table *table, const void *row)
{
	(void)sink;
	assert_int_equal(json_append_row(&lines, table, row, true), 0);
}

static void no_free(struct sink *sink)
{
	(void)sink;
}

static void start_agent(void)
{
	static struct sink sink = { .name = "test", .add_row = add_line, .free = no_free };
	static const struct pipeline_limits limits = { .batch_rows = 1 };
	struct why why;

	log_set_level(LOG_LEVEL_ERROR); /* hides warnings about clock steps */
	clock_calibrate();
	enrich_init("test", "boot-1");
	set.on_event = rows_on_event;
	set.on_event_context = &rows;
	for (; all_trackers[set.n]; set.n++)
		set.items[set.n] = (struct running_tracker){ .tracker = all_trackers[set.n],
							     .stats_fd = -1,
							     .set = &set };
	n_tables = agent_tables_list(&set, tables);
	if (pipeline_new(tables, n_tables, &limits, &sink, &pipeline, &why)) {
		fprintf(stderr, "%s\n", why.text);
		exit(1);
	}
	rows_start(&rows, &set, pipeline);
}

static void stop_agent(void)
{
	struct why why;

	pipeline_finish(pipeline, UINT64_MAX, &why);
	pipeline_free(pipeline);
	readers_stop();
	buffer_free(&lines);
}

struct running_tracker *row_tracker(const char *name)
{
	for (size_t i = 0; i < set.n; i++) {
		if (!strcmp(set.items[i].tracker->name, name))
			return &set.items[i];
	}
	fail_msg("there is no tracker %s", name);
	return NULL;
}

struct tracker_set *row_set(void)
{
	return &set;
}

const struct rows *row_rows(void)
{
	return &rows;
}

struct pipeline *row_pipeline(void)
{
	return pipeline;
}

static void add_row(const struct tracker_output *output, const struct tracker_row *row)
{
	rows_add(&rows, output->index, row);
}

static void no_health(const struct tracker_output *output, const struct tracker_health *health)
{
	(void)output;
	(void)health;
}

struct tracker_output row_output(const char *tracker)
{
	return (struct tracker_output){ .add = add_row,
					.health = no_health,
					.index = (size_t)(row_tracker(tracker) - set.items) };
}

void row_feed_more(const char *tracker, const void *event, size_t size, const void *extra,
		   size_t extra_size)
{
	/* exact size, for the sanitizer */
	char *record = malloc(size + extra_size);

	assert_non_null(record);
	memcpy(record, event, size);
	if (extra_size)
		memcpy(record + size, extra, extra_size);
	running_tracker_take(row_tracker(tracker), record, size + extra_size);
	free(record);
}

void row_feed(const char *tracker, const void *event, size_t size)
{
	row_feed_more(tracker, event, size, NULL, 0);
}

/* ---- expectations ---- */

/* By the rules tested in tests/unit/test_cgroup.c. */
static const struct cgroup_identity *own_cgroup(void)
{
	static struct cgroup_identity own;
	static bool known;
	char text[16384];

	if (!known && proc_read((uint32_t)getpid(), "cgroup", text, sizeof(text)) >= 0)
		cgroup_identity(text, &own);
	known = true;
	return &own;
}

static size_t append(char *to, size_t n, size_t size, const char *text, size_t len)
{
	assert_true(n + len < size);
	memcpy(to + n, text, len);
	return n + len;
}

static void fill_in(const char *line, char *ret, size_t size)
{
	const struct cgroup_identity *own = own_cgroup();
	char pid[16];
	const struct {
		const char *name, *value;
	} all[] = { { "$PID", pid },
		    { "$CONTAINER", own->container_id },
		    { "$POD", own->pod_uid },
		    { "'", "\"" } };
	size_t n = 0;

	snprintf(pid, sizeof(pid), "%d", getpid());
	while (*line) {
		size_t i = 0;

		while (i < ARRAY_SIZE(all) && strncmp(line, all[i].name, strlen(all[i].name)) != 0)
			i++;
		if (i < ARRAY_SIZE(all)) {
			n = append(ret, n, size, all[i].value, strlen(all[i].value));
			line += strlen(all[i].name);
		} else {
			n = append(ret, n, size, line++, 1);
		}
	}
	ret[n] = '\0';
}

/* The next row; NULL: none. */
static char *copy_line(void)
{
	const char *begin = lines.data + lines_read, *end;

	if (lines_read == lines.len)
		return NULL;
	end = memchr(begin, '\n', lines.len - lines_read);
	assert_non_null(end);
	return strndup(begin, (size_t)(end - begin));
}

void row_expect(const char *line)
{
	static char expected[64 << 10];
	AUTO_FREE char *got = NULL;
	size_t same = 0;

	if (lines_read == lines.len)
		rows_finish(&rows);
	fill_in(line, expected, sizeof(expected));
	got = copy_line();
	if (!got)
		fail_msg("no row, but there should be one:\n%s", expected);
	lines_read += strlen(got) + 1;
	while (expected[same] && expected[same] == got[same])
		same++;
	if (expected[same] || got[same])
		fail_msg("the row is\n%s\nand should be\n%s\nwhich differ from '%.80s' on", got,
			 expected, got + same);
}

void row_expectf(const char *format, ...)
{
	static char line[64 << 10];
	va_list args;

	va_start(args, format);
	assert_in_range(vsnprintf(line, sizeof(line), format, args), 1, sizeof(line) - 1);
	va_end(args);
	row_expect(line);
}

void row_skip_to(const char *text)
{
	AUTO_FREE char *line = NULL;
	char wanted[256];

	fill_in(text, wanted, sizeof(wanted));
	while ((line = copy_line()) && !strstr(line, wanted)) {
		lines_read += strlen(line) + 1;
		free(line);
	}
	if (!line)
		fail_msg("no row has %s", wanted);
}

void row_expect_none(void)
{
	if (lines_read < lines.len)
		fail_msg("a row that should not be there: %.*s", (int)(lines.len - lines_read),
			 lines.data + lines_read);
}

void row_forget(void)
{
	lines_read = lines.len;
}

void row_tick(void)
{
	rows_tick(&rows);
}

/* ---- counts ---- */

static struct row_counts counts_before[AGENT_TABLES_MAX];
static uint64_t bad_before[MAX_TRACKERS], refused_before[MAX_TRACKERS];

static struct row_counts counts_now(size_t table)
{
	const struct rows_lacking *lacking = &rows.lacking[table];
	struct pipeline_counts counts;

	pipeline_read_counts(pipeline, table, &counts);
	return (struct row_counts){ .rows = counts.rows,
				    .gone = lacking->gone,
				    .unread = lacking->unread,
				    .unnamed = lacking->unnamed };
}

struct row_counts row_counts(const char *table)
{
	struct row_counts now, before;
	size_t i = 0;

	while (i < n_tables && strcmp(tables[i]->name, table) != 0)
		i++;
	assert_true(i < n_tables);
	now = counts_now(i);
	before = counts_before[i];
	return (struct row_counts){ .rows = now.rows - before.rows,
				    .gone = now.gone - before.gone,
				    .unread = now.unread - before.unread,
				    .unnamed = now.unnamed - before.unnamed };
}

uint64_t row_bad_events(const char *tracker)
{
	const struct running_tracker *running = row_tracker(tracker);

	return running->bad_events - bad_before[running - set.items];
}

uint64_t row_of_refused(const char *tracker)
{
	const struct running_tracker *running = row_tracker(tracker);

	return running->of_refused - refused_before[running - set.items];
}

void row_process_gone(uint32_t host_pid)
{
	identities_refresh(host_pid);
	services_refresh(host_pid);
	if (process_find(host_pid))
		process_end(process_find(host_pid));
}

/* ---- a stalled reader ---- */

static sem_t block;
static atomic_bool blocks;

static void wait_in_reader(struct job *job)
{
	(void)job;
	blocks = true;
	sem_wait(&block);
}

static void is_unblocked(struct job *job)
{
	(void)job;
	blocks = false;
}

void row_block_reader(uint32_t host_pid)
{
	static struct job job;

	sem_init(&block, 0, 0);
	job = (struct job){ .host_pid = host_pid, .run = wait_in_reader, .done = is_unblocked };
	assert_true(readers_submit(&job));
	while (!blocks)
		poll(NULL, 0, 1);
}

void row_unblock_reader(void)
{
	struct pollfd fd = { .fd = readers_fd(), .events = POLLIN };

	sem_post(&block);
	while (blocks) {
		poll(&fd, 1, -1);
		rows_tick(&rows);
	}
}

/* ---- each test ---- */

int row_test_begin(void **state)
{
	(void)state;
	lines.len = lines_read = 0;
	for (size_t i = 0; i < n_tables; i++)
		counts_before[i] = counts_now(i);
	for (size_t i = 0; i < set.n; i++) {
		bad_before[i] = set.items[i].bad_events;
		refused_before[i] = set.items[i].of_refused;
	}
	return 0;
}

/* Clears all cached data of processes for the next test. */
int row_test_end(void **state)
{
	(void)state;
	rows_finish(&rows);
	row_expect_none();
	interpreter_end();
	names_done();
	process_table_done();
	services_free();
	identities_free();
	return 0;
}

static struct row_group *groups;

void row_group_add(struct row_group *group)
{
	struct row_group **at = &groups;

	while (*at && strcmp((*at)->name, group->name) < 0)
		at = &(*at)->next;
	group->next = *at;
	*at = group;
}

static bool is_wanted(const struct row_group *group, int n, char **names)
{
	for (int i = 0; i < n; i++) {
		if (!strcmp(names[i], group->name))
			return true;
	}
	return n == 0;
}

/* This process plays the Python of the rows: it has the environment of a service. */
static void be_a_service(char **argv)
{
	static const char name[] = "OTEL_SERVICE_NAME";

	if (getenv(name)) {
		prctl(PR_SET_NAME, ROW_SERVICE);
		return;
	}
	setenv(name, ROW_SERVICE, true);
	execv("/proc/self/exe", argv);
	perror("/proc/self/exe");
	exit(1);
}

int main(int argc, char **argv)
{
	int failed = 0;

	be_a_service(argv);
	start_agent();
	for (struct row_group *g = groups; g; g = g->next) {
		if (is_wanted(g, argc - 1, argv + 1))
			failed += _cmocka_run_group_tests(g->name, g->tests, g->n, NULL, NULL);
	}
	stop_agent();
	return failed != 0;
}
