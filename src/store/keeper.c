// SPDX-License-Identifier: Apache-2.0
/* See keeper.h. */
#include "store/keeper.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The child must not keep the lock or a listening socket after the parent's end. */
static void close_others(int a, int b)
{
	unsigned int low = (unsigned int)(a < b ? a : b), high = (unsigned int)(a < b ? b : a);

	syscall(SYS_close_range, 3U, low - 1, 0U);
	if (high > low + 1)
		syscall(SYS_close_range, low + 1, high - 1, 0U);
	syscall(SYS_close_range, high + 1, ~0U, 0U);
}

static _Noreturn void keep(const struct keeper *k, int fd)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };
	int status = 0;
	char command;

	close_others(fd, k->directory->fd);
	prctl(PR_SET_NAME, "underspan-keep");
	if (syscall(SYS_capset, &header, none) < 0)
		_exit(1);
	while (read(fd, &command, 1) == 1) {
		if (command == 'p')
			status = -store_directory_publish(k->directory, k->url, NULL);
		else
			store_directory_unpublish(k->directory);
		if (write(fd, &status, sizeof(status)) != sizeof(status))
			break;
	}
	_exit(0);
}

int keeper_start(struct keeper *k, const struct store_directory *directory, const char *url,
		 struct why *why)
{
	int pair[2];

	*k = (struct keeper){ .directory = directory, .url = url, .fd = -1 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return why_fail(why, errno, "cannot make a socket: %s", strerror(errno));
	k->pid = fork();
	if (k->pid == 0)
		keep(k, pair[1]);
	close(pair[1]);
	k->fd = pair[0];
	if (k->pid > 0)
		return 0;
	close(pair[0]);
	k->pid = 0;
	return why_fail(why, errno, "cannot start a process: %s", strerror(errno));
}

static int tell(struct keeper *k, char command)
{
	int status;

	if (write(k->fd, &command, 1) != 1 ||
	    read(k->fd, &status, sizeof(status)) != sizeof(status))
		return -EPIPE;
	return -status;
}

int keeper_publish(struct keeper *k, struct why *why)
{
	int err = tell(k, 'p');

	return err ? why_fail(why, -err, "cannot write %s/endpoint: %s", k->directory->path,
			      strerror(-err))
		   : 0;
}

void keeper_stop(struct keeper *k)
{
	if (k->pid <= 0)
		return;
	tell(k, 'u');
	close(k->fd);
	waitpid(k->pid, NULL, 0);
	k->pid = 0;
}
