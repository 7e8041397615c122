/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Examines an unknown file on a reader thread (readers.h): whether the file is a Python, its
 * version, and sets probes. Takes about 0.1 s, or blocks on a stalled file. Uses no data of the
 * collector except the request.
 */
#ifndef UNDERSPAN_PROCESS_EXAMINE_H
#define UNDERSPAN_PROCESS_EXAMINE_H

#include "process/binary.h"
#include "workers/readers.h"

/* A known binary, possibly the same file in a different overlay. A copy. */
struct examine_candidate {
	struct python_binary *binary; /* reference held; not accessed */
	uint8_t build_id[PYTHON_BUILD_ID_MAX];
	uint8_t build_id_len;
	bool is_probed;
	bool has_site; /* `site`: offset where a probe should be visible */
	struct probe_site site;
	uint64_t load_va;
};

enum { MAX_CANDIDATES = 4 };

struct examine_job {
	struct job job; /* job of a process running the file */
	bool stuck;	/* stalled, or not started: further askers do not wait */
	bool given_up;	/* stalled, and given up in favour of jobs that waited for the reader */
	bool library;	/* the process's libpython, not its program */
	struct file_identity identity;
	int id; /* id for a new binary; -1: none left */
	struct examine_candidate candidates[MAX_CANDIDATES];
	size_t n_candidates;
	const struct binaries_hooks *hooks;

	/* Result of the examination. */
	enum binary_kind kind; /* BINARY_UNKNOWN: the process is gone, or has a different file */
	struct python_binary *same; /* the matching candidate */
	struct python_binary
		*binary; /* otherwise, for BINARY_PYTHON: new and probed, not in the table */
	bool no_room;
	bool of_process; /* the error concerns the process, not the file */
	struct why why;

	struct binary_request *askers;
	struct examine_job *prev, *next;
};

/* run() of the job. */
void examine(struct job *job);

#endif
