/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network driver's own statistics, as `ethtool -i` and `ethtool -S` show them: the driver's name,
 * and its counters by name. The number and order of counters differ between drivers, versions and
 * numbers of queues.
 */
#ifndef UNDERSPAN_ETHTOOL_H
#define UNDERSPAN_ETHTOOL_H

#include <stddef.h>
#include <stdint.h>

#include "util.h"

enum {
	ETHTOOL_NAME_LEN = 32,	  /* ETH_GSTRING_LEN */
	ETHTOOL_MAX_STATS = 8192, /* ENA with 128 queues has about 3,000 */
};

struct ethtool_reader;

/* The interfaces are those of the caller's network namespace. NULL with why when there is no socket
 * or memory. */
struct ethtool_reader *ethtool_open(struct why *why);
void ethtool_close(struct ethtool_reader *reader);

/* The name of the interface's driver, "" when it has none. Returns 0, or -errno (-ENODEV: it is
 * gone). */
int ethtool_driver(struct ethtool_reader *reader, const char *interface, char *ret, size_t size);

/* Borrowed until the next call; names are not NUL-terminated when they fill their 32 bytes. */
struct ethtool_stats_view {
	const char (*names)[ETHTOOL_NAME_LEN];
	const uint64_t *values;
	uint32_t n;
};

/* Reads all counters. -ENODEV: the interface is gone; -EAGAIN: its counters changed meanwhile; or
 * another -errno. */
int ethtool_read(struct ethtool_reader *reader, const char *interface,
		 struct ethtool_stats_view *ret, struct why *why);

/* The index of the counter, -1 when the driver has none of this name. */
int ethtool_find(const char (*names)[ETHTOOL_NAME_LEN], uint32_t n, const char *wanted);

#endif
