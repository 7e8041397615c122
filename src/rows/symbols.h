/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function names by address: kernel functions from /proc/kallsyms, user functions from the file's
 * symbol tables or, if stripped, from the debug file with the same build id. Files are untrusted
 * and read once; the cache is bounded (LRU).
 */
#ifndef UNDERSPAN_ROWS_SYMBOLS_H
#define UNDERSPAN_ROWS_SYMBOLS_H

#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

struct row_context;

/* Reads the kernel's symbols, about 0.1 s: to be called before events arrive. */
void symbols_init(void);
void symbols_done(void);

/* Starts a new row: user stack names returned before are no longer in use. */
void symbols_next_row(void);

/*
 * The function at the address; without a symbol, the file's name in brackets; "[anonymous]": code
 * without a file; otherwise "[unknown]". Never NULL; valid until symbols_done().
 */
const char *symbols_kernel(uint64_t address);

/*
 * Names of a user stack, at most `max`, up to the first address 0 or, after the leaf, the first
 * address without code. Returns the number. Valid until symbols_next_row(). "<unread>": pending
 * (`context`).
 */
size_t symbols_user_stack(struct row_context *context, uint32_t host_pid, const __u64 *addresses,
			  size_t max, const char **ret);

/*
 * Reads the mappings of a new process now, since its life may be short. Kept for a while after exit
 * or exec(), for late events.
 */
void symbols_process_appeared(uint32_t host_pid);
void symbols_process_gone(uint32_t host_pid);

#endif
