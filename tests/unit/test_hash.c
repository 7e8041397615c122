// SPDX-License-Identifier: Apache-2.0
/* The hash of tables: ids and addresses, which differ in few bits, spread over the buckets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/hash.h"

enum { BUCKETS = 4096, KEYS = 4 * BUCKETS, MOST = 20 /* of four in the mean */ };

static unsigned int counts[BUCKETS];

static void add(const void *key, size_t len)
{
	counts[key_hash(key, len) & (BUCKETS - 1)]++;
}

static void assert_spread(void)
{
	for (size_t i = 0; i < BUCKETS; i++)
		assert_in_range(counts[i], 0, MOST);
	memset(counts, 0, sizeof(counts));
}

static void consecutive_ids_spread(void **state)
{
	(void)state;
	for (uint32_t id = 1; id <= KEYS; id++)
		add(&id, sizeof(id));
	assert_spread();
}

static void addresses_of_objects_spread(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < KEYS; i++) {
		/* as struct python_frame: an address, a place in the code, a fingerprint */
		const struct {
			uint64_t code;
			uint32_t ip, check;
		} frame = { 0x7f1234560000 + 256 * i, 12, 0 };

		add(&frame, sizeof(frame));
	}
	assert_spread();
}

static void each_byte_counts(void **state)
{
	char key[19] = "";

	(void)state;
	for (size_t len = 1; len <= sizeof(key); len++) {
		for (size_t i = 0; i < len; i++) {
			uint32_t before = key_hash(key, len);

			key[i] ^= 1;
			assert_int_not_equal(key_hash(key, len), before);
			key[i] ^= 1;
		}
		assert_int_not_equal(key_hash(key, len), key_hash(key, len - 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(consecutive_ids_spread),
		cmocka_unit_test(addresses_of_objects_spread),
		cmocka_unit_test(each_byte_counts),
	};

	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
