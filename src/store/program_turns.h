/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of a clickhouse program, one at a time, first come, first served, each to the end, to the
 * limit of the output or to the cancellation. Thread-safe.
 */
#ifndef UNDERSPAN_STORE_PROGRAM_TURNS_H
#define UNDERSPAN_STORE_PROGRAM_TURNS_H

#include <stdint.h>

#include "store/engine.h"
#include "store/program_process.h"

struct program_turns;

struct program_turns *program_turns_new(void); /* NULL: no memory */
void program_turns_free(struct program_turns *turns);

/* The output is in run->output; `ret` has no bytes, or the program's error. */
void program_turns_run(struct program_turns *turns, const struct program_run *run, const char *id,
		       uint64_t max_output, struct engine_result *ret);
/* Ends runs and waiting runs with this id; NULL: all. */
void program_turns_cancel(struct program_turns *turns, const char *id);

void program_fail(struct engine_result *ret, const char *fmt, ...) PRINTF_LIKE(2, 3);
void program_fail_errno(struct engine_result *ret, const char *what, int err);
void program_fail_large(struct engine_result *ret, uint64_t max);

uint64_t program_size(int fd);
/* At most `max` bytes from the position of the file, into `own`. */
void program_read_block(int fd, size_t max, struct engine_result *ret);

#endif
