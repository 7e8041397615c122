// SPDX-License-Identifier: Apache-2.0
/*
 * Meaning of answers. The HTTP status is not enough: ClickHouse answers 500 for a missing column as
 * well as for an overload. The exception code decides (src/Common/ErrorCodes.cpp in ClickHouse).
 */
#include "pipeline/sink/retry.h"

#include <string.h>
#include <sys/random.h>

#include "clickhouse/exceptions.h"

static const uint64_t FIRST_NS = 250 * NSEC_PER_MSEC, LAST_NS = 30 * NSEC_PER_SEC;
static const uint64_t SLOW_FIRST_NS = NSEC_PER_SEC, SLOW_LAST_NS = 60 * NSEC_PER_SEC;
static const uint64_t ASKED_MAX_NS = 300 * NSEC_PER_SEC;

uint64_t retry_wait(uint64_t before, enum send_result result)
{
	uint64_t first = result == SEND_RETRY_SLOW ? SLOW_FIRST_NS : FIRST_NS;
	uint64_t last = result == SEND_RETRY_SLOW ? SLOW_LAST_NS : LAST_NS;
	uint64_t wait = before ? before * 2 : first;

	return wait < first ? first : wait > last ? last : wait;
}

uint64_t retry_jitter(uint64_t wait, uint64_t asked)
{
	uint64_t chance = 0;

	if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) != sizeof(chance))
		chance = (uint64_t)random();
	wait = wait - wait / 4 + (wait / 2 ? chance % (wait / 2) : 0);
	if (asked > ASKED_MAX_NS)
		asked = ASKED_MAX_NS;
	return wait > asked ? wait : asked;
}

static enum send_result by_code(const struct clickhouse_reply *reply)
{
	int code = reply->exception_code;

	/*
	 * The same code for "Too many parts (N) in all partitions in total" and "Too many parts (N)
	 * in table": merges resolve both, smaller INSERTs make them worse.
	 */
	if (code == EXCEPTION_TOO_MANY_PARTS &&
	    strstr(reply->message, "Too many partitions for single INSERT block"))
		return SEND_SPLIT_DAYS;
	switch (exception_verdict(code)) {
	case ELSEWHERE:
	case ELSEWHERE_UNWRITTEN:
		return SEND_RETRY_ALL;
	case SET_UP:
		return SEND_RETRY_SLOW;
	case BAD_ROWS:
		return SEND_REFUSED;
	case LATER:
	case LATER_UNWRITTEN:
		break;
	}
	return SEND_RETRY;
}

/* Status of a proxy in front of ClickHouse, or of another server. */
static enum send_result by_status(long status)
{
	if (status == 413) /* a proxy's limit on bodies */
		return SEND_REFUSED;
	if (status == 408 || status == 425 || status == 429 || status >= 500)
		return SEND_RETRY_ALL;
	return SEND_RETRY_SLOW;
}

/* Errors raised before the first row is written; other errors may come later. */
static bool is_before_writing(int code)
{
	enum exception_verdict verdict = exception_verdict(code);

	return verdict != LATER && verdict != ELSEWHERE;
}

bool retry_is_unknown(int err, const struct clickhouse_reply *reply)
{
	if (!err || err == -ENOMEM)
		return false;
	/* an earlier request may have been executed */
	if (reply->requests > (err == -ECONNREFUSED ? 0 : 1))
		return true;
	if (err == -ECONNREFUSED)
		return false;
	if (err != -EREMOTEIO)
		return true;
	return reply->exception_code ? !is_before_writing(reply->exception_code)
				     : reply->http_status >= 500 || reply->http_status == 408;
}

enum send_result retry_verdict(int err, const struct clickhouse_reply *reply)
{
	if (err == -ECANCELED)
		return SEND_CANCELLED;
	if (err == -ENOMEM)
		return SEND_RETRY;
	if (err != -EREMOTEIO)
		return SEND_RETRY_ALL;
	return reply->exception_code ? by_code(reply) : by_status(reply->http_status);
}
