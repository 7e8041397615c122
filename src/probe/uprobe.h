/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching a program to many places of a file, each with a number that tells the program which one
 * was hit. Since 6.6 one link does it for all places, which is quick to attach and to remove.
 * Before, each place has a link. The kernel carries the number (an attach cookie) since 5.15;
 * before, a copy of the program with the number as a constant is loaded for each place.
 */
#ifndef UNDERSPAN_UPROBE_H
#define UNDERSPAN_UPROBE_H

#include <bpf/libbpf.h>
#include <stdint.h>

#include "probe/links.h"
#include "util.h"

/* A loaded object whose programs ask attach_cookie() of bpf/lib/compat.bpf.h. */
struct uprobe_object {
	const struct bpf_object_skeleton *skeleton;
	const void *rodata;		 /* skeleton->rodata */
	const uint64_t *constant_cookie; /* in it */
};

struct uprobe_place {
	uint64_t file_offset;
	uint64_t ref_ctr_offset; /* USDT semaphore, 0: none */
	uint64_t cookie;
};

enum { UPROBE_MAX_PLACES = 128 };

/* Before the object is loaded: the program is going to be attached with uprobe_attach(). */
void uprobe_prepare(struct bpf_program *program);

/* Inode-wide: whoever runs the file. All places or none; the links go into `links`. */
int uprobe_attach(const struct uprobe_object *object, struct bpf_program *program, const char *path,
		  const struct uprobe_place *places, size_t n, struct link_list *links,
		  struct why *why);

#endif
