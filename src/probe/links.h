/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes that live and die together. Removing a uprobe or a system call's tracepoint waits until
 * the kernel is sure that nobody is in it, 10 to 200 ms: a running agent leaves that to a thread.
 * Those who wait at once wait together for a part of it.
 */
#ifndef UNDERSPAN_LINKS_H
#define UNDERSPAN_LINKS_H

#include <bpf/libbpf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* libbpf's, or a link's descriptor of which it knows nothing. */
struct probe_link {
	struct bpf_link *link;
	int fd;
};

struct link_list {
	struct probe_link *items;
	size_t n;
	size_t n_probes; /* a link may be many */
};

/* Take the link over, also on failure (-ENOMEM: it is destroyed). */
int link_list_add(struct link_list *list, struct bpf_link *link);
int link_list_add_fd(struct link_list *list, int fd, size_t n_probes);
void link_list_destroy(struct link_list *list);
void link_list_destroy_together(struct link_list *list);

/* All links of the skeleton, which has none then. */
void link_list_take(struct link_list *list, struct bpf_object_skeleton *skeleton);

/* Destroys the lists on a thread of its own, which then sets *done; at once where there is none. */
void links_retire(struct link_list *lists, size_t n, atomic_bool *done);

#endif
