/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads BPF objects on several threads: nearly all of the agent's start is the kernel's verifier
 * and libbpf's reading of the kernel's types, once per object.
 */
#ifndef UNDERSPAN_TRACKERS_LOAD_TOGETHER_H
#define UNDERSPAN_TRACKERS_LOAD_TOGETHER_H

#include <bpf/libbpf.h>
#include <stddef.h>

struct running_tracker;

struct object_load {
	struct bpf_object_skeleton *skeleton;
	struct running_tracker *first; /* of the trackers that share the object */
	int err;		       /* of bpf_object__load_skeleton() */
};

/* Returns when all are loaded or refused. Sorts the loads by size. */
void load_together(struct object_load *loads, size_t n);

#endif
