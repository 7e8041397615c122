// SPDX-License-Identifier: Apache-2.0
/* Discovery of a single process. See discovery.h. */
#include "process/discovery.h"

#include <limits.h>
#include <string.h>

#include "host/proc.h"
#include "workers/reader_process.h"

static struct discovery *discovery_of_job(struct job *job)
{
	return CONTAINER_OF(job, struct discovery, job);
}

static struct discovery *discovery_of_request(struct binary_request *request)
{
	return CONTAINER_OF(request, struct discovery, request);
}

/* ---- reader thread ---- */

/* Passed to a reader process and back. */
struct file_search {
	uint32_t host_pid;
	bool library;
	int err;
	struct file_identity identity;
	char path[4096];
};

static void find_file_in_process(void *argument, struct read_extra *extra)
{
	struct file_search *s = argument;
	AUTO_CLOSE int fd = s->library ? proc_find_libpython(s->host_pid, s->path, sizeof(s->path))
				       : proc_find_exe(s->host_pid, s->path, sizeof(s->path));

	(void)extra;
	s->err = fd < 0 ? fd : file_identify(fd, s->host_pid, &s->identity);
}

static void find_file(struct job *job)
{
	struct discovery *discovery = discovery_of_job(job);
	struct binary_request *request = &discovery->request;
	struct file_search s = { .host_pid = job->host_pid, .library = request->library };

	discovery->err = reader_process_run(find_file_in_process, &s, sizeof(s), NULL);
	if (discovery->err)
		return;
	discovery->err = s.err;
	request->identity = s.identity;
	if (discovery->err == -ENOTSUP && proc_names_python(s.path))
		why_fail(&discovery->why, 0, "%.300s: " FILE_IS_SERVED, s.path);
	if (discovery->err == -ENAMETOOLONG)
		why_fail(
			&discovery->why, 0,
			"the path of its libpython is longer than %d bytes, and without CAP_CHECKPOINT_RESTORE "
			"(before Linux 5.9: CAP_SYS_ADMIN) only the path leads to the file",
			PATH_MAX);
}

/* ---- collector thread ---- */

static void discovery_finish(struct discovery *discovery, enum binary_kind kind)
{
	discovery->kind = kind;
	discovery->done(discovery);
}

static void on_file_result(struct binary_request *request);
static void on_file_found(struct job *job);

static bool discovery_find_file(struct discovery *discovery, bool library)
{
	discovery->job.finds_processes = true;
	discovery->job.run = find_file;
	discovery->job.done = on_file_found;
	discovery->job.ran = false;
	discovery->asking = false;
	discovery->request = (struct binary_request){ .host_pid = discovery->job.host_pid,
						      .library = library,
						      .answered = on_file_result };
	return readers_submit(&discovery->job);
}

static void on_file_result(struct binary_request *request)
{
	struct discovery *discovery = discovery_of_request(request);
	bool library_next = request->kind == BINARY_LINKS_LIBPYTHON ||
			    (request->kind == BINARY_OTHER && discovery->any_library);

	if (request->kind == BINARY_PYTHON || request->kind == BINARY_REFUSED) {
		discovery->file = request->file;
		discovery->why = request->why;
		discovery_finish(discovery, request->kind);
	} else if (request->kind == BINARY_UNKNOWN) {
		discovery_finish(discovery, BINARY_UNKNOWN);
	} else if (request->library) { /* another file of that name */
		discovery_finish(discovery, discovery->before);
	} else {
		discovery->before = request->kind;
		if (!library_next || !discovery_find_file(discovery, true))
			discovery_finish(discovery, discovery->before);
	}
}

static void on_file_found(struct job *job)
{
	struct discovery *discovery = discovery_of_job(job);

	if (!job->ran || discovery->err == -ECANCELED) {
		discovery_finish(discovery, BINARY_UNKNOWN);
	} else if (!discovery->err) {
		discovery->asking = true;
		binaries_ask(&discovery->request);
	} else if (discovery->request.library &&
		   !discovery->why.text[0]) { /* no libpython mapped now */
		discovery_finish(discovery, discovery->before);
	} else { /* kernel thread, ended, no permission, or unreadable */
		discovery->file.dev = discovery->request.identity.dev;
		discovery->file.ino = discovery->request.identity.ino;
		discovery_finish(discovery, BINARY_REFUSED);
	}
}

bool discovery_begin(struct discovery *discovery, uint32_t host_pid)
{
	discovery->job.host_pid = host_pid;
	return discovery_find_file(discovery, discovery->before != BINARY_UNKNOWN);
}

bool discovery_stalled(const struct discovery *discovery)
{
	return discovery->asking ? binaries_stalled(&discovery->request)
				 : readers_stalled_by(discovery->job.host_pid);
}
