// SPDX-License-Identifier: Apache-2.0
/* Names in rows of off_cpu. See off_cpu_names.h. */
#include "trackers/off_cpu_names.h"

#include "host/syscall_names.h"
#include "rows/enrich.h"
#include "rows/names.h"
#include "rows/symbols.h"
#include "trackers/off_cpu_idle.h"

/* The row is written before the next is made: a single set of arrays is enough. */
static void name_stacks(struct row_context *context, const struct off_cpu_event *event,
			struct off_cpu_names *names)
{
	static const char *kernel[OFF_CPU_KERNEL_FRAMES];
	static const char *user[OFF_CPU_USER_FRAMES + OFF_CPU_WAKER_FRAMES];
	const struct off_cpu *off = &event->off;
	size_t n = 0;

	symbols_next_row();
	while (n < OFF_CPU_KERNEL_FRAMES && event->kernel[n]) {
		kernel[n] = symbols_kernel(event->kernel[n]);
		n++;
	}
	names->kernel_stack = (struct column_strings){ kernel, n };
	n = symbols_user_stack(context, event->header.host_pid, off->user, OFF_CPU_USER_FRAMES,
			       user);
	names->user_stack = (struct column_strings){ user, n };
	n = symbols_user_stack(context, off->waker.host_pid, off->waker_user, OFF_CPU_WAKER_FRAMES,
			       user + OFF_CPU_USER_FRAMES);
	names->waker_stack = (struct column_strings){ user + OFF_CPU_USER_FRAMES, n };
}

static const char *waker_name(struct row_context *context, const struct off_cpu_waker *waker,
			      uint64_t event_ns)
{
	return names_find(context,
			  &(struct thread_id){ .host_pid = waker->host_pid,
					       .host_tid = waker->host_tid,
					       .pid = waker->pid,
					       .tid = waker->tid,
					       .ident = waker->ident },
			  event_ns);
}

void off_cpu_fill_names(struct row_context *context, const struct off_cpu_event *event,
			struct off_cpu_names *names)
{
	names->syscall = syscall_name(event->off.syscall);
	names->state[0] = (char)event->off.state;
	names->waker_thread_name = waker_name(context, &event->off.waker, event->header.end_ns);
	name_stacks(context, event, names);
}

static bool is_native(struct row_context *context, const struct event_header *header,
		      uint64_t event_ns, const struct off_cpu *off,
		      const struct off_cpu_names *names)
{
	if (off->thread_kind != OFF_CPU_THREAD_UNKNOWN)
		return off->thread_kind == OFF_CPU_THREAD_NATIVE;
	return !names->py_stack.n &&
	       names_is_unknown(context, header->host_pid, header->host_tid, event_ns);
}

void off_cpu_judge_idle(struct row_context *context, const struct event_header *header,
			uint64_t event_ns, struct off_cpu *off, const struct off_cpu_names *names)
{
	bool native_waits = off->cause == OFF_CPU_CAUSE_lock &&
			    is_native(context, header, event_ns, off, names);

	if (!native_waits && (off->cause == OFF_CPU_CAUSE_lock || off->cause == OFF_CPU_CAUSE_pipe))
		off->idle = off_cpu_waits_for_work(&names->py_stack);
}

void off_cpu_name_late_waker(struct row_context *context, const struct off_cpu_event *first,
			     bool unnamed, struct off_cpu_names *names)
{
	struct event_header of_waker = first->header;
	uint64_t last_ns;

	if (*names->waker_thread_name)
		return;
	of_waker.host_pid = first->off.waker.host_pid;
	last_ns = enrich_sum_last_ns(context, &of_waker);
	context->unnamed = unnamed;
	names->waker_thread_name = waker_name(context, &first->off.waker, last_ns);
}
