/* SPDX-License-Identifier: Apache-2.0 */
/* What a command line of `underspan run` says about the processes watched and the place of rows. */
#ifndef UNDERSPAN_AGENT_AGENT_LINE_H
#define UNDERSPAN_AGENT_AGENT_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AGENT_LINE_PIDS = 64 };

/* "", 0: not said on the line, perhaps in a file or the environment, or too long. */
struct agent_line {
	char trackers[1024]; /* "a,b" */
	char clickhouse[1024], database[256], store[1024];
	uint32_t pids[AGENT_LINE_PIDS];
	size_t n_pids;
};

/* Words that end with NUL. False: another command, or no rows for a database. */
bool agent_line_parse(const char *words, size_t n, struct agent_line *ret);

/* Whether both may write rows of the same processes into one database. */
bool agent_lines_meet(const struct agent_line *a, const struct agent_line *b);

#endif
