/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a file that nobody knows yet, on a reader's thread (readers.h): is it a Python, which
 * one, and its probes are set. May take a tenth of a second, or as long as the file does not
 * answer. Has nothing of the collector's but what the request says.
 */
#ifndef UNDERSPAN_PROBE_EXAMINE_H
#define UNDERSPAN_PROBE_EXAMINE_H

#include "probe/binaries.h"
#include "readers.h"

/* A binary that is known, and that the file may be, too: in another overlay. A copy. */
struct examine_candidate {
	struct python_binary *binary; /* held; not looked into */
	uint8_t build_id[PYTHON_BUILD_ID_MAX];
	uint8_t build_id_len;
	bool is_probed;
	bool has_site; /* `site` is where a probe should be seen */
	struct probe_site site;
	uint64_t load_va;
};

enum { MAX_CANDIDATES = 4 };

struct examination {
	struct job job; /* of a process that runs the file */
	bool given;	/* to the readers */
	bool library;	/* it is the process's libpython, not its program */
	struct file_identity identity;
	int id; /* for the binary that it may become; -1: there is none left */
	struct examine_candidate candidates[MAX_CANDIDATES];
	size_t n_candidates;
	const struct binaries_hooks *hooks;

	/* What came of it. */
	enum binary_kind kind;	      /* BINARY_UNKNOWN: its process is gone, or has another file */
	struct python_binary *same;   /* one of the candidates */
	struct python_binary *binary; /* else, of BINARY_PYTHON: new and probed, not in the table */
	bool no_room;
	struct why why;

	struct binary_question *askers;
	struct examination *prev, *next;
};

/* The job's run(). */
void examine(struct job *job);

#endif
