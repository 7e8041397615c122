// SPDX-License-Identifier: Apache-2.0
/* Parsers of small texts: cgroup paths, arguments of static probes, lines of /proc/PID/maps and
 * stat. */
#include "fuzz.h"

#include <elf.h>

#include "host/cgroup.h"
#include "host/proc.h"
#include "elf/stapsdt.h"

static void read_cgroup(const char *text)
{
	struct cgroup_identity identity;

	cgroup_identity(text, &identity);
	MUST(strspn(identity.container_id, "0123456789abcdef-") == strlen(identity.container_id));
	MUST(strspn(identity.pod_uid, "0123456789abcdef-") == strlen(identity.pod_uid));
	MUST(!identity.pod_uid[0] || strlen(identity.pod_uid) == 32 ||
	     strlen(identity.pod_uid) == 36);
}

static void read_argument(const char *text)
{
	static const uint16_t machines[] = { EM_X86_64, EM_AARCH64, EM_386 };
	struct arg_spec spec;

	for (size_t i = 0; i < ARRAY_SIZE(machines); i++) {
		if (stapsdt_parse_argument(machines[i], text, &spec))
			MUST((spec.size == 4 || spec.size == 8) && spec.place != ARG_NONE);
	}
}

static void read_maps(char *text)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		struct proc_mapping m;

		if (proc_parse_mapping(line, &m))
			MUST(m.low < m.high && (!m.path || m.path[0] == '/'));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	read_cgroup(text);
	read_argument(text);
	proc_parse_start_time(text);
	read_maps(text);
	free(text);
	return 0;
}
