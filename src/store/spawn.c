// SPDX-License-Identifier: Apache-2.0
/* The store as an unprivileged child, from fork to the last waitpid. See spawn.h. */
#include "store/spawn.h"

#include <fcntl.h>
#include <fts.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "clickhouse/client.h"
#include "log.h"
#include "store/directory.h"
#include "store/engine.h"
#include "stop.h"

enum { START_TIMEOUT_S = 60, STOP_MIN_MS = 300 };
static const uint64_t STOP_RESERVE_NS = 500 * NSEC_PER_MSEC; /* for what the agent does then */

/* Everything the child needs, made before the fork: behind it only system calls are safe. */
struct launch {
	char path[PATH_MAX];	  /* resolved */
	char library[PATH_MAX];	  /* what engine_find_library said */
	int library_fd, ready[2]; /* ready: the child writes one line */
	bool drop, hidden;	  /* become uid; the directory's parents are closed to it */
	uid_t uid;
	gid_t gid;
	pid_t parent;
	char path_argument[PATH_MAX + 16], library_argument[PATH_MAX + 16], ready_argument[32];
};

/* Where a directory that only root can reach is shown to the child, in a mount namespace of its
 * own. */
static const char shown_at[] = "/mnt";

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / NSEC_PER_MSEC;
}

/* ---- a store that is there already ---- */

static bool answers(const char *url)
{
	struct clickhouse_endpoint e = { .url = (char *)url, .connect_timeout_ns = NSEC_PER_SEC };
	struct clickhouse_client *client;
	bool ok;

	if (clickhouse_client_new(&e, &client, NULL) < 0)
		return false;
	ok = clickhouse_ping(client, NULL) == 0;
	clickhouse_client_free(client);
	return ok;
}

static int fill_child(struct store_child *c, const char *path, const char *url, struct why *why)
{
	char password[STORE_PASSWORD_LEN + 1];
	int err = store_directory_password(path, false, password, why);

	if (err)
		return err;
	c->path = strdup(path);
	c->url = strdup(url);
	c->user = strdup("default");
	c->password = strdup(password);
	explicit_bzero(password, sizeof(password));
	if (!c->path || !c->url || !c->user || !c->password)
		return why_fail(why, ENOMEM, "out of memory");
	return 0;
}

/* -ESRCH: nobody serves the directory. Waits for one that is just starting. */
static int take_running(const char *path, struct store_child *c, struct why *why)
{
	uint64_t deadline = now_ms() + START_TIMEOUT_S * 1000;
	const struct timespec tick = { .tv_nsec = 50 * NSEC_PER_MSEC };
	char url[STORE_URL_MAX];
	pid_t pid;

	while (store_directory_is_locked(path)) {
		if (store_directory_endpoint(path, url, sizeof(url), &pid) == 0 && answers(url))
			return fill_child(c, path, url, why);
		if (stop_requested())
			return why_fail(why, ECANCELED, "told to stop before the store answered");
		if (now_ms() > deadline)
			return why_fail(
				why, ETIMEDOUT,
				"a store holds %s but does not answer; its pid is in %s/lock", path,
				path);
		nanosleep(&tick, NULL);
	}
	return -ESRCH;
}

/* ---- before the fork ---- */

/* Whose directory it is; root's is given to `underspan`, or nobody. */
static int choose_user(struct launch *l, const struct stat *st, struct why *why)
{
	struct passwd *pw;

	pw = st->st_uid ? getpwuid(st->st_uid) : getpwnam("underspan") ?: getpwnam("nobody");
	if (!pw && !st->st_uid)
		return why_fail(why, ENOENT,
				"neither a user underspan nor nobody exists, to run "
				"the store as");
	l->uid = pw ? pw->pw_uid : st->st_uid;
	l->gid = pw ? pw->pw_gid : st->st_gid;
	return 0;
}

/*
 * Children first, the directory itself last: until then it is root's and 0700, so nobody else can
 * move things about under our feet.
 */
static int give_away(const char *path, uid_t uid, gid_t gid, struct why *why)
{
	char *roots[] = { (char *)path, NULL };
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
	int err = 0;
	FTSENT *e;

	if (!walk)
		return why_fail(why, errno, "cannot read %s: %s", path, strerror(errno));
	while (!err && (e = fts_read(walk))) {
		if (e->fts_info != FTS_D && lchown(e->fts_path, uid, gid) < 0)
			err = why_fail(why, errno, "cannot give %s to the store's user: %s",
				       e->fts_path, strerror(errno));
	}
	fts_close(walk);
	return err;
}

