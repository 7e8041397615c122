// SPDX-License-Identifier: Apache-2.0
/* TCP counters of a network namespace. See netstat.h. */
#include "host/netstat.h"

#include <string.h>
#include <sys/stat.h>

#include "host/proc.h"
#include "base/util.h"

/* Pairs of lines: "TcpExt: Name Name ...", then "TcpExt: 1 2 ...". */
int netstat_parse(const char *text, const char *name, uint64_t *ret)
{
	static const char prefix[] = "TcpExt: ";
	const char *names = strstr(text, prefix), *values, *end;
	size_t len = strlen(name);

	values = names ? strstr(names + 1, prefix) : NULL;
	if (!values)
		return -ENOENT;
	end = values;
	names += strlen(prefix);
	values += strlen(prefix);
	while (names < end && *values) {
		size_t name_len = strcspn(names, " \n"), value_len = strcspn(values, " \n");

		if (name_len == len && !memcmp(names, name, len)) {
			*ret = strtoull(values, NULL, 10);
			return 0;
		}
		if (names[name_len] != ' ' || values[value_len] != ' ')
			break;
		names += name_len + 1;
		values += value_len + 1;
	}
	return -ENOENT;
}

int netstat_read(uint32_t netns, uint32_t host_pid, const char *name, uint64_t *ret)
{
	char path[64], text[16384];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u/ns/net", host_pid);
	if (stat(path, &st) || st.st_ino != netns ||
	    proc_read(host_pid, "net/netstat", text, sizeof(text)) < 0)
		return -ESTALE;
	return netstat_parse(text, name, ret);
}
