// SPDX-License-Identifier: Apache-2.0
/* Processes of a program one after the other, and their output. See program_turns.h. */
#include "store/program_turns.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "clickhouse/exceptions.h"

enum {
	TICK_MS = 50,
	ERRORS_MAX = 1 << 20, /* bytes of messages */
};

static const char cancelled[] =
	"Code: 394. DB::Exception: Query was cancelled. (QUERY_WAS_CANCELLED)";

struct job {
	TAILQ_ENTRY(job) link;
	const char *id;
	bool cancelled;
	int pidfd; /* -1: not started */
};

TAILQ_HEAD(job_list, job);

struct program_turns {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job_list jobs; /* the first one runs */
};

struct program_turns *program_turns_new(void)
{
	struct program_turns *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	TAILQ_INIT(&p->jobs);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	return p;
}

void program_turns_free(struct program_turns *p)
{
	if (!p)
		return;
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void program_fail(struct engine_result *ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	*ret = (struct engine_result){ 0 };
	if (vasprintf(&ret->own, fmt, ap) < 0)
		ret->own = NULL;
	va_end(ap);
	ret->error = ret->own ?: "Code: 241. DB::Exception: Out of memory. (MEMORY_LIMIT_EXCEEDED)";
}

void program_fail_errno(struct engine_result *ret, const char *what, int err)
{
	program_fail(ret, "Code: %d. DB::Exception: The store cannot %s: %s. (%s)",
		     err == -ENOSPC ? EXCEPTION_NOT_ENOUGH_SPACE : EXCEPTION_UNKNOWN_EXCEPTION,
		     what, strerror(-err),
		     err == -ENOSPC ? "NOT_ENOUGH_SPACE" : "UNKNOWN_EXCEPTION");
}

void program_fail_large(struct engine_result *ret, uint64_t max)
{
	program_fail(ret,
		     "Code: 396. DB::Exception: Limit for result exceeded, max bytes: %llu. "
		     "(TOO_MANY_ROWS_OR_BYTES)",
		     (unsigned long long)max);
}

/* At most `max` bytes from the position of the file, into `own`. */
void program_read_block(int fd, size_t max, struct engine_result *ret)
{
	size_t len = 0;

	*ret = (struct engine_result){ .own = malloc(max + 1) };
	while (ret->own && len < max) {
		ssize_t n = read(fd, ret->own + len, max - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (!ret->own) {
		program_fail_errno(ret, "keep an answer", -ENOMEM);
		return;
	}
	ret->own[len] = '\0';
	ret->bytes = (struct text){ ret->own, len };
}

/*
 * Takes "Code: N. DB::Exception: ..." out of the program's messages, without the repeated query.
 * Other messages come from the dynamic loader, or from a program of a different project.
 */
static void take_errors(int errors, int status, struct engine_result *ret)
{
	struct engine_result text;
	char *code, *query, how[64];

	lseek(errors, 0, SEEK_SET);
	program_read_block(errors, ERRORS_MAX, &text);
	code = text.own ? strstr(text.own, "Code: ") : NULL;
	query = code ? strstr(code, "\n(query: ") : NULL;
	if (query)
		*query = '\0';
	if (code) {
		program_fail(ret, "%s", code);
	} else {
		if (WIFSIGNALED(status))
			snprintf(how, sizeof(how), "was ended by %s", strsignal(WTERMSIG(status)));
		else
			snprintf(how, sizeof(how), "ended with status %d", WEXITSTATUS(status));
		program_fail(ret, "the clickhouse program %s: %.600s", how,
			     text.own && *text.own ? text.own : "no message");
	}
	engine_result_free(&text);
}

/* False: the job was cancelled before its turn. */
static bool wait_turn(struct program_turns *p, struct job *job)
{
	pthread_mutex_lock(&p->lock);
	TAILQ_INSERT_TAIL(&p->jobs, job, link);
	while (TAILQ_FIRST(&p->jobs) != job && !job->cancelled)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	return !job->cancelled;
}

static void end_turn(struct program_turns *p, struct job *job)
{
	pthread_mutex_lock(&p->lock);
	TAILQ_REMOVE(&p->jobs, job, link);
	if (job->pidfd >= 0)
		close(job->pidfd);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void kill_job(const struct job *job)
{
	if (job->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, job->pidfd, SIGKILL, NULL, 0);
}

void program_turns_cancel(struct program_turns *p, const char *id)
{
	struct job *job;

	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH(job, &p->jobs, link)
	{
		if (id && strcmp(id, job->id) != 0)
			continue;
		job->cancelled = true;
		kill_job(job);
	}
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

uint64_t program_size(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Waits for the end of the process; kills a process whose output exceeds the limit. */
static int await(uint64_t max_output, const struct program_run *run, struct job *job, pid_t pid,
		 bool *ret_large)
{
	int status = 0;

	*ret_large = false;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		struct pollfd poll_fd = { .fd = job->pidfd, .events = POLLIN };

		*ret_large = program_size(run->output) > max_output ||
			     program_size(run->errors) > ERRORS_MAX;
		if (*ret_large)
			kill_job(job);
		poll(&poll_fd, 1, TICK_MS);
	}
	return status;
}

static void run_process(struct program_turns *p, const struct program_run *run, struct job *job,
			uint64_t max_output, struct engine_result *ret)
{
	bool large = false;
	int err, status = 0;
	pid_t pid;

	*ret = (struct engine_result){ 0 };
	pthread_mutex_lock(&p->lock);
	err = program_start(run, &pid, &job->pidfd);
	if (!err && job->cancelled)
		kill_job(job);
	pthread_mutex_unlock(&p->lock);
	if (err) {
		program_fail_errno(ret, "start the clickhouse program", err);
		return;
	}
	status = await(max_output, run, job, pid, &large);
	if (job->cancelled && status)
		program_fail(ret, "%s", cancelled);
	else if (large)
		program_fail_large(ret, max_output);
	else if (status)
		take_errors(run->errors, status, ret);
}

void program_turns_run(struct program_turns *p, const struct program_run *run, const char *id,
		       uint64_t max_output, struct engine_result *ret)
{
	struct job job = { .id = id, .pidfd = -1 };

	if (wait_turn(p, &job))
		run_process(p, run, &job, max_output, ret);
	else
		program_fail(ret, "%s", cancelled);
	end_turn(p, &job);
}
