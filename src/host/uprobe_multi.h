/* SPDX-License-Identifier: Apache-2.0 */
/* Many uprobes as a single link (Linux 6.6), independent of the versions of libbpf and kernel
 * headers. */
#ifndef UNDERSPAN_HOST_UPROBE_MULTI_H
#define UNDERSPAN_HOST_UPROBE_MULTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UPROBE_MULTI_ATTACH_TYPE = 48 }; /* BPF_TRACE_UPROBE_MULTI */

struct uprobe_multi {
	const uint64_t *offsets, *ref_ctr_offsets, *cookies; /* file offsets; n each */
	size_t n;
};

/* The link's descriptor or -errno. The program must be loaded with UPROBE_MULTI_ATTACH_TYPE. */
int uprobe_multi_attach(int program_fd, const char *path, const struct uprobe_multi *uprobes);

/* Whether the kernel supports uprobe_multi. */
bool uprobe_multi_works(void);

#endif
