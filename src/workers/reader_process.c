// SPDX-License-Identifier: Apache-2.0
/* Agent side of reader processes. See reader_process.h. */
#include "workers/reader_process.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "workers/fork_server.h"
#include "workers/left_behind.h"
#include "base/log.h"
#include "base/budget.h"
#include "base/clock.h"
#include "base/util.h"

enum { LOOK_MS = 50, MAX_HUNG = 2 * READERS_MAX, OWN_DATA_BYTES = 16 << 20 };
static const uint64_t END_NS = 200 * NSEC_PER_MSEC, HUNG_LOOK_NS = 20 * NSEC_PER_MSEC;

struct reader {
	int socket, pidfd; /* -1: none */
	uint32_t slot;	   /* of budget.h */
	uint64_t cpu_ns;
	const struct reader_watch *watch;
	uint64_t patience_ns, until_ns; /* 0: no limit */
	struct reader *next;
	bool listed;
};

static _Thread_local struct reader own_reader = { .socket = -1, .pidfd = -1 };

/* Under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct reader *readers; /* readers of all threads */
static struct hung {
	int pidfd;
	uint64_t owner;
	struct read_file file;
	uint32_t host_pid, slot;
	bool left_behind; /* of an earlier agent */
} hung[MAX_HUNG];
static size_t n_hung;
static uint64_t hung_looked_ns;
static int server = -1;
static pid_t server_pid;

static _Atomic uint64_t cpu_of_all;

/* ---- hung processes ---- */

/* Under the lock. */
static void forget_ended(void)
{
	struct pollfd fds[MAX_HUNG];
	uint64_t now_ns = n_hung ? clock_monotonic_ns() : 0;
	size_t kept = 0;

	if (!n_hung || now_ns < hung_looked_ns + HUNG_LOOK_NS)
		return;
	hung_looked_ns = now_ns;
	for (size_t i = 0; i < n_hung; i++)
		fds[i] = (struct pollfd){ .fd = hung[i].pidfd, .events = POLLIN };
	poll(fds, n_hung, 0);
	for (size_t i = 0; i < n_hung; i++) {
		if (fds[i].revents) {
			close(hung[i].pidfd);
			if (!hung[i].left_behind)
				budget_slot_ended(hung[i].slot);
		} else {
			hung[kept++] = hung[i];
		}
	}
	n_hung = kept;
}

/* Takes ownership of the pidfd. */
static void remember_hung(const struct reader *reader)
{
	const struct reader_watch *watch = reader->watch;
	struct hung h = { .pidfd = reader->pidfd, .slot = reader->slot };

	if (watch) {
		h.owner = watch->owner;
		h.file = watch->file;
		h.host_pid = watch->host_pid;
	}
	pthread_mutex_lock(&lock);
	forget_ended();
	if (n_hung < MAX_HUNG)
		hung[n_hung++] = h;
	else
		close(reader->pidfd);
	pthread_mutex_unlock(&lock);
}

struct reader_use reader_processes_hung_of(uint64_t owner)
{
	struct reader_use use = { 0 };

	pthread_mutex_lock(&lock);
	forget_ended();
	for (size_t i = 0; i < n_hung; i++) {
		use.owner += hung[i].owner == owner;
		use.tenant += reader_tenant(hung[i].owner) == reader_tenant(owner);
	}
	pthread_mutex_unlock(&lock);
	return use;
}

size_t reader_processes_hung(void)
{
	size_t n;

	pthread_mutex_lock(&lock);
	forget_ended();
	n = n_hung;
	pthread_mutex_unlock(&lock);
	return n;
}

static bool is_of_file(const struct hung *h, struct read_file file)
{
	return file.ino && h->file.ino == file.ino && h->file.dev == file.dev;
}

bool reader_process_hangs_on(uint32_t host_pid, struct read_file file)
{
	bool hangs = false;

	pthread_mutex_lock(&lock);
	forget_ended();
	for (size_t i = 0; i < n_hung; i++)
		hangs |= hung[i].host_pid == host_pid || is_of_file(&hung[i], file);
	pthread_mutex_unlock(&lock);
	return hangs;
}

/* ---- start and end of a process ---- */

