/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of root's powers the agent keeps those that it needs while it runs, each for one reason, and
 * gives up the others for good, whatever it was started with.
 */
#ifndef UNDERSPAN_PRIVILEGES_H
#define UNDERSPAN_PRIVILEGES_H

#include "util.h"

struct privileges_needs {
	bool uprobes; /* binaries that appear later are probed */
	bool stats;   /* the governor asks for BPF programs' run time */
	bool child;   /* of another user: the embedded store is ended by a signal */
};

/*
 * After the BPF objects are loaded and /proc/kallsyms is read, before there is a second thread, for
 * a thread's capabilities are its own. Logs what is kept.
 */
void privileges_drop(const struct privileges_needs *needs);

#endif
