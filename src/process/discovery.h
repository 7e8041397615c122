/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery of a single process: whether the program or a mapped library is a Python. Data and
 * files of the process are read on reader threads (readers.h).
 */
#ifndef UNDERSPAN_PROCESS_DISCOVERY_H
#define UNDERSPAN_PROCESS_DISCOVERY_H

#include "process/binaries.h"
#include "workers/readers.h"

struct discovery {
	/* Result for the program by an earlier discovery; BINARY_UNKNOWN: none. */
	enum binary_kind before;
	/* Also search for a libpython not named by the program: possibly loaded since the last
	 * discovery. */
	bool any_library;
	/* Called once on the collector thread; the caller owns the struct again. */
	void (*done)(struct discovery *discovery);

	/*
	 * Result. BINARY_PYTHON and BINARY_REFUSED (`why` may be empty: not worth reporting) are
	 * final. BINARY_UNKNOWN: readers overloaded, or the agent stops.
	 */
	enum binary_kind kind;
	struct binary_file file;
	struct why why;

	/* discovery.c's */
	struct job job;
	struct binary_request request;
	bool asking; /* asking about a file; may wait for the examination started by a different
			process */
	int err;
};

/* False: not started, readers overloaded by this process or in total. */
bool discovery_begin(struct discovery *discovery, uint32_t host_pid);

/* Whether the process or a file of the process stalls the discovery. */
bool discovery_stalled(const struct discovery *discovery);

#endif
