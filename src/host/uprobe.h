/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaches a program to many offsets of a file, each with a cookie that identifies the offset to
 * the program. Since 6.6 a single link (uprobe_multi) covers all offsets: fast to attach and
 * remove. Before, a link per offset. Attach cookies exist since 5.15; before, a copy of the program
 * with the cookie as a constant is loaded per offset.
 */
#ifndef UNDERSPAN_HOST_UPROBE_H
#define UNDERSPAN_HOST_UPROBE_H

#include <bpf/libbpf.h>
#include <stdint.h>

#include "host/links.h"
#include "base/util.h"

/* A loaded object with programs that use attach_cookie() of bpf/lib/compat.bpf.h. */
struct uprobe_object {
	const struct bpf_object_skeleton *skeleton;
	const void *rodata;		 /* skeleton->rodata */
	const uint64_t *constant_cookie; /* member of rodata */
};

struct uprobe_site {
	uint64_t file_offset;
	uint64_t ref_ctr_offset; /* USDT semaphore, 0: none */
	uint64_t cookie;
};

enum { UPROBE_MAX_PLACES = 128 };

/* To be called before loading the object, for programs attached with uprobe_attach(). */
void uprobe_prepare(struct bpf_program *program);

/*
 * For all processes that run the file. All offsets or none; links are added to `links`. `object` is
 * NULL if the program needs no cookie: the sites' cookies are 0.
 */
int uprobe_attach(const struct uprobe_object *object, struct bpf_program *program, const char *path,
		  const struct uprobe_site *sites, size_t n, struct link_list *links,
		  struct why *why);

#endif
