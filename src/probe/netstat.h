/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP counters of a network namespace, as `nstat` shows them. */
#ifndef UNDERSPAN_NETSTAT_H
#define UNDERSPAN_NETSTAT_H

#include <stdint.h>

/*
 * Reads the TcpExt counter `name` ("ListenOverflows") of the network namespace `netns` (its inode
 * number), through `host_pid`, a process in it. -ESTALE: that process is in another one or gone.
 */
int netstat_read(uint32_t netns, uint32_t host_pid, const char *name, uint64_t *ret);

/* The same of the text of /proc/PID/net/netstat. -ENOENT: there is no such counter. */
int netstat_parse(const char *text, const char *name, uint64_t *ret);

#endif
