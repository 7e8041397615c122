/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wait as one line of a folded stack: thread, frames from the root, cause, and perhaps the
 * waker's stack. A sample of a thread on a CPU, of a table without the column `cause`: [cpu].
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_STACK_TEXT_H
#define UNDERSPAN_COMMANDS_OFFCPU_STACK_TEXT_H

#include "base/buffer.h"
#include "rows/column.h"

/* Columns of off_cpu's rows or sums; NULL: the table lacks the column. */
struct stack_columns {
	const struct column *start_time, *end_time, *host_pid, *host_tid, *comm, *thread_name,
		*weight, *state, *cause, *idle, *syscall, *kernel_stack, *user_stack, *py_stack,
		*waker_host_tid, *waker_comm, *waker_thread_name, *waker_stack, *duration_ns,
		*off_ns;
};

void stack_columns_find(const struct table *table, struct stack_columns *ret);

struct stack_text_options {
	bool with_wakers;
	bool with_native; /* native and kernel frames below Python's */
	bool with_pids;	  /* in names of threads, except those of main_host_pid */
	uint32_t main_host_pid;
};

/* Replaces `text`. `native`: only the data known in sums. -ENOMEM. */
int stack_text_make(struct buffer *text, const struct stack_text_options *options,
		    const struct stack_columns *c, const void *row, bool native);

#endif
