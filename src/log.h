/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's log: stderr, one line a message, journald priority prefixes when stderr is the
 * journal. Rows and results go to stdout and never pass through here.
 */
#ifndef UNDERSPAN_LOG_H
#define UNDERSPAN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

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
 * A complaint about something that keeps failing: logged at once, then after 10, 20, 40 ... 300 s
 * of continued failure with the number of repeats; its end is logged once. One per subject, zeroed.
 */
struct complaint {
	uint64_t next_ns;
	uint64_t interval_ns;
	uint64_t repeats;
	bool active;
};

void complain(struct complaint *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
void complain_over(struct complaint *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