/* Whether a parent directory keeps the user out (plain permissions; what else there is, fails). */
static bool is_hidden(const char *path, uid_t uid, gid_t gid)
{
	char parent[PATH_MAX];
	struct stat st;

	snprintf(parent, sizeof(parent), "%s", path);
	while (strcmp(parent, "/") != 0) {
		mode_t need;

		dirname(parent);
		if (stat(parent, &st) < 0)
			return true;
		need = st.st_uid == uid ? S_IXUSR : st.st_gid == gid ? S_IXGRP : S_IXOTH;
		if (!(st.st_mode & need))
			return true;
	}
	return false;
}

static int prepare_user(struct launch *l, struct why *why)
{
	struct stat st;
	int err;

	if (geteuid() != 0)
		return 0;
	if (stat(l->path, &st) < 0)
		return why_fail(why, errno, "cannot look at %s: %s", l->path, strerror(errno));
	err = choose_user(l, &st, why);
	if (!err && st.st_uid != l->uid)
		err = give_away(l->path, l->uid, l->gid, why);
	if (err)
		return err;
	l->drop = true;
	l->hidden = is_hidden(l->path, l->uid, l->gid);
	return 0;
}

static int prepare(struct launch *l, const struct store_spawn_options *o, struct why *why)
{
	int err = engine_find_library(o->libchdb, l->library, sizeof(l->library), why);

	if (err)
		return err;
	err = prepare_user(l, why);
	if (err)
		return err;
	/* opened by us: the user need not be able to reach it */
	l->library_fd = open(l->library, O_RDONLY | O_CLOEXEC);
	if (l->library_fd < 0)
		return why_fail(why, errno, "cannot open %s: %s", l->library, strerror(errno));
	if (pipe2(l->ready, O_CLOEXEC) < 0)
		return why_fail(why, errno, "cannot make a pipe: %s", strerror(errno));
	l->parent = getpid();
	snprintf(l->path_argument, sizeof(l->path_argument), "--path=%s",
		 l->hidden ? shown_at : l->path);
	snprintf(l->library_argument, sizeof(l->library_argument), "--libchdb=/proc/self/fd/%d",
		 l->library_fd);
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

/* The child sees its directory at another place; nobody else does. */
static void show_directory(const struct launch *l)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(l->path, shown_at, NULL, MS_BIND, NULL) < 0)
		give_up(l, "its user cannot reach the directory, a parent directory is closed to "
			   "others, and it cannot be mounted elsewhere");
}

static void drop_privileges(const struct launch *l)
{
	/* not allowed without CAP_SETPCAP, and then there is little to drop */
	for (int cap = 0; cap < 64; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (l->drop && (setgroups(0, NULL) < 0 || setresgid(l->gid, l->gid, l->gid) < 0 ||
			setresuid(l->uid, l->uid, l->uid) < 0))
		give_up(l, "cannot become an unprivileged user");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		give_up(l, "cannot renounce privileges");
}

static _Noreturn void become_store(const struct launch *l)
{
	char *arguments[] = { "underspan",
			      "store",
			      (char *)l->path_argument,
			      (char *)l->library_argument,
			      (char *)l->ready_argument,
			      "--listen=127.0.0.1:0",
			      "--log_level=warn",
			      NULL };
	sigset_t none;

	/* nothing of the parent's but these two and its stderr; 4: CLOSE_RANGE_CLOEXEC */
	syscall(SYS_close_range, 3U, ~0U, 4U);
	if (fcntl(l->library_fd, F_SETFD, 0) < 0 || fcntl(l->ready[1], F_SETFD, 0) < 0)
		give_up(l, "fcntl");
	/* a terminal's Ctrl-C is for the parent, which ends us in its own time */
	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (l->hidden)
		show_directory(l);
	/* the engine asks for its working directory, which our user may see and the child's not */
	if (chdir("/") < 0)
		give_up(l, "cannot change to /");
	drop_privileges(l);
	/* behind the change of user, which would clear it */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
		give_up(l, "prctl");
	if (getppid() != l->parent)
		_exit(0);
	execv("/proc/self/exe", arguments);
	give_up(l, "cannot execute the program again (may its user read it?)");
}

/* ---- after the fork ---- */

static void describe_end(pid_t pid, struct why *why)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		why_fail(why, EIO, "the store process is gone");
	else if (WIFSIGNALED(status))
		why_fail(why, EIO, "the store process was ended by %s before it served",
			 strsignal(WTERMSIG(status)));
	else
		why_fail(why, EIO, "the store process ended with status %d before it served",
			 WEXITSTATUS(status));
}