static void kill_process(int pidfd)
{
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static void unlist_reader(struct reader *reader)
{
	struct reader **at = &readers;

	pthread_mutex_lock(&lock);
	while (reader->listed && *at != reader)
		at = &(*at)->next;
	if (reader->listed)
		*at = reader->next;
	reader->listed = false;
	pthread_mutex_unlock(&lock);
}

/* Does not wait: the process may hang. */
static void drop_reader(struct reader *reader)
{
	if (reader->socket < 0)
		return;
	unlist_reader(reader);
	close(reader->socket);
	kill_process(reader->pidfd);
	remember_hung(reader);
	reader->socket = reader->pidfd = -1;
}

/* Lock held: requests of threads must not interleave. */
static int ask_server(int fds[PACKET_MAX_FDS], uint32_t *ret_slot)
{
	struct reader_started started = { 0 };
	const struct iovec answer = { &started, sizeof(started) }, question = { "r", 1 };
	size_t n = 0;

	if (server < 0 || packet_send(server, &question, 1, NULL, 0) != 1 ||
	    packet_receive(server, &answer, 1, fds, &n) != sizeof(started))
		return -ECHILD;
	*ret_slot = started.slot;
	return started.err ? started.err : n == PACKET_MAX_FDS ? 0 : -ECHILD;
}

static int get_process(struct reader *reader)
{
	static struct log_limit limit;
	int fds[PACKET_MAX_FDS], err;

	if (reader->socket >= 0)
		return 0;
	pthread_mutex_lock(&lock);
	err = ask_server(fds, &reader->slot);
	if (!err) {
		reader->socket = fds[0];
		reader->pidfd = fds[1];
		reader->next = readers;
		reader->listed = true;
		readers = reader;
	}
	pthread_mutex_unlock(&lock);
	if (err)
		log_ratelimited(&limit, "no process can be started to read files and memory: %s",
				strerror(-err));
	return err;
}

/* ---- calls ---- */

static bool is_given_up(const struct reader *reader)
{
	return (reader->watch && atomic_load(&reader->watch->give_up)) ||
	       (reader->until_ns && clock_monotonic_ns() > reader->until_ns);
}

/* 0, -ECANCELED */
static int wait_for_answer(const struct reader *reader)
{
	struct pollfd fd = { .fd = reader->socket, .events = POLLIN };

	while (poll(&fd, 1, LOOK_MS) <= 0) {
		if (is_given_up(reader))
			return -ECANCELED;
	}
	return 0;
}

static int receive_data(const struct reader *reader, struct read_extra *extra, size_t size)
{
	char *data = malloc(size);
	size_t at = 0;
	int err = data ? 0 : -ENOMEM;

	while (!err && at < size) {
		ssize_t n;

		err = wait_for_answer(reader);
		n = err ? 0 : recv(reader->socket, data + at, size - at, 0);
		if (!err && n <= 0)
			err = -EIO;
		at += (size_t)n;
	}
	if (err) {
		free(data);
		return err;
	}
	extra->data = data;
	extra->data_size = size;
	return 0;
}

/* The argument changes only after the complete answer. */
static int receive_answer(struct reader *reader, void *argument, size_t size,
			  struct read_extra *extra)
{
	AUTO_FREE void *copy = malloc(size);
	struct reader_answer head;
	const struct iovec parts[] = { { &head, sizeof(head) }, { copy, size } };
	int fds[PACKET_MAX_FDS], err = copy ? wait_for_answer(reader) : -ENOMEM;
	size_t n_fds = 0;

	if (err)
		return err;
	if (packet_receive(reader->socket, parts, 2, fds, &n_fds) != (ssize_t)(sizeof(head) + size))
		err = -EIO;
	if (!err && head.data_size)
		err = receive_data(reader, extra, head.data_size);
	if (err) {
		if (n_fds)
			close(fds[0]);
		return err;
	}
	memcpy(argument, copy, size);
	extra->fd = n_fds ? fds[0] : -1;
	reader->cpu_ns += head.cpu_ns;
	cpu_of_all += head.cpu_ns;
	return 0;
}

static int call_reader(struct reader *reader, read_function run, void *argument, size_t size,
		       struct read_extra *extra)
{
	struct reader_call head = { run, size, reader->watch ? reader->watch->host_pid : 0 };
	const struct iovec parts[] = { { &head, sizeof(head) }, { argument, size } };
	int passed = extra->fd, err = get_process(reader);

	extra->fd = -1;
	if (err)
		return err;
	if (packet_send(reader->socket, parts, 2, &passed, passed >= 0) < 0)
		err = -EIO;
	if (!err)
		err = receive_answer(reader, argument, size, extra);
	if (err)
		drop_reader(reader);
	return err;
}

int reader_process_run(read_function run, void *argument, size_t size, struct read_extra *extra)
{
	struct read_extra none = { .fd = -1 };

	if (size > READ_ARGUMENT_MAX)
		return -E2BIG;
	if (!extra)
		extra = &none;
	extra->data = NULL;
	extra->data_size = 0;
	if (!server_pid) {
		run(argument, extra);
		return 0;
	}
	own_reader.until_ns = own_reader.patience_ns ? clock_monotonic_ns() + own_reader.patience_ns
						     : 0;
	return is_given_up(&own_reader) ? -ECANCELED
					: call_reader(&own_reader, run, argument, size, extra);
}

void reader_process_watch(const struct reader_watch *watch)
{
	own_reader.watch = watch;
}

void reader_process_patience(uint64_t ns)
{
	own_reader.patience_ns = ns;
}

void reader_process_end(void)
{
	drop_reader(&own_reader);
}

uint64_t reader_process_thread_cpu_ns(void)
{
	return own_reader.cpu_ns;
}

uint64_t reader_process_cpu_ns(void)
{
	return cpu_of_all;
}

/* ---- start and stop ---- */

/* Removes readers that end within 200 ms in all: killed a moment ago, but not stalled. */
static size_t drop_ended(struct left_behind *found, size_t n)
{
	const uint64_t deadline = clock_monotonic_ns() + 200 * NSEC_PER_MSEC;
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct pollfd ended = { .fd = found[i].pidfd, .events = POLLIN };
		uint64_t now = clock_monotonic_ns();
		int left_ms = now < deadline ? (int)((deadline - now) / NSEC_PER_MSEC) : 0;

		if (poll(&ended, 1, left_ms) > 0)
			close(found[i].pidfd);
		else
			found[kept++] = found[i];
	}
	return kept;
}

