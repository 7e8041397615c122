// SPDX-License-Identifier: Apache-2.0
/* The fork server, and the main loop of reader processes. See fork_server.h. */
#include "workers/fork_server.h"
#include "workers/left_behind.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "host/privileges.h"
#include "base/budget.h"
#include "base/clock.h"
#include "base/util.h"

enum { SOCKET_FD = 3, PIECE_BYTES = 64 << 10 };

/* ---- packets ---- */

union fd_room {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * PACKET_MAX_FDS)];
};

ssize_t packet_send(int socket, const struct iovec *parts, size_t n, const int *fds, size_t n_fds)
{
	union fd_room room = { 0 };
	struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = n };
	ssize_t sent;

	if (n_fds) {
		struct cmsghdr *head = &room.align;

		message.msg_control = room.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * n_fds);
	}
	do
		sent = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

ssize_t packet_receive(int socket, const struct iovec *parts, size_t n, int *ret_fds,
		       size_t *ret_n_fds)
{
	union fd_room room = { 0 };
	struct msghdr message = { .msg_iov = (struct iovec *)parts,
				  .msg_iovlen = n,
				  .msg_control = room.bytes,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *head;
	ssize_t got;

	*ret_n_fds = 0;
	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		*ret_n_fds = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(ret_fds, CMSG_DATA(head), *ret_n_fds * sizeof(int));
	}
	return got;
}

/* ---- reader process ---- */

/* A hostile file may take long to search: the process ends by SIGXCPU. */
static void limit_cpu(void)
{
	rlim_t used = clock_process_cpu_ns() / NSEC_PER_SEC;
	const struct rlimit limit = { used + READER_CPU_SECONDS, RLIM_INFINITY };

	setrlimit(RLIMIT_CPU, &limit);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

/* Not with a sanitizer: shadow memory exceeds any limit. */
static void limit_memory(uint64_t bytes)
{
#ifndef SANITIZED
	const struct rlimit limit = { bytes, bytes }, no_core = { 0, 0 };

	if (bytes)
		setrlimit(RLIMIT_DATA, &limit);
	setrlimit(RLIMIT_CORE, &no_core);
#else
	(void)bytes;
#endif
}

static bool send_answer(int socket, const struct reader_answer *answer, const void *argument,
			size_t size, const struct read_extra *extra)
{
	const struct iovec parts[] = { { (void *)answer, sizeof(*answer) },
				       { (void *)argument, size } };
	bool sent = packet_send(socket, parts, 2, &extra->fd, extra->fd >= 0) > 0;

	for (size_t at = 0; sent && at < extra->data_size; at += PIECE_BYTES) {
		size_t left = extra->data_size - at;
		const struct iovec piece = { (char *)extra->data + at,
					     left < PIECE_BYTES ? left : PIECE_BYTES };

		sent = packet_send(socket, &piece, 1, NULL, 0) > 0;
	}
	return sent;
}

static bool serve(int socket)
{
	static _Alignas(16) char argument[READ_ARGUMENT_MAX];
	struct read_extra extra = { .fd = -1 };
	struct reader_answer head = { 0 };
	struct reader_call call;
	const struct iovec parts[] = { { &call, sizeof(call) }, { argument, sizeof(argument) } };
	int fds[PACKET_MAX_FDS], passed;
	size_t n_fds;
	bool sent;

	if (packet_receive(socket, parts, 2, fds, &n_fds) < (ssize_t)sizeof(call))
		return false;
	passed = n_fds ? fds[0] : -1;
	extra.fd = passed;
	limit_cpu();
	head.cpu_ns = clock_thread_cpu_ns();
	left_behind_label(call.host_pid);
	call.run(argument, &extra);
	head.cpu_ns = clock_thread_cpu_ns() - head.cpu_ns;
	head.data_size = extra.data_size;
	if (extra.fd == passed)
		extra.fd = -1;
	sent = send_answer(socket, &head, argument, call.size, &extra);
	if (extra.fd >= 0)
		close(extra.fd);
	if (passed >= 0)
		close(passed);
	free(extra.data);
	return sent;
}

/* ---- fork server ---- */

static void prefer_to_be_killed_for_memory(void)
{
	AUTO_CLOSE int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "1000", 4) < 0)
		return; /* best effort */
}

/* Signals of terminal and service manager are for the agent, which ends the other processes. */
static void detach_from_agent(pid_t parent, const char *name)
{
	sigset_t signals;

	sigfillset(&signals);
	sigdelset(&signals, SIGXCPU);
	sigprocmask(SIG_SETMASK, &signals, NULL);
	prctl(PR_SET_NAME, name, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(0);
}

/* Closes all descriptors but the socket: a hung process must not hold a pipe, a lock or a probe. */
static void keep_only(int socket)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd < SOCKET_FD; fd++)
		dup2(null, fd);
	dup2(socket, SOCKET_FD);
	syscall(SYS_close_range, SOCKET_FD + 1, ~0U, 0);
	if (chdir("/"))
		_exit(1);
}

static void send_reader(int socket, pid_t pid, uint32_t slot)
{
	struct reader_started started = { pid < 0 ? -errno : 0, slot };
	int fds[PACKET_MAX_FDS] = { socket, -1 };
	const struct iovec part = { &started, sizeof(started) };

	if (!started.err) {
		fds[1] = (int)syscall(SYS_pidfd_open, pid, 0);
		started.err = fds[1] < 0 ? -errno : 0;
	}
	packet_send(SOCKET_FD, &part, 1, fds, started.err ? 0 : 2);
	if (fds[1] >= 0)
		close(fds[1]);
}

static void fork_reader(pid_t self)
{
	static uint32_t slot;
	int pair[2];
	pid_t pid;

	slot++;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		send_reader(-1, -1, 0);
		return;
	}
	pid = fork();
	if (!pid) {
		detach_from_agent(self, READER_NAME);
		keep_only(pair[1]);
		budget_use_slot(slot);
		prefer_to_be_killed_for_memory();
		while (serve(SOCKET_FD))
			;
		_exit(0);
	}
	send_reader(pair[0], pid, slot);
	close(pair[0]);
	close(pair[1]);
}

static void run_server(pid_t agent, int socket, uint64_t memory_bytes)
{
	char byte;

	privileges_drop_to_reading();
	detach_from_agent(agent, FORK_SERVER_NAME);
	keep_only(socket);
	signal(SIGCHLD, SIG_IGN); /* children are reaped automatically */
	limit_memory(memory_bytes);
	while (recv(SOCKET_FD, &byte, 1, 0) == 1)
		fork_reader(getpid());
	_exit(0);
}

int fork_server_start(uint64_t memory_bytes, pid_t *ret_pid)
{
	pid_t agent = getpid(), pid;
	int pair[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	pid = fork();
	if (!pid)
		run_server(agent, pair[1], memory_bytes);
	err = pid < 0 ? -errno : 0;
	close(pair[1]);
	if (err) {
		close(pair[0]);
		return err;
	}
	*ret_pid = pid;
	return pair[0];
}
