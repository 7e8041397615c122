/* SPDX-License-Identifier: Apache-2.0 */
/* Random text. */
#ifndef UNDERSPAN_BASE_RANDOM_H
#define UNDERSPAN_BASE_RANDOM_H

#include <stddef.h>

/* `n` random hex digits, 32 at most, and a NUL. */
void random_hex(char *buf, size_t n);

#endif
