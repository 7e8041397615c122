/* SPDX-License-Identifier: Apache-2.0 */
/* TCP counters of a network namespace, as in `nstat`. */
#ifndef UNDERSPAN_HOST_NETSTAT_H
#define UNDERSPAN_HOST_NETSTAT_H

#include <stdint.h>

/*
 * Reads the TcpExt counter `name` ("ListenOverflows") of the network namespace `netns` (its inode
 * number), through `host_pid`, a process in the namespace. -ESTALE: the process is in another
 * namespace or gone.
 */
int netstat_read(uint32_t netns, uint32_t host_pid, const char *name, uint64_t *ret);

/* The same from the text of /proc/PID/net/netstat. -ENOENT: no such counter. */
int netstat_parse(const char *text, const char *name, uint64_t *ret);

#endif
