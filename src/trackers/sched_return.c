// SPDX-License-Identifier: Apache-2.0
/* Detects the return to user mode. See sched_return.h. */
#include "trackers/sched_return.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "host/kernel.h"
#include "host/every_call.h"

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

static void say_price(const struct tracker_output *output)
{
	static const char reason[] =
		"every system call of every process of this host runs a BPF program at the end "
		"(about 30 ns), for the Python stacks of a thread without restartable sequences "
		"(glibc registers them since 2.35); off_cpu.py_stacks=false avoids this";

	log_warn("off_cpu: %s", reason);
	output->health(output, &(struct tracker_health){ .live = true,
							 .method = every_call_method,
							 .reason = reason });
}

void sched_return_tick(struct sched_bpf *skeleton, const struct tracker_output *output)
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
	say_price(output);
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
