// SPDX-License-Identifier: Apache-2.0
/* A process's service. See service_name.h. */
#include "process/service_name.h"

#include <string.h>

#include "base/text.h"
#include "host/proc.h"
#include "process/process_job.h"

/* Linux allows an environment of megabytes; a container's has some kilobytes. */
enum { ENVIRONMENT_MAX = 128 << 10 };
/* Between two attempts: each row of a process asks for its name. */
static const uint64_t RETRY_NS = 30 * NSEC_PER_SEC;

/* Passed to a reader process and back. */
struct service_read {
	struct process_memory memory; /* process_job.h's; empty for a refused Python */
	uint32_t host_pid;
	bool answered;
	char name[SERVICE_NAME_MAX + 1];
};

struct service_job {
	struct process_job job;
	struct service_read read;
};

/* The value of `name`, NUL-terminated; NULL: not set, or cut off. */
static const char *value_of(const char *environment, size_t size, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = environment, *end = at + size, *zero; at < end; at = zero + 1) {
		zero = memchr(at, '\0', (size_t)(end - at));
		if (!zero)
			return NULL;
		if ((size_t)(zero - at) > len && at[len] == '=' && !memcmp(at, name, len))
			return at + len + 1;
	}
	return NULL;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c | 0x20) : NULL;

	return found ? (int)(found - digits) : -1;
}

/* "key=value,key=value"; values are percent-encoded. */
static void from_attributes(const char *attributes, char *ret, size_t size)
{
	static const char key[] = "service.name";
	size_t n = 0;
	const char *at = attributes + strspn(attributes, " ");

	while (strncmp(at, key, sizeof(key) - 1) || at[sizeof(key) - 1] != '=') {
		at = strchr(at, ',');
		if (!at)
			return;
		at += 1 + strspn(at + 1, " ");
	}
	for (at += sizeof(key); *at && *at != ',' && n < size - 1; at++) {
		if (*at == '%' && hex_digit(at[1]) >= 0 && hex_digit(at[2]) >= 0) {
			ret[n++] = (char)(hex_digit(at[1]) << 4 | hex_digit(at[2]));
			at += 2;
		} else {
			ret[n++] = *at;
		}
	}
	while (n && ret[n - 1] == ' ')
		n--;
	ret[n] = '\0';
}

void service_name_parse(const char *environment, size_t size, char ret[SERVICE_NAME_MAX + 1])
{
	char raw[4 * SERVICE_NAME_MAX] = "";
	const char *name = value_of(environment, size, "OTEL_SERVICE_NAME"), *attributes;

	if (name && name[0]) {
		snprintf(raw, sizeof(raw), "%s", name);
	} else {
		attributes = value_of(environment, size, "OTEL_RESOURCE_ATTRIBUTES");
		if (attributes)
			from_attributes(attributes, raw, sizeof(raw));
	}
	text_printable(ret, SERVICE_NAME_MAX + 1, raw);
}

static void read_name(void *argument, struct read_extra *extra)
{
	static char environment[ENVIRONMENT_MAX];
	struct service_read *read = argument;
	ssize_t n = proc_read(read->host_pid, "environ", environment, sizeof(environment));

	(void)extra;
	read->answered = n >= 0;
	if (n > 0)
		service_name_parse(environment, (size_t)n, read->name);
}

static void have_name(struct process_job *job)
{
	const struct service_job *j = (const struct service_job *)job;
	struct process *p = job->process;
	bool read = job->job.ran && !job->err && j->read.answered;

	p->service_state = read ? SERVICE_READ : SERVICE_UNREAD;
	if (read)
		memcpy(p->service, j->read.name, sizeof(j->read.name));
}

void service_name_read(struct process *process, uint64_t now_ns)
{
	struct service_job *j;

	if (process->service_state != SERVICE_UNREAD || process->ended_ns ||
	    now_ns < process->service_due_ns)
		return;
	process->service_due_ns = now_ns + RETRY_NS;
	j = calloc(1, sizeof(*j));
	if (!j)
		return;
	j->job = (struct process_job){
		.read = read_name, .argument = &j->read, .size = sizeof(j->read), .done = have_name
	};
	j->read.host_pid = process->host_pid;
	if (process_job_submit(&j->job, process))
		process->service_state = SERVICE_BEING_READ;
}
