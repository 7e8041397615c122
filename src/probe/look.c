// SPDX-License-Identifier: Apache-2.0
/* A look at a process. See look.h. */
#include "probe/look.h"

#include <string.h>

#include "probe/proc.h"

static struct look *look_of_job(struct job *job)
{
	return (struct look *)(void *)((char *)job - offsetof(struct look, job));
}

static struct look *look_of_question(struct binary_question *question)
{
	return (struct look *)(void *)((char *)question - offsetof(struct look, question));
}

static bool names_python(const char *path)
{
	const char *base = strrchr(path, '/');

	return strstr(base ? base + 1 : path, "python");
}

/* ---- on a reader's thread ---- */

static void find_file(struct job *job)
{
	struct look *look = look_of_job(job);
	struct binary_question *q = &look->question;
	AUTO_CLOSE int fd = -1;
	char path[4096];

	fd = q->library ? proc_find_libpython(job->host_pid, path, sizeof(path))
			: proc_find_exe(job->host_pid, path, sizeof(path));
	look->err = fd < 0 ? fd : file_identify(fd, job->host_pid, &q->identity);
	if (look->err == -ENOTSUP && names_python(path))
		why_fail(&look->why, 0,
			 "%s lies in a file system that a program serves (FUSE), which may not "
			 "answer: it is not read",
			 path);
}

/* ---- on the collector's ---- */

static void finish(struct look *look, enum binary_kind kind)
{
	look->kind = kind;
	look->done(look);
}

static void answered(struct binary_question *question);
static void found_file(struct job *job);

static bool find(struct look *look, bool library)
{
	look->job.finds_processes = true;
	look->job.run = find_file;
	look->job.done = found_file;
	look->job.ran = false;
	look->asking = false;
	look->question = (struct binary_question){ .host_pid = look->job.host_pid,
						   .library = library,
						   .answered = answered };
	return readers_give(&look->job);
}

static void answered(struct binary_question *q)
{
	struct look *look = look_of_question(q);
	bool library_next = q->kind == BINARY_LINKS_LIBPYTHON ||
			    (q->kind == BINARY_OTHER && look->any_library);

	if (q->kind == BINARY_PYTHON || q->kind == BINARY_REFUSED) {
		look->file = q->file;
		look->why = q->why;
		finish(look, q->kind);
	} else if (q->kind == BINARY_UNKNOWN) {
		finish(look, BINARY_UNKNOWN);
	} else if (q->library) { /* something else of that name */
		finish(look, look->before);
	} else {
		look->before = q->kind;
		if (!library_next || !find(look, true))
			finish(look, look->before);
	}
}

static void found_file(struct job *job)
{
	struct look *look = look_of_job(job);

	if (!job->ran) {
		finish(look, BINARY_UNKNOWN);
	} else if (!look->err) {
		look->asking = true;
		binaries_ask(&look->question);
	} else if (look->question.library && !look->why.text[0]) { /* none, or not yet */
		finish(look, look->before);
	} else { /* a kernel thread, gone, not ours to read, or not to be read */
		look->file.dev = look->question.identity.dev;
		look->file.ino = look->question.identity.ino;
		finish(look, BINARY_REFUSED);
	}
}

bool look_begin(struct look *look, uint32_t host_pid)
{
	look->job.host_pid = host_pid;
	return find(look, look->before != BINARY_UNKNOWN);
}

bool look_held_up(const struct look *look)
{
	return look->asking ? binaries_held_up(&look->question)
			    : readers_held_up_by(look->job.host_pid);
}
