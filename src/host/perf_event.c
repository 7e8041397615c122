// SPDX-License-Identifier: Apache-2.0
/* Software events. See perf_event.h. */
#include "host/perf_event.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

struct bpf_link *perf_event_attach(int host_tid, int cpu, uint64_t config, uint64_t period,
				   struct bpf_program *program, int *ret_fd)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = config,
		.sample_period = period,
		.exclude_idle = cpu >= 0,
	};
	struct bpf_link *link;
	int err, fd = (int)syscall(SYS_perf_event_open, &attr, host_tid, cpu, -1,
				   PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return NULL;
	link = bpf_program__attach_perf_event(program, fd);
	if (!link) {
		err = errno;
		close(fd);
		errno = err;
		return NULL;
	}
	if (ret_fd)
		*ret_fd = fd;
	return link;
}
