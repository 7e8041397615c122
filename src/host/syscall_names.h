/* SPDX-License-Identifier: Apache-2.0 */
/* System calls by number. */
#ifndef UNDERSPAN_HOST_SYSCALL_NAMES_H
#define UNDERSPAN_HOST_SYSCALL_NAMES_H

/* "read"; "" for negative numbers, "unknown" for numbers newer than the build's headers. */
const char *syscall_name(int nr);

#endif