/* Single-threaded. */
static void count_left_behind(void)
{
	struct left_behind found[READERS_MAX];
	size_t n = drop_ended(found, readers_left_behind(found, ARRAY_SIZE(found)));

	for (size_t i = 0; i < n && n_hung < MAX_HUNG; i++) {
		hung[n_hung++] = (struct hung){ .pidfd = found[i].pidfd,
						.owner = found[i].owner,
						.left_behind = true };
	}
	if (n)
		log_warn("%zu reader %s of an earlier agent %s stalled on files or "
			 "memory; the limit of reader processes per user is lower by this number",
			 n, counted(n, "process", "processes"), counted(n, "is", "are"));
}

int reader_processes_start(uint64_t memory_limit, struct why *why)
{
	int fd = budget_start(memory_limit);

	if (!fd) /* growing arrays exist twice during realloc() */
		fd = fork_server_start(2 * budget_of_file() + OWN_DATA_BYTES, &server_pid);
	if (fd < 0)
		return why_fail(why, -fd, "cannot fork: %s", strerror(-fd));
	server = fd;
	count_left_behind();
	return 0;
}

bool reader_processes_can_start(void)
{
	return !server_pid || waitpid(server_pid, NULL, WNOHANG) == 0;
}

void reader_processes_kill(void)
{
	if (server_pid) {
		kill(server_pid, SIGKILL);
		waitpid(server_pid, NULL, 0);
	}
}

static bool all_ended(void)
{
	size_t own = 0;

	pthread_mutex_lock(&lock);
	forget_ended();
	for (size_t i = 0; i < n_hung; i++)
		own += !hung[i].left_behind;
	pthread_mutex_unlock(&lock);
	return !own && waitpid(server_pid, NULL, WNOHANG) != 0;
}

void reader_processes_stop(void)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	uint64_t until_ns = clock_monotonic_ns() + END_NS;

	if (!server_pid)
		return;
	drop_reader(&own_reader);
	for (struct reader *r = readers; r; r = r->next)
		kill_process(r->pidfd);
	close(server); /* ends the server and its children */
	server = -1;
	while (!all_ended() && clock_monotonic_ns() < until_ns)
		nanosleep(&pause, NULL);
	server_pid = 0;
}
