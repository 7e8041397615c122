/* SPDX-License-Identifier: Apache-2.0 */
/* System calls by number. */
#ifndef UNDERSPAN_PROBE_SYSCALL_NAMES_H
#define UNDERSPAN_PROBE_SYSCALL_NAMES_H

/* "read"; "" for a negative number, "unknown" for one newer than the headers this was built with.
 */
const char *syscall_name(int nr);

#endif
