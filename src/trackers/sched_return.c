// SPDX-License-Identifier: Apache-2.0
/* Seeing threads come back. See sched_return.h. */
#include "trackers/sched_return.h"

#include <errno.h>
#include <string.h>

#include "log.h"
#include "probe/kernel.h"

static struct bpf_link *sys_exit_link;
static bool tried;

void sched_return_open(struct sched_bpf *skeleton)
{
	bool left = kernel_has("sched_exit_tp"), rseq = !left && kernel_has("rseq_update");

	tried = false;
	skeleton->rodata->has_sched_exit = left;
	bpf_program__set_autoload(skeleton->progs.sched_exit_tp, left);
	skeleton->rodata->has_rseq_update = rseq;
	bpf_program__set_autoload(skeleton->progs.sched_rseq_update, rseq);
	bpf_program__set_autoload(skeleton->progs.sched_sys_exit, true);
	bpf_program__set_autoattach(skeleton->progs.sched_sys_exit, false);
}

void sched_return_tick(struct sched_bpf *skeleton)
{
	if (tried || !skeleton->bss->sys_exit_wanted)
		return;
	tried = true;
	sys_exit_link = bpf_program__attach(skeleton->progs.sched_sys_exit);
	if (!sys_exit_link) {
		log_warn("off_cpu: threads without restartable sequences have no Python stacks: %s",
			 strerror(errno));
		return;
	}
	skeleton->bss->sys_exit_seen = true;
	log_info("off_cpu: a thread without restartable sequences: the ends of system calls are "
		 "watched for Python stacks");
}

void sched_return_quiet(struct sched_bpf *skeleton)
{
	skeleton->bss->stopping = true;
}

void sched_return_close(void)
{
	bpf_link__destroy(sys_exit_link);
	sys_exit_link = NULL;
}
