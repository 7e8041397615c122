// SPDX-License-Identifier: Apache-2.0
/* Look-ups in the table of exception codes. See exceptions.h. */
#include "clickhouse/exceptions.h"

const char *exception_name(int code)
{
	switch (code) {
#define X(code, name, status, verdict)                                                             \
	case code:                                                                                 \
		return #name;
		CLICKHOUSE_EXCEPTIONS(X)
#undef X
	default:
		return "UNKNOWN_EXCEPTION";
	}
}

unsigned int exception_http_status(int code)
{
	switch (code) {
#define X(code, name, status, verdict)                                                             \
	case code:                                                                                 \
		return status;
		CLICKHOUSE_EXCEPTIONS(X)
#undef X
	default:
		return 500;
	}
}

enum exception_verdict exception_verdict(int code)
{
	switch (code) {
#define X(code, name, status, verdict)                                                             \
	case code:                                                                                 \
		return verdict;
		CLICKHOUSE_EXCEPTIONS(X)
#undef X
	default:
		return LATER;
	}
}
