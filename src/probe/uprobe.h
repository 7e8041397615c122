/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching a program to many places of a file, each with a number that tells the program which one
 * was hit. The kernel carries it (an attach cookie) since 5.15; before, a copy of the program with
 * the number as a constant is loaded for each place.
 */
#ifndef UNDERSPAN_UPROBE_H
#define UNDERSPAN_UPROBE_H

#include <bpf/libbpf.h>
#include <stdint.h>

#include "util.h"

/* A loaded object whose programs ask attach_cookie() of bpf/lib/compat.bpf.h. */
struct uprobe_object {
	const struct bpf_object_skeleton *skeleton;
	const void *rodata;		 /* skeleton->rodata */
	const uint64_t *constant_cookie; /* in it */
};

struct uprobe_place {
	const char *path;
	uint64_t file_offset;
	uint64_t ref_ctr_offset; /* USDT semaphore, 0: none */
	uint64_t cookie;
};

/* Inode-wide: whoever runs the file. NULL with why. */
struct bpf_link *uprobe_attach(const struct uprobe_object *object, struct bpf_program *program,
			       const struct uprobe_place *place, struct why *why);

#endif
