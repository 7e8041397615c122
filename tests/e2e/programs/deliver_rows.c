// SPDX-License-Identifier: Apache-2.0
/*
 * Sends numbered rows through the agent's pipeline, so that a test knows every row: `underspan run`
 * without the kernel. Accepts the options for ClickHouse, batches and spool. Prints a line after
 * adding all rows, and the counters at the end.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "commands/database.h"
#include "pipeline/options.h"
#include "pipeline/pipeline.h"
#include "base/clock.h"
#include "trackers/trackers.h"

struct numbered_row {
	uint64_t n, start_us;
	const char *note; /* a number column in the table: any text is refused */
	char text[33];	  /* incompressible */
};

static const struct column columns[] = {
	COLUMN(COLUMN_U64, struct numbered_row, n, "n", "UInt64"),
	COLUMN(COLUMN_U64, struct numbered_row, start_us, "start_time", "DateTime64(6, 'UTC')"),
	COLUMN(COLUMN_STRING, struct numbered_row, note, "note", "UInt8"),
	COLUMN(COLUMN_CHARS, struct numbered_row, text, "text", "String"),
};
#define NUMBERED(name)                                                                             \
	{                                                                                          \
		name, { columns },                                                                 \
		{                                                                                  \
			ARRAY_SIZE(columns)                                                        \
		}                                                                                  \
	}
/* names of trackers, for shed_first */
static const struct table table_a = NUMBERED("ebpf_handoff"), table_b = NUMBERED("ebpf_off_cpu"),
			  table_c = NUMBERED("ebpf_gil_wait");
static const struct table *const tables[] = { &table_a, &table_b, &table_c };

static uint64_t rows = 1000, first, n_tables = 1, rate = 1000000, bad_every, days = 1;
static uint64_t wait_ns = 20 * NSEC_PER_SEC;
static char *truth_path;
static bool hold;

static const struct option own_options[] = {
	{ .key = "rows", .type = OPTION_UINT, .target = &rows },
	{ .key = "first", .type = OPTION_UINT, .target = &first },
	{ .key = "tables", .type = OPTION_UINT, .target = &n_tables, .min = 1, .max = 3 },
	{ .key = "rate", .type = OPTION_UINT, .target = &rate, .min = 1 },
	{ .key = "bad_every", .type = OPTION_UINT, .target = &bad_every },
	{ .key = "days", .type = OPTION_UINT, .target = &days, .min = 1 },
	{ .key = "wait", .type = OPTION_SECONDS, .target = &wait_ns },
	{ .key = "truth", .type = OPTION_STRING, .target = &truth_path },
	{ .key = "hold", .type = OPTION_BOOL, .target = &hold },
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

/* Rows added per table, in memory that survives the process. */
static uint64_t *map_truth(void)
{
	int fd = truth_path ? open(truth_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	static uint64_t nowhere[3];
	uint64_t *truth;

	if (fd < 0 || ftruncate(fd, 4096))
		return nowhere;
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return truth == MAP_FAILED ? NULL : truth;
}

static void add(struct pipeline *p, size_t table, uint64_t n)
{
	struct numbered_row row = { .n = n, .note = "7" };
	uint64_t x = (n + 1) * 0x9e3779b97f4a7c15ULL, y; /* 0: zeros, a DateTime */

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	y = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	snprintf(row.text, sizeof(row.text), "%016llx%016llx", (unsigned long long)x,
		 (unsigned long long)y);
	row.start_us = clock_wall_us(clock_monotonic_ns()) - n % days * 86400000000ULL;
	if (bad_every && n % bad_every == bad_every - 1)
		row.note = "bad";
	pipeline_add(p, table, &row);
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static void add_all(struct pipeline *p, uint64_t *truth)
{
	uint64_t begin = clock_monotonic_ns();

	for (uint64_t i = 0; i < rows && !stop; i++) {
		truth[i % n_tables]++;
		add(p, i % n_tables, first + i / n_tables);
		if (i % 64)
			continue;
		pipeline_tick(p, NULL);
		while (!stop && i * 1000 / rate > (clock_monotonic_ns() - begin) / NSEC_PER_MSEC) {
			pause_ms(2);
			pipeline_tick(p, NULL);
		}
	}
}

static uint64_t queued(struct pipeline *p)
{
	struct pipeline_counts c;
	uint64_t sum = 0;

	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		pipeline_read_counts(p, t, &c);
		sum += c.queued;
	}
	return sum;
}

static void wait_delivered(struct pipeline *p)
{
	uint64_t end = clock_monotonic_ns() + wait_ns;

	while (!stop && (hold || (queued(p) && clock_monotonic_ns() < end))) {
		pause_ms(10);
		pipeline_tick(p, NULL);
	}
}

static void print_counts(struct pipeline *p, uint64_t memory_max)
{
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		struct pipeline_counts c;

		pipeline_read_counts(p, t, &c);
#define COUNT(member) printf(", \"" #member "\": %llu", (unsigned long long)c.member)
		printf("{\"table\": \"%s\"", tables[t]->name);
		COUNT(rows);
		COUNT(recovered);
		COUNT(inserted);
		COUNT(dropped_memory);
		COUNT(dropped_spool);
		COUNT(dropped_corrupt);
		COUNT(dropped_refused);
		COUNT(queued);
		COUNT(spooled);
		COUNT(lost_crash);
		COUNT(retries);
		printf(", \"memory_max\": %llu}\n", (unsigned long long)memory_max);
	}
}

/* Ranks as set by the agent for the trackers of the same names. */
static void rank_tables(struct pipeline *p)
{
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		for (size_t i = 0; all_trackers[i]; i++) {
			if (!strcmp(all_trackers[i]->table.name, tables[t]->name))
				pipeline_set_shed_rank(
					p, t,
					tracker_shed_rank(all_trackers[i],
							  &pipeline_limits.shed_first));
		}
	}
}

static int run(struct why *why)
{
	struct clickhouse_target target;
	struct pipeline_state state;
	struct pipeline *p = NULL;
	struct sink *sink = NULL;
	uint64_t *truth = map_truth();
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = sink_clickhouse_new(target.endpoints, target.n_endpoints, pipeline_async_insert,
				  &sink, why);
	if (!err)
		err = pipeline_new(tables, ARRAY_SIZE(tables), &pipeline_limits, sink, &p, why);
	if (!err)
		rank_tables(p);
	if (err) {
		if (sink)
			sink->free(sink);
		clickhouse_release(&target);
		return err;
	}
	add_all(p, truth);
	puts("added");
	fflush(stdout);
	pipeline_read_state(p, &state);
	wait_delivered(p);
	err = pipeline_finish(p, clock_monotonic_ns() + 4 * NSEC_PER_SEC, why);
	print_counts(p, state.memory_bytes);
	pipeline_free(p);
	clickhouse_release(&target);
	return err;
}

int main(int argc, char **argv)
{
	const struct option_table options[] = { { own_options, ARRAY_SIZE(own_options) },
						pipeline_options,
						clickhouse_options,
						{ 0 } };
	struct why why = { { 0 } };
	int err;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_signal }, NULL);
	err = config_parse(options, argc, argv, NULL, NULL, &why);
	if (!err) {
		clock_calibrate();
		err = run(&why);
	}
	if (err)
		fprintf(stderr, "%s\n", why.text);
	config_free(options);
	return err ? 1 : 0;
}