/* Reads the child's line into buf. -EPIPE: it ended without one. -ECANCELED: we are to stop. */
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

static int await(struct launch *l, pid_t pid, uint64_t timeout_ns, struct store_child *c,
		 struct why *why)
{
	char line[600];
	int err = read_line(l->ready[0], now_ms() + timeout_ns / NSEC_PER_MSEC, line, sizeof(line));

	if (!err && !strncmp(line, "ready ", 6)) {
		err = fill_child(c, l->path, line + 6, why);
		if (!err) {
			c->pid = pid;
			c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
			return 0;
		}
	} else if (!err && !strncmp(line, "failed ", 7)) {
		waitpid(pid, NULL, 0);
		return why_fail(why, EIO, "%.500s", line + 7);
	} else if (err == -ECANCELED) {
		c->pid = pid; /* store_spawn() stops it, as one that serves */
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

static int launch(struct launch *l, const struct store_spawn_options *o, struct store_child *c,
		  struct why *why)
{
	uint64_t timeout_ns = o->start_timeout_ns ?: START_TIMEOUT_S * NSEC_PER_SEC;
	int err = prepare(l, o, why);
	pid_t pid;

	if (err)
		return err;
	pid = fork();
	if (pid < 0)
		return why_fail(why, errno, "cannot start a process: %s", strerror(errno));
	if (pid == 0)
		become_store(l);
	close(l->ready[1]);
	l->ready[1] = -1;
	return await(l, pid, timeout_ns, c, why);
}

int store_spawn(const struct store_spawn_options *o, struct store_child *ret_child, struct why *why)
{
	struct launch l = { .library_fd = -1, .ready = { -1, -1 } };
	struct store_child c = { .pidfd = -1 };
	int err = store_directory_make(o->path, why);

	if (err)
		return err;
	if (!realpath(o->path, l.path))
		return why_fail(why, errno, "cannot find %s: %s", o->path, strerror(errno));
	err = take_running(l.path, &c, why);
	if (err == -ESRCH)
		err = launch(&l, o, &c, why);
	/* somebody else started one in the same moment */
	if (err == -EIO && store_directory_is_locked(l.path))
		err = take_running(l.path, &c, why);
	for (size_t i = 0; i < 2; i++) {
		if (l.ready[i] >= 0)
			close(l.ready[i]);
	}
	if (l.library_fd >= 0)
		close(l.library_fd);
	if (err) {
		store_stop(&c);
		return err;
	}
	*ret_child = c;
	return 0;
}

static bool end_process(struct store_child *c)
{
	uint64_t left_ms = stop_left_ns(STOP_RESERVE_NS) / NSEC_PER_MSEC;
	uint64_t deadline = now_ms() + (left_ms > STOP_MIN_MS ? left_ms : STOP_MIN_MS);
	const struct timespec tick = { .tv_nsec = 5 * NSEC_PER_MSEC };
	bool by_itself = true;

	kill(c->pid, SIGTERM);
	while (waitpid(c->pid, NULL, WNOHANG) == 0) {
		struct pollfd p = { .fd = c->pidfd, .events = POLLIN };
		uint64_t now = now_ms();

		if (now >= deadline) {
			log_warn("store: process %d does not stop, killing it", (int)c->pid);
			kill(c->pid, SIGKILL);
			waitpid(c->pid, NULL, 0);
			by_itself = false;
			break;
		}
		/* kernels before 5.3 have no pidfd */
		if (c->pidfd < 0)
			nanosleep(&tick, NULL);
		else
			poll(&p, 1, (int)(deadline - now));
	}
	return by_itself;
}

bool store_stop(struct store_child *c)
{
	bool by_itself = c->pid > 0 ? end_process(c) : true;

	if (c->pid > 0 && c->pidfd >= 0)
		close(c->pidfd);
	if (c->password)
		explicit_bzero(c->password, strlen(c->password));
	free(c->path);
	free(c->url);
	free(c->user);
	free(c->password);
	*c = (struct store_child){ .pidfd = -1 };
	return by_itself;
}
