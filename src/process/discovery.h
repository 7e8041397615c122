/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery of a single process: whether its program or a mapped library is a Python. Data of the
 * process and its files are read on reader threads (readers.h).
 */
#ifndef UNDERSPAN_PROCESS_DISCOVERY_H
#define UNDERSPAN_PROCESS_DISCOVERY_H

#include "process/binaries.h"
#include "workers/readers.h"

struct discovery {
	/* Result for the program by an earlier discovery; BINARY_UNKNOWN: none. */
	enum binary_kind before;
	/* Also search for a libpython that the program does not name: it may have been loaded
	 * meanwhile. */
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
	bool asking; /* asking about a file; may wait for another process's examination */
	int err;
};

/* False: not started, readers overloaded by this process or in total. */
bool discovery_begin(struct discovery *discovery, uint32_t host_pid);

/* Whether the discovery is stalled by the process or its file. */
bool discovery_stalled(const struct discovery *discovery);

#endif
