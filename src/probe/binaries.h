/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python binaries in use on this host: each file (executable or libpython) is read once and
 * probed once, inode-wide, however many processes run it in however many containers, also where
 * each of these has it in an overlay of its own. A binary that no process uses any more is let go
 * after a while.
 */
#ifndef UNDERSPAN_BINARIES_H
#define UNDERSPAN_BINARIES_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "probe/file_identity.h"
#include "probe/links.h"
#include "probe/python.h"
#include "python_offsets.h"
#include "util.h"

enum { MAX_BINARIES = 256, MAX_TRACKERS = 16 };

enum binary_kind {
	BINARY_PYTHON,		/* an interpreter: executable or libpython */
	BINARY_LINKS_LIBPYTHON, /* an executable whose interpreter is a shared library */
	BINARY_REFUSED,		/* a Python that cannot be traced; see `why` */
	BINARY_OTHER,
	BINARY_UNKNOWN, /* not looked at yet, or it could not be */
};

struct python_binary {
	uint32_t id; /* index in the BPF objects' maps, < MAX_BINARIES */
	struct file_identity identity;
	char path[256];	      /* as the first process that uses it names it; for people */
	char attach_path[64]; /* valid while trackers attach: /proc/self/fd/N */
	struct python_image image;
	struct python_offsets offsets;
	uint32_t users; /* live processes */
	uint64_t unused_since_ns;
	struct link_list links[MAX_TRACKERS];
	bool live[MAX_TRACKERS];	  /* is the tracker attached to it? */
	struct why refused[MAX_TRACKERS]; /* why not */
	atomic_bool detached;		  /* all links are closed */
	struct python_binary *next;	  /* of those that wait for that */
	UT_hash_handle hh;
};

/*
 * `attach` is called with each new binary, on a reader's thread: it fills links, live and refused.
 * `leave` is called before the links are closed, which takes a while: what they still see shall
 * count no more.
 */
struct binaries_hooks {
	void (*attach)(struct python_binary *binary, void *context);
	void (*leave)(const struct python_binary *binary, void *context);
	void *context;
};
void binaries_init(const struct binaries_hooks *hooks);

/*
 * No process is watched any more. The kernel takes its time to remove probes, and does so on other
 * threads; binaries_done() waits for them.
 */
void binaries_leave_all(void);
void binaries_done(void);

/* A binary as one process has it: containers of one image have each another name for one file. */
struct binary_file {
	struct python_binary *binary;
	uint64_t dev, ino;
	bool no_room;	 /* BINARY_REFUSED because MAX_BINARIES are in use */
	bool unanswered; /* BINARY_REFUSED for as long as it does not answer */
};

/* What is this file? The first member of what is to have the answer. */
struct binary_question {
	uint32_t host_pid; /* runs it; what was stripped off it is looked for in its root, too */
	bool library;	   /* it is the process's libpython, not its program */
	struct file_identity identity;
	/* The question is the asker's again. */
	void (*answered)(struct binary_question *question);

	/*
	 * The answer. BINARY_PYTHON: file.binary is set and probed. BINARY_REFUSED: `why` says why.
	 * BINARY_UNKNOWN: too much is to be read just now, the process ended, or the agent does.
	 */
	enum binary_kind kind;
	struct binary_file file;
	struct why why;

	struct binary_question *next; /* binaries.c's */
};

/*
 * Answers at once when the file is known; otherwise it is read first (examine.h), once for all that
 * ask, on a reader's thread.
 */
void binaries_ask(struct binary_question *question);

/* Has the file been read for so long that nobody can tell whether it will ever be? */
bool binaries_held_up(const struct binary_question *question);

/* Could one more be probed? If not, lets those go that nobody uses, which takes a moment. */
bool binaries_have_room(void);

void binary_hold(struct python_binary *binary);
void binary_release(struct python_binary *binary);

/* Lets binaries go that nobody has used for a while. */
void binaries_tick(uint64_t now_ns);

#endif
