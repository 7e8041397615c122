/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of functions by address: the kernel's from /proc/kallsyms, a program's from the symbol
 * tables of its file or, when stripped, of the debug file with the same build id. Files are
 * untrusted and read once; what is kept is bounded, the least recently used goes first.
 */
#ifndef UNDERSPAN_PROBE_SYMBOLS_H
#define UNDERSPAN_PROBE_SYMBOLS_H

#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the kernel's symbols, which takes a tenth of a second: before events come. */
void symbols_init(void);
void symbols_done(void);

/* A new row begins: the names of user stacks that were handed out before are no longer used. */
void symbols_next_row(void);

/*
 * The name of the function that the address lies in; else that of the file in brackets, which
 * has no symbol there, or "[anonymous]" for code without a file; else "[unknown]". Never NULL;
 * lives until symbols_done().
 */
const char *symbols_kernel(uint64_t address);

/*
 * Fills `ret` with the names of a user stack, up to `max`, to the first address 0 or, behind the
 * leaf, to the first that is no code; returns how many. All live until symbols_next_row(). What is
 * not read yet is "<unread>" (`lookups`, readers.h).
 */
size_t symbols_user_stack(uint32_t host_pid, const __u64 *addresses, size_t max, const char **ret);

/*
 * A process is there, maybe not for long: where its code lies is read now. Ended or become another
 * program, it is still known for a while, for what is yet to come of it.
 */
void symbols_process_appeared(uint32_t host_pid);
void symbols_process_gone(uint32_t host_pid);

#endif
