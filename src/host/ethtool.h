/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network driver's statistics, as in `ethtool -i` and `ethtool -S`: driver name and named
 * counters. Number and order of counters depend on driver, version and number of queues.
 */
#ifndef UNDERSPAN_HOST_ETHTOOL_H
#define UNDERSPAN_HOST_ETHTOOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum {
	ETHTOOL_NAME_LEN = 32,	  /* ETH_GSTRING_LEN */
	ETHTOOL_MAX_STATS = 8192, /* ENA with 128 queues has about 3,000 */
};

struct ethtool_reader;

/* Reads interfaces of the caller's network namespace. NULL with why: no socket or memory. */
struct ethtool_reader *ethtool_open(struct why *why);
void ethtool_close(struct ethtool_reader *reader);

/* Driver name of the interface, "": none. 0, or -errno (-ENODEV: the interface is gone). */
int ethtool_driver(struct ethtool_reader *reader, const char *interface, char *ret, size_t size);

/* Borrowed until the next call; names of 32 bytes are not NUL-terminated. */
struct ethtool_stats_view {
	const char (*names)[ETHTOOL_NAME_LEN];
	const uint64_t *values;
	uint32_t n;
};

/* Reads all counters. -ENODEV: the interface is gone; -EAGAIN: the set of counters changed during
 * the read; other -errno. */
int ethtool_read(struct ethtool_reader *reader, const char *interface,
		 struct ethtool_stats_view *ret, struct why *why);

/* Index of the counter; -1: the driver has no counter of this name. */
int ethtool_find(const char (*names)[ETHTOOL_NAME_LEN], uint32_t n, const char *wanted);

#endif
