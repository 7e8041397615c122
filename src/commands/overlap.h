/* SPDX-License-Identifier: Apache-2.0 */
/* How many of some intervals there are at the same moment. */
#ifndef UNDERSPAN_COMMANDS_OVERLAP_H
#define UNDERSPAN_COMMANDS_OVERLAP_H

#include <stddef.h>
#include <stdint.h>

/*
 * The most intervals [begins[i], ends[i]) at one moment, and the first such moment in *ret_at.
 * Sorts both arrays.
 */
size_t overlap_most(int64_t *begins, int64_t *ends, size_t n, int64_t *ret_at);

#endif
