// SPDX-License-Identifier: Apache-2.0
/* The store as an unprivileged child, from fork to the last waitpid. See spawn.h. */
#include "store/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "clickhouse/client.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/directory.h"
#include "store/engine_find.h"
#include "base/stop.h"

enum { START_TIMEOUT_S = 60, STARTS_MAX = 5, STOP_MIN_MS = 250 };
static const uint64_t STOP_RESERVE_NS =
	NSEC_PER_SEC; /* left for SIGKILL and the agent's own exit */

/* Everything the child needs, prepared before fork(): afterwards only async-signal-safe calls are
 * allowed. */
struct launch {
	char path[PATH_MAX]; /* of the directory, also after a rename */
	struct engine_place engine;
	int ready[2]; /* the child writes one line */
	pid_t parent;
	bool stays;
	char path_argument[PATH_MAX + 16], engine_argument[PATH_MAX + 20], ready_argument[32];
};

static uint64_t now_ms(void)
{
	return clock_monotonic_ns() / NSEC_PER_MSEC;
}

/* ---- a store already running ---- */

static bool answers(const char *url, const char *socket)
{
	struct clickhouse_endpoint e = { .url = (char *)url,
					 .unix_socket = (char *)socket,
					 .connect_timeout_ns = NSEC_PER_SEC };
	struct clickhouse_client *client;
	bool ok;

	if (clickhouse_client_new(&e, &client, NULL) < 0)
		return false;
	ok = clickhouse_ping(client, NULL) == 0;
	clickhouse_client_free(client);
	return ok;
}

static int fill_child(struct store_child *c, struct store_directory *d, const char *url,
		      struct why *why)
{
	char password[STORE_PASSWORD_LEN + 1], socket[STORE_SOCKET_MAX];
	int err = store_directory_password(d, false, password, why);

	if (err)
		return err;
	store_directory_socket(d, socket, sizeof(socket));
	c->directory = d->fd;
	d->fd = -1;
	c->url = strdup(url);
	c->socket = strdup(socket);
	c->user = strdup("default");
	c->password = strdup(password);
	explicit_bzero(password, sizeof(password));
	if (!c->url || !c->socket || !c->user || !c->password)
		return why_fail(why, ENOMEM, "out of memory");
	return 0;
}

/*
 * -ESRCH: no process serves the directory. Waits for a starting store, and with `stays` for the end
 * of one that ends with a question: rows of later would have no store.
 */
static int take_running(struct store_directory *d, bool stays, struct store_child *c,
			struct why *why)
{
	uint64_t deadline = now_ms() + START_TIMEOUT_S * 1000;
	const struct timespec tick = { .tv_nsec = 50 * NSEC_PER_MSEC };
	char url[STORE_URL_MAX], socket[STORE_SOCKET_MAX];
	bool passing = false, said = false;

	store_directory_socket(d, socket, sizeof(socket));
	while (store_directory_is_locked(d)) {
		if (store_directory_endpoint(d, url, sizeof(url), &passing) == 0 &&
		    !(stays && passing) && answers(url, socket))
			return fill_child(c, d, url, why);
		if (stays && passing && !said)
			log_info("store: waits for the end of a question that holds %s", d->path);
		said = stays && passing;
		if (stop_requested())
			return why_fail(why, ECANCELED, "told to stop before the store answered");
		if (now_ms() > deadline)
			return why_fail(why, ETIMEDOUT,
					"a store holds %s%s; for the pid see %s/lock", d->path,
					passing ? " for a question that does not end"
						: " but does not answer",
					d->path);
		nanosleep(&tick, NULL);
	}
	return -ESRCH;
}

/* ---- before the fork ---- */

