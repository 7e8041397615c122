/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's log: stderr, one line per message, with journald priority prefixes if stderr is the
 * journal. Rows and results go to stdout.
 */
#ifndef UNDERSPAN_BASE_LOG_H
#define UNDERSPAN_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

enum log_level {
	LOG_LEVEL_NONE = -1,
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG
};

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_enabled(LOG_LEVEL_DEBUG))                                                  \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__);                                   \
	} while (0)

/*
 * Rate limit for messages about a continuing failure: logged at once, then after 10, 20, 40 ... 300
 * s with the number of repeats; the end of the failure is logged once. One per subject,
 * zero-initialized.
 */
struct log_limit {
	uint64_t next_ns;
	uint64_t interval_ns;
	uint64_t repeats;
	bool active;
};

void log_ratelimited(struct log_limit *limit, const char *fmt, ...) PRINTF_LIKE(2, 3);
void log_ratelimited_end(struct log_limit *limit, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
