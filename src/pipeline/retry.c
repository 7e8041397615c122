// SPDX-License-Identifier: Apache-2.0
/*
 * What an answer means. HTTP's status is not enough: ClickHouse answers 500 to a missing column as
 * well as to an overload. Its own exception code decides; the codes are those of ClickHouse's
 * src/Common/ErrorCodes.cpp.
 */
#include "pipeline/retry.h"

#include <string.h>
#include <sys/random.h>

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

/* One replica's trouble, or the whole server's: another one may take the rows at once. */
static const int elsewhere[] = {
	159, /* TIMEOUT_EXCEEDED */
	160, /* TOO_SLOW */
	164, /* READONLY */
	202, /* TOO_MANY_SIMULTANEOUS_QUERIES */
	203, /* NO_FREE_CONNECTION */
	209, /* SOCKET_TIMEOUT */
	210, /* NETWORK_ERROR */
	236, /* ABORTED: it shuts down */
	242, /* TABLE_IS_READ_ONLY */
	243, /* NOT_ENOUGH_SPACE */
	279, /* ALL_CONNECTION_TRIES_FAILED */
	285, /* TOO_FEW_LIVE_REPLICAS */
	319, /* UNKNOWN_STATUS_OF_INSERT */
	394, /* QUERY_WAS_CANCELLED */
	425, /* SYSTEM_ERROR */
	439, /* CANNOT_SCHEDULE_TASK */
	999, /* KEEPER_EXCEPTION */
};

/* Somebody has to do something: create a table, mend a password, upgrade. */
static const int set_up[] = {
	16,  /* NO_SUCH_COLUMN_IN_TABLE */
	60,  /* UNKNOWN_TABLE */
	81,  /* UNKNOWN_DATABASE */
	115, /* UNKNOWN_SETTING */
	192, /* UNKNOWN_USER */
	193, /* WRONG_PASSWORD */
	194, /* REQUIRED_PASSWORD */
	497, /* ACCESS_DENIED */
	516, /* AUTHENTICATION_FAILED */
};

/* A row's own fault: found by cutting the batch, put aside, the others go on. */
static const int bad_rows[] = {
	6,   /* CANNOT_PARSE_TEXT */
	25,  /* CANNOT_PARSE_ESCAPE_SEQUENCE */
	26,  /* CANNOT_PARSE_QUOTED_STRING */
	27,  /* CANNOT_PARSE_INPUT_ASSERTION_FAILED */
	38,  /* CANNOT_PARSE_DATE */
	41,  /* CANNOT_PARSE_DATETIME */
	53,  /* TYPE_MISMATCH */
	62,  /* SYNTAX_ERROR */
	69,  /* ARGUMENT_OUT_OF_BOUND */
	70,  /* CANNOT_CONVERT_TYPE */
	72,  /* CANNOT_PARSE_NUMBER */
	117, /* INCORRECT_DATA */
	128, /* TOO_LARGE_ARRAY_SIZE */
	130, /* CANNOT_READ_ARRAY_FROM_TEXT */
	131, /* TOO_LARGE_STRING_SIZE */
	321, /* VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE */
	349, /* CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN */
	376, /* CANNOT_PARSE_UUID */
	407, /* DECIMAL_OVERFLOW */
	441, /* CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING */
	467, /* CANNOT_PARSE_BOOL */
	469, /* VIOLATED_CONSTRAINT */
	632, /* UNEXPECTED_DATA_AFTER_PARSED_VALUE */
	675, /* CANNOT_PARSE_IPV4 */
	676, /* CANNOT_PARSE_IPV6 */
	691, /* UNKNOWN_ELEMENT_OF_ENUM */
};

static bool is_among(const int *codes, size_t n, int code)
{
	for (size_t i = 0; i < n; i++) {
		if (codes[i] == code)
			return true;
	}
	return false;
}

static enum send_result by_code(const struct clickhouse_reply *reply)
{
	int code = reply->exception_code;

	/* the same code for too many parts, which merges cure */
	if (code == 252 && strstr(reply->message, "partitions"))
		return SEND_SPLIT_DAYS;
	if (is_among(elsewhere, ARRAY_SIZE(elsewhere), code))
		return SEND_RETRY_ALL;
	if (is_among(set_up, ARRAY_SIZE(set_up), code))
		return SEND_RETRY_SLOW;
	if (is_among(bad_rows, ARRAY_SIZE(bad_rows), code))
		return SEND_REFUSED;
	/*
	 * 241 memory limit, 252 too many parts, 3 and 33 body cut off on the way; and what is not
	 * known: rows are never thrown away for a code that nobody has thought of
	 */
	return SEND_RETRY;
}

/* From something in front of ClickHouse, or from something else altogether. */
static enum send_result by_status(long status)
{
	if (status == 413) /* a proxy's limit on bodies */
		return SEND_REFUSED;
	if (status == 408 || status == 425 || status == 429 || status >= 500)
		return SEND_RETRY_ALL;
	return SEND_RETRY_SLOW;
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
