// SPDX-License-Identifier: Apache-2.0
/*
 * request.ports: the listeners that the tracker follows. Without this option a port is followed
 * from the first accept() or request on; with the option the kernel side knows the ports before the
 * start.
 */
#include "trackers/request_ports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS_MAX = 256, PORT_LAST = 65535 };

static uint16_t ports[PORTS_MAX];
static size_t n_ports;
static bool some_only, with_unix = true;

static bool read_port(const char *text, uint16_t *ret)
{
	unsigned long port;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	port = strtoul(text, &end, 10);
	if (*end || port < 1 || port > PORT_LAST)
		return false;
	*ret = (uint16_t)port;
	return true;
}

int request_ports_choose(const struct string_list *list, struct why *why)
{
	n_ports = 0;
	some_only = list->n > 0;
	with_unix = !some_only;
	if (list->n > PORTS_MAX)
		return why_fail(why, EINVAL, "request.ports has %zu entries, more than %d", list->n,
				PORTS_MAX);
	for (size_t i = 0; i < list->n; i++) {
		if (!strcmp(list->items[i], "unix"))
			with_unix = true;
		else if (!read_port(list->items[i], &ports[n_ports++]))
			return why_fail(why, EINVAL,
					"request.ports: '%s' is no port: use 1 to %d, or unix",
					list->items[i], PORT_LAST);
	}
	return 0;
}

void request_ports_apply(struct sched_bpf *skeleton)
{
	skeleton->rodata->request_ports_only = some_only;
	skeleton->rodata->request_unix_wanted = with_unix;
	for (size_t i = 0; i < n_ports; i++)
		skeleton->bss->request_ports[ports[i] / 64] |= 1ULL << ports[i] % 64;
}