static int prepare(struct launch *l, const struct store_directory *d, struct why *why)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->fd);
	n = readlink(link, l->path, sizeof(l->path) - 1);
	if (n <= 0)
		return why_fail(why, errno, "cannot find %s: %s", d->path, strerror(errno));
	l->path[n] = '\0';
	if (pipe2(l->ready, O_CLOEXEC) < 0)
		return why_fail(why, errno, "cannot make a pipe: %s", strerror(errno));
	l->parent = getpid();
	snprintf(l->path_argument, sizeof(l->path_argument), "--path=%s", l->path);
	snprintf(l->engine_argument, sizeof(l->engine_argument), "--%s=%s",
		 l->engine.is_program ? "store_program" : "libchdb", l->engine.path);
	snprintf(l->ready_argument, sizeof(l->ready_argument), "--ready_fd=%d", l->ready[1]);
	return 0;
}

/* ---- in the child ---- */

static _Noreturn void give_up(const struct launch *l, const char *what)
{
	const char *reason = strerror(errno);
	char line[256];
	int n = snprintf(line, sizeof(line), "failed cannot start the store: %s: %s\n", what,
			 reason);

	if (write(l->ready[1], line, (size_t)n) < 0)
		_exit(126);
	_exit(127);
}

static _Noreturn void become_store(const struct launch *l)
{
	char *arguments[] = { "underspan",
			      "store",
			      (char *)l->path_argument,
			      (char *)l->engine_argument,
			      (char *)l->ready_argument,
			      "--existing",
			      "--listen=127.0.0.1:0",
			      "--log_level=warn",
			      l->stays ? NULL : "--passing",
			      NULL };
	sigset_t none;

	/* the child inherits only this descriptor and stderr; 4: CLOSE_RANGE_CLOEXEC */
	syscall(SYS_close_range, 3U, ~0U, 4U);
	if (fcntl(l->ready[1], F_SETFD, 0) < 0)
		give_up(l, "fcntl");
	/* a terminal's Ctrl-C is for the parent, which ends the child later */
	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
		give_up(l, "prctl");
	if (getppid() != l->parent)
		_exit(0);
	execv("/proc/self/exe", arguments);
	give_up(l, "cannot execute the program again");
}

/* ---- after the fork ---- */

static void describe_end(pid_t pid, struct why *why)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		why_fail(why, EIO, "the store process is gone");
	else if (WIFSIGNALED(status))
		why_fail(why, EIO, "the store process was ended by %s before serving",
			 strsignal(WTERMSIG(status)));
	else
		why_fail(why, EIO, "the store process ended with status %d before serving",
			 WEXITSTATUS(status));
}

/* Reads the child's line into buf. -EPIPE: the child ended without a line. -ECANCELED: stop
 * requested. */
static int read_line(int fd, uint64_t deadline, char *buf, size_t size)
{
	size_t n = 0;

	while (true) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = now_ms();
		ssize_t got;

		if (stop_requested())
			return -ECANCELED;
		if (now >= deadline)
			return -ETIMEDOUT;
		if (poll(&p, 1, 50) <= 0)
			continue;
		got = read(fd, buf + n, size - 1 - n);
		if (got <= 0)
			return -EPIPE;
		n += (size_t)got;
		buf[n] = '\0';
		if (strchr(buf, '\n') || n == size - 1) {
			buf[strcspn(buf, "\n")] = '\0';
			return 0;
		}
	}
}

static int await(struct launch *l, struct store_directory *d, pid_t pid, uint64_t timeout_ns,
		 struct store_child *c, struct why *why)
{
	char line[600];
	int err = read_line(l->ready[0], now_ms() + timeout_ns / NSEC_PER_MSEC, line, sizeof(line));

	if (!err && !strncmp(line, "ready ", 6)) {
		err = fill_child(c, d, line + 6, why);
		if (!err) {
			c->pid = pid;
			c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
			return 0;
		}
	} else if (!err && !strncmp(line, "failed ", 7)) {
		waitpid(pid, NULL, 0);
		return why_fail(why, EIO, "%.500s", line + 7);
	} else if (err == -ECANCELED) {
		c->pid = pid; /* store_spawn() stops the child */
		return why_fail(why, ECANCELED, "told to stop before the store served");
	} else if (err == -ETIMEDOUT) {
		why_fail(why, ETIMEDOUT, "the store did not answer within %llu s",
			 (unsigned long long)(timeout_ns / NSEC_PER_SEC));
	} else {
		describe_end(pid, why);
		return -EIO;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return err;
}

static int launch(struct launch *l, const struct store_spawn_options *o, struct store_directory *d,
		  struct store_child *c, struct why *why)
{
	uint64_t timeout_ns = o->start_timeout_ns ?: START_TIMEOUT_S * NSEC_PER_SEC;
	int err = prepare(l, d, why);
	pid_t pid;

