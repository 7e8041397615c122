// SPDX-License-Identifier: Apache-2.0
/* Notifications to the service manager. See notify.h. */
#include "agent/notify.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/clock.h"

static struct sockaddr_un manager;
static socklen_t manager_len; /* 0: no manager */
static uint64_t alive_every_ns, alive_next_ns;

static bool is_for_us(const char *pid)
{
	return !pid || strtol(pid, NULL, 10) == getpid();
}

void notify_init(void)
{
	const char *path = getenv("NOTIFY_SOCKET"), *usec = getenv("WATCHDOG_USEC");
	size_t len = path ? strlen(path) : 0;

	manager_len = 0;
	alive_every_ns = 0;
	if (!len || len >= sizeof(manager.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	manager.sun_family = AF_UNIX;
	memcpy(manager.sun_path, path, len);
	if (path[0] == '@') /* abstract socket */
		manager.sun_path[0] = '\0';
	manager_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	/* twice per watchdog interval */
	if (usec && is_for_us(getenv("WATCHDOG_PID")))
		alive_every_ns = strtoull(usec, NULL, 10) * NSEC_PER_USEC / 2;
}

static void notify_manager(const char *words)
{
	AUTO_CLOSE int fd = -1;

	if (!manager_len)
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || sendto(fd, words, strlen(words), MSG_NOSIGNAL, (struct sockaddr *)&manager,
			     manager_len) < 0)
		log_debug("cannot notify the service manager: %s", strerror(errno));
}

void notify_ready(const char *status)
{
	char words[300];

	snprintf(words, sizeof(words), "READY=1\nSTATUS=%s", status);
	notify_manager(words);
}

void notify_reloading(void)
{
	char words[80];

	snprintf(words, sizeof(words), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)(clock_monotonic_ns() / NSEC_PER_USEC));
	notify_manager(words);
}

void notify_stopping(void)
{
	notify_manager("STOPPING=1");
}

void notify_alive(uint64_t now_ns)
{
	if (!alive_every_ns || now_ns < alive_next_ns)
		return;
	alive_next_ns = now_ns + alive_every_ns;
	notify_manager("WATCHDOG=1");
}
