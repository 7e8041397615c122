/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's tracefs, which has the numbers of tracepoints of single system calls. Where it is
 * not mounted, as in most containers, the agent makes a mount for itself that no path leads to.
 */
#ifndef UNDERSPAN_HOST_TRACEFS_H
#define UNDERSPAN_HOST_TRACEFS_H

#include <stdbool.h>

#include "base/util.h"

struct bpf_link;
struct bpf_object_skeleton;
struct bpf_program;

/* Whether the agent may make such a mount; made at the first call, kept until exit. */
bool tracefs_private(void);

/* Whether the path below tracefs exists, in any mount. */
bool tracefs_has(const char *below);

/* Whether the tracepoint exists and may be opened as a perf event. */
bool tracefs_has_tracepoint(const char *group, const char *name);

/*
 * Attaches a program of a section "tracepoint/...", if only the agent's own mount has it: libbpf
 * looks at the usual paths. *ret stays NULL for every other program.
 */
int tracefs_attach_program(struct bpf_program *program, struct bpf_link **ret, struct why *why);

/*
 * Attaches the object's programs of sections "tracepoint/...", where only the agent's own mount has
 * them: libbpf looks at the usual paths. To be called before bpf_object__attach_skeleton().
 */
int tracefs_attach(struct bpf_object_skeleton *skeleton, struct why *why);

#endif
