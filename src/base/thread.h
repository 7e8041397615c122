/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that no other thread waits for. */
#ifndef UNDERSPAN_BASE_THREAD_H
#define UNDERSPAN_BASE_THREAD_H

#include <stddef.h>

/* stack_bytes: 0 is the default of the C library. Returns 0 or an error number, not negative. */
int thread_start_detached(void *(*run)(void *), void *argument, size_t stack_bytes);

#endif
