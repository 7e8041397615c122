// SPDX-License-Identifier: Apache-2.0
/* Between fork() and execve() of a clickhouse program. See program_process.h. */
#include "store/program_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXEC_FAILED = 127, FREE_FD = 10 };

int program_scratch(const char *directory)
{
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
		fd = (int)syscall(SYS_memfd_create, "underspan-store", 1U); /* MFD_CLOEXEC */
	return fd < 0 ? -errno : fd;
}

int program_write(int fd, const char *at, size_t len)
{
	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Duplicates to a number above all numbers that the program gets. */
static int move_away(int fd)
{
	return fd < 0 ? fd : fcntl(fd, F_DUPFD, FREE_FD);
}

static _Noreturn void become_program(const struct program_run *run, const char *path,
				     char **environment)
{
	const int from[] = { move_away(open("/dev/null", O_RDONLY)),
			     move_away(run->output),
			     move_away(run->errors),
			     move_away(run->sql),
			     move_away(run->config),
			     move_away(run->rows) };
	const int n = (int)ARRAY_SIZE(from) - (run->rows < 0);
	sigset_t none;

	for (int i = 0; i < n; i++) {
		if (dup2(from[i], i) < 0)
			_exit(EXEC_FAILED);
	}
	/* the program's file stays open until execve(); 4: CLOSE_RANGE_CLOEXEC, Linux 5.11 */
	if (syscall(SYS_close_range, (unsigned int)n, ~0U, 4U) < 0) {
		for (int fd = n; fd < 1024; fd++)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	execve(path, run->arguments, environment);
	dprintf(STDERR_FILENO, "cannot start: %s", strerror(errno));
	_exit(EXEC_FAILED);
}

int program_start(const struct program_run *run, pid_t *ret_pid, int *ret_pidfd)
{
	AUTO_CLOSE int program = fcntl(run->program, F_DUPFD_CLOEXEC, 2 * FREE_FD);
	char path[32], zone[128] = "TZ=UTC";
	char *environment[] = { getenv("TZ") ? zone : NULL, NULL };
	pid_t parent = getpid(), pid;

	if (program < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", program);
	snprintf(zone, sizeof(zone), "TZ=%s", getenv("TZ") ?: "");
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(EXEC_FAILED);
		become_program(run, path, environment);
	}
	*ret_pid = pid;
	*ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (*ret_pidfd >= 0)
		return 0;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return -ENOSYS;
}
