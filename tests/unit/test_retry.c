// SPDX-License-Identifier: Apache-2.0
/* Meaning of answers, by code before status, and backoff. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "pipeline/sink/retry.h"

static const struct {
	int err, code;
	long status;
	const char *message;
	enum send_result result;
} verdicts[] = {
	{ -ECONNREFUSED, 0, 0, "", SEND_RETRY_ALL },
	{ -ECONNRESET, 0, 0, "", SEND_RETRY_ALL },
	{ -ETIMEDOUT, 0, 0, "", SEND_RETRY_ALL },
	{ -EBADMSG, 0, 0, "certificate has expired", SEND_RETRY_ALL },
	{ -EBADMSG, 0, 200, "no ClickHouse", SEND_RETRY_ALL },
	{ -ENOMEM, 0, 0, "", SEND_RETRY },
	{ -ECANCELED, 0, 0, "", SEND_CANCELLED },
	{ -EREMOTEIO, 0, 500, "", SEND_RETRY_ALL },
	{ -EREMOTEIO, 0, 503, "", SEND_RETRY_ALL },
	{ -EREMOTEIO, 0, 429, "", SEND_RETRY_ALL },
	{ -EREMOTEIO, 0, 403, "", SEND_RETRY_SLOW },
	{ -EREMOTEIO, 0, 404, "", SEND_RETRY_SLOW },
	{ -EREMOTEIO, 0, 301, "", SEND_RETRY_SLOW },
	{ -EREMOTEIO, 0, 413, "", SEND_REFUSED },
	/* with a code the status is ignored */
	{ -EREMOTEIO, 16, 500, "", SEND_RETRY_SLOW },
	{ -EREMOTEIO, 60, 404, "", SEND_RETRY_SLOW },
	{ -EREMOTEIO, 516, 403, "", SEND_RETRY_SLOW },
	{ -EREMOTEIO, 27, 400, "", SEND_REFUSED },
	{ -EREMOTEIO, 691, 500, "", SEND_REFUSED },
	{ -EREMOTEIO, 117, 400, "", SEND_REFUSED },
	{ -EREMOTEIO, 241, 500, "", SEND_RETRY },
	{ -EREMOTEIO, 242, 500, "", SEND_RETRY_ALL },
	/* texts of code 252 in 19.x to 21.x, 22.x to 25.x, 26.x; the last from a shard
	 */
	{ -EREMOTEIO, 252, 500, "Too many parts (3000)", SEND_RETRY },
	{ -EREMOTEIO, 252, 500,
	  "Too many parts (300). Merges are processing significantly slower than inserts.",
	  SEND_RETRY },
	{ -EREMOTEIO, 252, 500,
	  "Too many parts (3001 with average size of 1.20 MiB) in table 'otel.ebpf_off_cpu "
	  "(5d7c1f6e-2a7b-4c3d-9e8f-0a1b2c3d4e5f)'. Merges are processing significantly "
	  "slower than inserts. (TOO_MANY_PARTS) (version 25.3.2.39 (official build))",
	  SEND_RETRY },
	{ -EREMOTEIO, 252, 500,
	  "Too many inactive parts (101) in table 'otel.ebpf_off_cpu'. Parts cleaning are "
	  "processing significantly slower than inserts.",
	  SEND_RETRY },
	{ -EREMOTEIO, 252, 500,
	  "Too many parts (100025) in all partitions in total. This indicates wrong choice "
	  "of partition key. The threshold can be modified with 'max_parts_in_total' "
	  "setting in <merge_tree> element in config.xml or with per-table setting. "
	  "(TOO_MANY_PARTS) (version 21.11.11.1 (official build))",
	  SEND_RETRY },
	{ -EREMOTEIO, 252, 500,
	  "Too many parts (100000) in all partitions in total in table 'otel.ebpf_off_cpu "
	  "(5d7c1f6e-2a7b-4c3d-9e8f-0a1b2c3d4e5f)'. This indicates wrong choice of "
	  "partition key. The threshold can be modified with 'max_parts_in_total' setting",
	  SEND_RETRY },
	{ -EREMOTEIO, 252, 500, "Too many partitions for single INSERT block", SEND_SPLIT_DAYS },
	{ -EREMOTEIO, 252, 500,
	  "Too many partitions for single INSERT block (more than 100). The limit is "
	  "controlled by 'max_partitions_per_insert_block' setting. Large number of "
	  "partitions is a common misconception. It will lead to severe negative "
	  "performance impact, including slow server startup",
	  SEND_SPLIT_DAYS },
	{ -EREMOTEIO, 252, 500,
	  "Received from ch-2:9000. DB::Exception: Too many partitions for single INSERT "
	  "block (more than 100). The limit is controlled by",
	  SEND_SPLIT_DAYS },
	{ -EREMOTEIO, 33, 500, "", SEND_RETRY },
	{ -EREMOTEIO, 98765, 200, "", SEND_RETRY },
};

static void test_verdicts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		struct clickhouse_reply reply = { .http_status = verdicts[i].status,
						  .exception_code = verdicts[i].code };

		strcpy(reply.message, verdicts[i].message);
		if (retry_verdict(verdicts[i].err, &reply) != verdicts[i].result)
			fail_msg("error %d, code %d, status %ld: %d", verdicts[i].err,
				 verdicts[i].code, verdicts[i].status,
				 (int)retry_verdict(verdicts[i].err, &reply));
	}
}

static void test_waits(void **state)
{
	uint64_t wait = 0, sum = 0;

	(void)state;
	for (int i = 0; i < 7; i++)
		sum += wait = retry_wait(wait, SEND_RETRY);
	assert_int_equal(sum, 250 * 127 * NSEC_PER_MSEC);
	assert_int_equal(retry_wait(wait, SEND_RETRY), 30 * NSEC_PER_SEC);
	assert_int_equal(retry_wait(UINT64_MAX / 4, SEND_RETRY), 30 * NSEC_PER_SEC);
	assert_int_equal(retry_wait(0, SEND_RETRY_SLOW), NSEC_PER_SEC);
	assert_int_equal(retry_wait(40 * NSEC_PER_SEC, SEND_RETRY_SLOW), 60 * NSEC_PER_SEC);
}

static void test_jitter(void **state)
{
	uint64_t low = UINT64_MAX, high = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		uint64_t wait = retry_jitter(8000, 0);

		assert_in_range(wait, 6000, 9999);
		low = wait < low ? wait : low;
		high = wait > high ? wait : high;
	}
	assert_in_range(low, 6000, 6100);
	assert_in_range(high, 9900, 9999);
	assert_in_range(retry_jitter(0, 0), 0, 0);
	/* Retry-After is bounded */
	assert_int_equal(retry_jitter(NSEC_PER_SEC, 7 * NSEC_PER_SEC), 7 * NSEC_PER_SEC);
	assert_int_equal(retry_jitter(NSEC_PER_SEC, 999999 * NSEC_PER_SEC), 300 * NSEC_PER_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_jitter),
	};

	return cmocka_run_group_tests_name("retry", tests, NULL, NULL);
}
