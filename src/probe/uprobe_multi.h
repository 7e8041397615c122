/* SPDX-License-Identifier: Apache-2.0 */
/* Many uprobes as one link (Linux 6.6), for a libbpf and kernel headers that may be older than
 * that. */
#ifndef UNDERSPAN_UPROBE_MULTI_H
#define UNDERSPAN_UPROBE_MULTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UPROBE_MULTI_ATTACH_TYPE = 48 }; /* BPF_TRACE_UPROBE_MULTI */

struct uprobe_multi {
	const uint64_t *offsets, *ref_ctr_offsets, *cookies; /* in the file; n each */
	size_t n;
};

/* The link's descriptor or -errno. The program was loaded for UPROBE_MULTI_ATTACH_TYPE. */
int uprobe_multi_attach(int program_fd, const char *path, const struct uprobe_multi *uprobes);

/* Does the kernel know the matter? */
bool uprobe_multi_works(void);

#endif
