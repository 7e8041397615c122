/* SPDX-License-Identifier: Apache-2.0 */
/* A Python binary, and requests about files. Owned by binaries.c, filled by examine.c. */
#ifndef UNDERSPAN_PROCESS_BINARY_H
#define UNDERSPAN_PROCESS_BINARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "host/file_identity.h"
#include "host/links.h"
#include "cpython/image.h"
#include "cpython/live.h"
#include "workers/file_reading.h"
#include "python_offsets.h"
#include "base/util.h"

enum { MAX_BINARIES = 256, MAX_PROBE_SETS = 16 };

enum binary_kind {
	BINARY_PYTHON,		/* interpreter: executable or libpython */
	BINARY_LINKS_LIBPYTHON, /* an executable whose interpreter is a shared library */
	BINARY_REFUSED,		/* Python that cannot be traced; see `why` */
	BINARY_OTHER,
	BINARY_UNKNOWN, /* not examined, or not possible */
};

/* Probes of one kind in a binary; numbered by binaries_hooks.attach(). */
struct probe_set {
	struct link_list links;
	bool live;	    /* attached */
	struct why refused; /* why not */
};

struct python_binary {
	uint32_t id; /* index in the BPF objects' maps, < MAX_BINARIES */
	struct file_identity identity;
	char path[256];	      /* path in the first process using the file; for people */
	char attach_path[64]; /* valid while trackers attach: /proc/self/fd/N */
	int attach_fd;	      /* descriptor of attach_path; 0: attach_path is another path */
	bool unsure; /* see file_check_below(): call binary_touch() before setting probes */
	struct python_image image;
	struct python_offsets offsets;
	uint32_t users; /* live processes */
	uint64_t unused_since_ns;
	struct probe_set probes[MAX_PROBE_SETS];
	atomic_bool detached;	    /* all links are closed */
	struct python_binary *next; /* list of retired binaries */
	UT_hash_handle hh;
};

/*
 * `attach`: called for each new binary on a reader thread; fills the probe sets. `leave`:
 * called before the links are closed, which takes a while; events of the probes must be ignored
 * from then on.
 */
struct binaries_hooks {
	void (*attach)(struct python_binary *binary, void *context);
	void (*leave)(const struct python_binary *binary, void *context);
	void *context;
};

/* A binary as mapped by a process: containers of an image have different names for the
 * same file. */
struct binary_file {
	struct python_binary *binary;
	uint64_t dev, ino;
	bool no_room;	 /* BINARY_REFUSED because MAX_BINARIES are in use */
	bool unanswered; /* BINARY_REFUSED while stalled */
};

/* A request about a file: first member of the asker's struct. */
struct binary_request {
	uint32_t host_pid; /* process running the file; debug files are also searched in its root */
	bool library;	   /* the process's libpython, not its program */
	struct file_identity identity;
	/* Called with the answer; the asker owns the request again. */
	void (*answered)(struct binary_request *request);

	/*
	 * The answer. BINARY_PYTHON: file.binary is set and probed. BINARY_REFUSED: see `why`.
	 * BINARY_UNKNOWN: readers are overloaded, the process ended, or the agent stops.
	 */
	enum binary_kind kind;
	struct binary_file file;
	struct why why;

	/* binaries.c's */
	struct examine_job *examine_job; /* examination that will answer */
	bool alone; /* waited for another process's examination without result */
	struct binary_request *next;
};

/* Addresses of the state of an interpreter running this file. */
struct python_live_location binary_live_location(const struct binary_file *file);

/* The file for a reader process. Borrowed during the attach. */
struct readable_file binary_readable(const struct python_binary *binary);

#endif
