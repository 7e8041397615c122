/* SPDX-License-Identifier: Apache-2.0 */
/* A spool directory of its own per test, and batches with known rows. */
#ifndef UNDERSPAN_TESTS_SPOOL_DIRECTORY_H
#define UNDERSPAN_TESTS_SPOOL_DIRECTORY_H

#include <stdint.h>
#include <string.h>

#include "pipeline/pipeline.h"

static char directory[64];

static inline int make_directory(void **state)
{
	(void)state;
	strcpy(directory, "/tmp/underspan-spool-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static inline int remove_directory(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

/* Rows {"n": from}, ... {"n": to - 1}, of seven days in turn, compressed in pieces of 50 rows. */
static inline struct batch *sealed_batch(uint64_t order, uint64_t from, uint64_t to)
{
	struct batch *b = batch_new();
	char line[64];

	b->order = order;
	for (uint64_t n = from; n < to; n++) {
		int len = snprintf(line, sizeof(line), "{\"n\":%llu,\"start_time\":%llu}\n",
				   (unsigned long long)n,
				   (unsigned long long)(n % 7 * 86400000000ULL));

		assert_int_equal(buffer_append(&b->body, line, (size_t)len), 0);
		b->rows++;
		if (b->rows % 50 == 0)
			assert_int_equal(batch_pack(b), 0);
	}
	assert_int_equal(batch_seal(b, "host-boot-run", "a", "INSERT INTO a"), 0);
	return b;
}

static inline struct spool_options options(void)
{
	return (struct spool_options){ .directory = directory,
				       .max_bytes = 1 << 20,
				       .max_age_ns = 3600 * NSEC_PER_SEC,
				       .sync_after_ns = NSEC_PER_SEC };
}

#define ON_DISK(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)

#endif
