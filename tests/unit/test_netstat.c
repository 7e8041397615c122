// SPDX-License-Identifier: Apache-2.0
/* /proc/PID/net/netstat, valid and invalid. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "host/netstat.h"

#define TEXT                                                                                       \
	"TcpExt: SyncookiesSent ListenOverflows ListenDrops\n"                                     \
	"TcpExt: 1 22 18446744073709551615\n"                                                      \
	"IpExt: InNoRoutes ListenOverflows\n"                                                      \
	"IpExt: 7 8\n"

static void counters_are_found_by_name(void **state)
{
	uint64_t value = 0;

	(void)state;
	assert_int_equal(netstat_parse(TEXT, "ListenOverflows", &value), 0);
	assert_int_equal(value, 22);
	assert_int_equal(netstat_parse(TEXT, "SyncookiesSent", &value), 0);
	assert_int_equal(value, 1);
	assert_int_equal(netstat_parse(TEXT, "ListenDrops", &value), 0);
	assert_true(value == UINT64_MAX);
}

static void what_is_not_there_is_not_found(void **state)
{
	static const char *const texts[] = {
		"",
		"TcpExt: ",
		"TcpExt: A ListenOverflows\n",
		"TcpExt: A ListenOverflows\nTcpExt: 1",
		"TcpExt: A ListenOverflow\nTcpExt: 1 2\n",
		"TcpExt: A ListenOverflowsX\nTcpExt: 1 2\n",
		"TcpExt: A\nTcpExt: 1\nIpExt: ListenOverflows\nIpExt: 2\n",
	};
	uint64_t value = 3;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(netstat_parse(texts[i], "ListenOverflows", &value), -ENOENT);
		assert_int_equal(value, 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters_are_found_by_name),
		cmocka_unit_test(what_is_not_there_is_not_found),
	};

	return cmocka_run_group_tests_name("netstat", tests, NULL, NULL);
}
