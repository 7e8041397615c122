// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Threads that change their names. */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "events/thread_rename.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile bool only_chosen = false;

/* An exec() renames the thread, too. */
SEC("tp_btf/task_rename")
int BPF_PROG(thread_rename, struct task_struct *task, const char *comm)
{
	struct thread_rename_event *event;

	stat_add(STAT_SEEN, 1);
	if (only_chosen && !process_tracked(task->tgid)) {
		stat_add(STAT_FILTERED, 1);
		return 0;
	}
	event = event_reserve(sizeof(*event));
	if (!event)
		return 0;
	event->header.start_ns = event->header.end_ns = bpf_ktime_get_ns();
	header_set_task(&event->header, task);
	bpf_probe_read_kernel_str(event->new_comm, sizeof(event->new_comm), comm);
	event_submit(event);
	return 0;
}
