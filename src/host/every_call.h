/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BPF programs that run on every system call of the host: the fallback without tracepoints of
 * single system calls. All processes of the host pay, so the use is reported.
 */
#ifndef UNDERSPAN_HOST_EVERY_CALL_H
#define UNDERSPAN_HOST_EVERY_CALL_H

#include <stdbool.h>

#include "base/util.h"

struct bpf_program;

/* For ebpf_probe_health.method. */
extern const char every_call_method[];

/* Whether the program runs at every system call, and is attached with the object. */
bool every_call_runs(const struct bpf_program *program);

/* The reason as a sentence: price, cause and fix. */
void every_call_why(struct why *ret);

#endif
