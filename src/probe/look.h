/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at a process: does it run a Python, as its program or as a library that it has mapped?
 * What has to be asked of the process or its files is asked on readers' threads (readers.h).
 */
#ifndef UNDERSPAN_PROBE_LOOK_H
#define UNDERSPAN_PROBE_LOOK_H

#include "probe/binaries.h"
#include "readers.h"

struct look {
	/* What an earlier look said of its program; BINARY_UNKNOWN: there was none. */
	enum binary_kind before;
	/* Look for a library although the program names none: it has had the time to load one. */
	bool any_library;
	/* Once, on the collector's thread: the look is the caller's again. */
	void (*done)(struct look *look);

	/*
	 * What it is. BINARY_PYTHON and BINARY_REFUSED (`why` may be empty: nothing to speak of)
	 * are final. BINARY_UNKNOWN: too much is to be read just now, or the agent ends.
	 */
	enum binary_kind kind;
	struct binary_file file;
	struct why why;

	/* look.c's */
	struct job job;
	struct binary_question question;
	bool asking; /* about a file, which may wait for another process's look */
	int err;
};

/* False: it is not begun, too much is to be read of this process or of all. */
bool look_begin(struct look *look, uint32_t host_pid);

/* Has it been waiting for the process or its file for so long that nobody can tell how long? */
bool look_held_up(const struct look *look);

#endif
