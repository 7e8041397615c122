/* SPDX-License-Identifier: Apache-2.0 */
/* The longest of folded stacks as a table for people: a line each, innermost frame first. */
#ifndef UNDERSPAN_OFFCPU_TABLE_H
#define UNDERSPAN_OFFCPU_TABLE_H

#include "commands/folded.h"

/* All of them order the stacks. On a terminal a line is as long as that is wide. */
void offcpu_table(struct folded *folded, FILE *out);

/* The largest differences between `before` and `value`. */
void offcpu_table_changes(struct folded *folded, FILE *out);

/* What has come since `before`, at most `lines` of it. */
void offcpu_table_top(struct folded *folded, size_t lines, FILE *out);

#endif
