/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of BPF links destroyed together. Removing a uprobe or a system call tracepoint waits for
 * an RCU grace period, 10 to 200 ms, so a running agent leaves the removal to a thread. Concurrent
 * removals share part of the wait.
 */
#ifndef UNDERSPAN_HOST_LINKS_H
#define UNDERSPAN_HOST_LINKS_H

#include <bpf/libbpf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A libbpf link, or a link descriptor unknown to libbpf. */
struct probe_link {
	struct bpf_link *link;
	int fd;
};

struct link_list {
	struct probe_link *items;
	size_t n;
	size_t n_probes; /* a link may have many probes */
};

/* Take ownership of the link, also on failure (-ENOMEM: the link is destroyed). */
int link_list_add(struct link_list *list, struct bpf_link *link);
int link_list_add_fd(struct link_list *list, int fd, size_t n_probes);
void link_list_destroy(struct link_list *list);
void link_list_destroy_together(struct link_list *list);

/*
 * The same, for at most so long. False: links are left to threads that the kernel holds up; they
 * are still attached, and are removed later, or when the process ends. Empties the list.
 */
bool link_list_destroy_within(struct link_list *list, uint64_t ns);

/* Moves all links of the skeleton into the list. */
void link_list_take(struct link_list *list, struct bpf_object_skeleton *skeleton);

/* Destroys the lists on a new thread, which sets *done; synchronously if no thread can
 * be created. */
void links_retire(struct link_list *const *lists, size_t n, atomic_bool *done);

#endif
