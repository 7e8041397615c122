// SPDX-License-Identifier: Apache-2.0
/* Driver statistics through ioctl(SIOCETHTOOL). See ethtool.h. */
#include "host/ethtool.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* struct ethtool_gstrings, ethtool_stats and ethtool_sset_info with their trailing arrays. */
struct names {
	uint32_t cmd, string_set, n;
	char items[ETHTOOL_MAX_STATS][ETHTOOL_NAME_LEN];
};
struct values {
	uint32_t cmd, n;
	uint64_t items[ETHTOOL_MAX_STATS];
};
struct sets {
	uint32_t cmd, reserved;
	uint64_t mask;
	uint32_t n;
};
_Static_assert(offsetof(struct names, items) == offsetof(struct ethtool_gstrings, data) &&
		       offsetof(struct values, items) == offsetof(struct ethtool_stats, data) &&
		       offsetof(struct sets, n) == offsetof(struct ethtool_sset_info, data),
	       "laid out as the kernel has them");

/*
 * The kernel writes all current counters of the driver, even more than requested: buffers have the
 * maximum size; untouched pages cost nothing.
 */
struct ethtool_reader {
	int fd;
	struct names names;
	struct values values;
};

static int ask(struct ethtool_reader *reader, const char *interface, void *command)
{
	struct ifreq request = { .ifr_data = command };

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	return ioctl(reader->fd, SIOCETHTOOL, &request) ? -errno : 0;
}

struct ethtool_reader *ethtool_open(struct why *why)
{
	struct ethtool_reader *reader = calloc(1, sizeof(*reader));

	if (!reader) {
		why_fail(why, ENOMEM, "out of memory");
		return NULL;
	}
	reader->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (reader->fd < 0) {
		why_fail(why, errno, "cannot open a socket to ask network drivers: %s",
			 strerror(errno));
		free(reader);
		return NULL;
	}
	return reader;
}

void ethtool_close(struct ethtool_reader *reader)
{
	if (!reader)
		return;
	close(reader->fd);
	free(reader);
}

int ethtool_driver(struct ethtool_reader *reader, const char *interface, char *ret, size_t size)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	int err = ask(reader, interface, &info);

	if (err == -EOPNOTSUPP) /* interfaces like loopback: no driver */
		info.driver[0] = err = 0;
	if (!err)
		snprintf(ret, size, "%.*s", (int)sizeof(info.driver), info.driver);
	return err;
}

static int count(struct ethtool_reader *reader, const char *interface, uint32_t *ret,
		 struct why *why)
{
	struct sets sets = { .cmd = ETHTOOL_GSSET_INFO, .mask = 1ULL << ETH_SS_STATS };
	int err = ask(reader, interface, &sets);

	if (err)
		return why_fail(why, -err, "%s: cannot query the driver's counters: %s", interface,
				strerror(-err));
	if (!sets.mask || !sets.n)
		return why_fail(why, ENODATA, "%s: the driver has no counters", interface);
	if (sets.n > ETHTOOL_MAX_STATS)
		return why_fail(why, E2BIG, "%s: the driver has %u counters, more than %u",
				interface, sets.n, ETHTOOL_MAX_STATS);
	*ret = sets.n;
	return 0;
}

int ethtool_read(struct ethtool_reader *reader, const char *interface,
		 struct ethtool_stats_view *ret, struct why *why)
{
	uint32_t n;
	int err = count(reader, interface, &n, why);

	if (err)
		return err;
	reader->names.cmd = ETHTOOL_GSTRINGS;
	reader->names.string_set = ETH_SS_STATS;
	reader->names.n = n;
	reader->values.cmd = ETHTOOL_GSTATS;
	reader->values.n = n;
	err = ask(reader, interface, &reader->names);
	if (!err)
		err = ask(reader, interface, &reader->values);
	if (err)
		return why_fail(why, -err, "%s: cannot read the driver's counters: %s", interface,
				strerror(-err));
	/* the number of queues changed between the calls: names and values do not match */
	if (reader->names.n != n || reader->values.n != n)
		return why_fail(why, EAGAIN, "%s: the driver's counters changed during the read",
				interface);
	*ret = (struct ethtool_stats_view){
		.names = (const char(*)[ETHTOOL_NAME_LEN])reader->names.items,
		.values = reader->values.items,
		.n = n,
	};
	return 0;
}

int ethtool_find(const char (*names)[ETHTOOL_NAME_LEN], uint32_t n, const char *wanted)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!strncmp(names[i], wanted, ETHTOOL_NAME_LEN))
			return (int)i;
	}
	return -1;
}