	if (err)
		return err;
	l->stays = o->stays;
	pid = fork();
	if (pid < 0)
		return why_fail(why, errno, "cannot start a process: %s", strerror(errno));
	if (pid == 0)
		become_store(l);
	close(l->ready[1]);
	l->ready[1] = -1;
	return await(l, d, pid, timeout_ns, c, why);
}

static void close_pipe(struct launch *l)
{
	for (size_t i = 0; i < 2; i++) {
		if (l->ready[i] >= 0)
			close(l->ready[i]);
		l->ready[i] = -1;
	}
}

int store_spawn(const struct store_spawn_options *o, struct store_child *ret_child, struct why *why)
{
	struct launch l = { .ready = { -1, -1 } };
	struct store_child c = { .pidfd = -1, .directory = -1 };
	struct store_directory d = { .fd = -1 };
	int err = engine_find(&o->engine, &l.engine, why);

	if (!err)
		err = store_directory_open(o->path, o->make, &d, why);
	if (!err)
		err = take_running(&d, o->stays, &c, why);
	for (int i = 0; err == -ESRCH && i < STARTS_MAX; i++) {
		err = launch(&l, o, &d, &c, why);
		close_pipe(&l);
		/* lost the race against another starting store */
		if (err == -EIO && store_directory_is_locked(&d))
			err = take_running(&d, o->stays, &c, why);
	}
	if (err == -ESRCH)
		err = why_fail(why, EBUSY, "other processes take %s each time", d.path);
	store_directory_close(&d);
	if (err) {
		store_stop(&c);
		return err;
	}
	*ret_child = c;
	return 0;
}

/* False: the process has not ended by then. */
static bool wait_until(const struct store_child *c, uint64_t deadline)
{
	const struct timespec tick = { .tv_nsec = 5 * NSEC_PER_MSEC };

	while (waitpid(c->pid, NULL, WNOHANG) == 0) {
		struct pollfd p = { .fd = c->pidfd, .events = POLLIN };
		uint64_t now = now_ms();

		if (now >= deadline)
			return false;
		/* kernels before 5.3 have no pidfd */
		if (c->pidfd < 0)
			nanosleep(&tick, NULL);
		else
			poll(&p, 1, (int)(deadline - now));
	}
	return true;
}

static bool end_process(const struct store_child *c)
{
	uint64_t left_ms = stop_left_ns(STOP_RESERVE_NS) / NSEC_PER_MSEC;

	kill(c->pid, SIGTERM);
	if (wait_until(c, now_ms() + (left_ms > STOP_MIN_MS ? left_ms : STOP_MIN_MS)))
		return true;
	log_warn("store: process %d does not stop, sending SIGKILL", (int)c->pid);
	kill(c->pid, SIGKILL);
	/* a killed process ends when its threads get a CPU and their disk answers */
	if (!wait_until(c, now_ms() + STOP_MIN_MS))
		log_warn("store: process %d is killed, and has not ended so far", (int)c->pid);
	return false;
}

bool store_stop(struct store_child *c)
{
	bool by_itself = c->pid > 0 ? end_process(c) : true;

	if (c->pid > 0 && c->pidfd >= 0)
		close(c->pidfd);
	if (c->password)
		explicit_bzero(c->password, strlen(c->password));
	if (c->directory >= 0)
		close(c->directory);
	free(c->url);
	free(c->socket);
	free(c->user);
	free(c->password);
	*c = (struct store_child){ .pidfd = -1, .directory = -1 };
	return by_itself;
}
