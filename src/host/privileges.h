/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops all capabilities except the ones needed at run time, each for a reason, permanently and
 * independent of the initial set.
 */
#ifndef UNDERSPAN_HOST_PRIVILEGES_H
#define UNDERSPAN_HOST_PRIVILEGES_H

#include "base/util.h"

struct privileges_needs {
	bool uprobes; /* binaries that appear later get uprobes */
	bool stats;   /* the governor reads BPF run-time statistics */
	bool child;   /* a child of a different user: the embedded store is ended by a signal */
};

/*
 * To be called after loading the BPF objects and reading /proc/kallsyms, and before creating
 * threads, since capabilities are per thread. Logs the kept capabilities.
 */
void privileges_drop(const struct privileges_needs *needs);

/* For reader processes, which only read files and memory of further processes. */
void privileges_drop_to_reading(void);

#endif
