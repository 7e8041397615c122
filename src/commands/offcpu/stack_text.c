// SPDX-License-Identifier: Apache-2.0
/* A wait as one line of a folded stack. See stack_text.h. */
#include "commands/offcpu/stack_text.h"

#include <string.h>

#include "commands/offcpu/folded.h"

enum { NAME_MAX_BYTES = 256 };

void stack_columns_find(const struct table *table, struct stack_columns *ret)
{
#define FIND(name) ret->name = column_find(table, #name)
	FIND(start_time), FIND(end_time), FIND(host_pid), FIND(host_tid), FIND(comm),
		FIND(thread_name), FIND(weight), FIND(state);
	FIND(cause), FIND(idle), FIND(syscall), FIND(kernel_stack), FIND(user_stack);
	FIND(py_stack), FIND(waker_host_tid), FIND(waker_comm), FIND(waker_thread_name);
	FIND(waker_stack), FIND(duration_ns), FIND(off_ns);
#undef FIND
}

/* Python's name of the thread, otherwise the kernel's. */
static const char *thread_of(const struct column *name, const struct column *comm, const void *row,
			     char *buf)
{
	column_text(name, row, buf, NAME_MAX_BYTES);
	return *buf ? buf : column_text(comm, row, buf, NAME_MAX_BYTES);
}

/* Rows store the leaf first. */
static int add_root_first(struct buffer *text, struct column_strings frames)
{
	int err = 0;

	for (size_t i = frames.n; !err && i-- > 0;)
		err = folded_frame(text, frames.items[i]);
	return err;
}

/* Frames of the interpreter have the Python frames in their place; those below stay. */
static int add_below_python(struct buffer *text, struct column_strings user,
			    struct column_strings kernel)
{
	size_t n = 0;

	while (n < user.n && !strstr(user.items[n], "_PyEval_EvalFrame"))
		n++;
	user.n = n;
	return add_root_first(text, user) ?: add_root_first(text, kernel);
}

/* "futex [lock]", "[preempt]": the leaf of each stack names the cause. */
static int add_cause(struct buffer *text, const struct stack_columns *c, const void *row,
		     bool native)
{
	char syscall[64], cause[32], frame[128];
	bool idle = column_uint(c->idle, row);

	if (!c->cause)
		return folded_frame(text, "[cpu]");
	column_text(c->syscall, row, syscall, sizeof(syscall));
	column_text(c->cause, row, cause, sizeof(cause));
	/* idle is detected by the Python stack, which sums lack */
	if (native && (!strcmp(cause, "lock") || !strcmp(cause, "pipe")))
		idle = false;
	snprintf(frame, sizeof(frame), "%s%s[%s%s]", syscall, *syscall ? " " : "", cause,
		 idle ? ", idle" : "");
	return folded_frame(text, frame);
}

/* The waker's stack follows the wait, leaf first, then the waker's name. */
static int add_waker(struct buffer *text, const struct stack_columns *c, const void *row,
		     bool native)
{
	struct column_strings frames = column_strings(native ? NULL : c->waker_stack, row);
	char name[NAME_MAX_BYTES];
	int err = folded_frame(text, "--");

	if (!column_uint(c->waker_host_tid, row))
		return err ? err : folded_frame(text, "[no thread: a timer or a device]");
	for (size_t i = 0; !err && i < frames.n; i++)
		err = folded_frame(text, frames.items[i]);
	return err ? err
		   : folded_frame(text, thread_of(c->waker_thread_name, c->waker_comm, row, name));
}

static bool was_preempted(const struct stack_columns *c, const void *row)
{
	char state[4];

	return *column_text(c->state, row, state, sizeof(state)) == 'R';
}

/* "MainThread"; for further processes "MainThread (pid 1234)". */
static int add_thread(struct buffer *text, const struct stack_text_options *options,
		      const struct stack_columns *c, const void *row)
{
	uint32_t host_pid = (uint32_t)column_uint(c->host_pid, row);
	char name[NAME_MAX_BYTES], frame[NAME_MAX_BYTES + 32];

	thread_of(c->thread_name, c->comm, row, name);
	if (!options->with_pids || host_pid == options->main_host_pid)
		return folded_frame(text, name);
	snprintf(frame, sizeof(frame), "%s (pid %u)", name, host_pid);
	return folded_frame(text, frame);
}

int stack_text_make(struct buffer *text, const struct stack_text_options *options,
		    const struct stack_columns *c, const void *row, bool native)
{
	struct column_strings python = column_strings(c->py_stack, row);
	int err;

	text->len = 0;
	err = add_thread(text, options, c, row);
	if (!err && python.n && !native) {
		err = add_root_first(text, python);
		if (!err && options->with_native && !was_preempted(c, row))
			err = add_below_python(text, column_strings(c->user_stack, row),
					       column_strings(c->kernel_stack, row));
	} else if (!err && !(native && was_preempted(c, row))) {
		err = add_root_first(text, column_strings(c->user_stack, row));
		if (!err)
			err = add_root_first(text, column_strings(c->kernel_stack, row));
	}
	if (!err)
		err = add_cause(text, c, row, native);
	if (!err && options->with_wakers && c->cause)
		err = add_waker(text, c, row, native);
	return err ? err : buffer_append(text, "", 1);
}
