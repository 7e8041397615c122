/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded stacks as a table for people: longest first, idle threads last, as a report leaves them
 * out at first; a line per stack, innermost frame first.
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_TABLE_H
#define UNDERSPAN_COMMANDS_OFFCPU_TABLE_H

#include "commands/offcpu/folded.h"

/* All functions sort the stacks. Lines are truncated to the terminal's width. */
void offcpu_table(struct folded *folded, FILE *out);

/* The largest differences between `before` and `value`. */
void offcpu_table_changes(struct folded *folded, FILE *out);

/* Growth since `before`, at most `lines` lines. */
void offcpu_table_top(struct folded *folded, size_t lines, FILE *out);

#endif
