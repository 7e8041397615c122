// SPDX-License-Identifier: Apache-2.0
/* The configuration file. */
#include "fuzz.h"

#include <stdio.h>

#include "base/config.h"

static bool flag;
static uint64_t number, seconds, wait_us, bytes;
static char *text, *place;
static int choice;
static struct string_list list;
static struct pid_list pids;

static const char *const choices[] = { "auto", "sched", NULL };
static const struct option options[] = {
	{ .key = "flag", .type = OPTION_BOOL, .target = &flag },
	{ .key = "a.number", .type = OPTION_UINT, .target = &number, .min = 2, .max = 1000 },
	{ .key = "a.seconds", .type = OPTION_SECONDS, .target = &seconds, .max = 3600 },
	{ .key = "text", .type = OPTION_STRING, .target = &text },
	{ .key = "choice", .type = OPTION_CHOICE, .target = &choice, .choices = choices },
	{ .key = "list", .type = OPTION_LIST, .target = &list },
	{ .key = "pids", .type = OPTION_PIDS, .target = &pids, .help = "x" },
	{ .key = "wait_us",
	  .type = OPTION_UINT,
	  .target = &wait_us,
	  .unit = UNIT_US,
	  .max = 1 << 30 },
	{ .key = "bytes",
	  .type = OPTION_UINT,
	  .target = &bytes,
	  .unit = UNIT_BYTES,
	  .max = 1 << 30 },
	{ .key = "place", .type = OPTION_STRING, .target = &place, .group = "g" },
	{ .key = "other", .type = OPTION_BOOL, .target = &flag, .group = "g" },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct option_table tables[] = { { options, ARRAY_SIZE(options) }, { 0 } };
	struct why why = { { 0 } };
	char path[64];

	number = 2;
	seconds = wait_us = bytes = 0;
	choice = 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fuzz_file(data, size));
	if (config_read_file(tables, path, &why))
		MUST(why.text[0]); /* every refusal has a reason */
	MUST(number >= 2 && number <= 1000 && seconds <= 3600 * NSEC_PER_SEC && choice < 2);
	MUST(wait_us <= 1 << 30 && bytes <= 1 << 30);
	config_free(tables);
	return 0;
}
