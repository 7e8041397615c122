// SPDX-License-Identifier: Apache-2.0
/* thread_rename: the smallest tracker. Threads that change their names. */
#include "events/thread_rename.h"

#include <string.h>

#include "thread_rename.skel.h"
#include "trackers/tracker.h"

struct thread_rename_row {
	struct row_common common;
	struct thread_rename_event event;
};

static const struct column columns[] = {
	COLUMN(COLUMN_CHARS, struct thread_rename_row, event.new_comm, "new_comm", "String"),
};

static struct thread_rename_bpf *skeleton;

static int thread_rename_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			      struct why *why)
{
	skeleton = thread_rename_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	skeleton->rodata->only_chosen = only_chosen;
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void thread_rename_close(void)
{
	thread_rename_bpf__destroy(skeleton);
	skeleton = NULL;
}

const struct tracker thread_rename_tracker = {
	.name = "thread_rename",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_thread_rename", columns),
	TRACKER_ROW(struct thread_rename_row),
	.ring_bytes = 256 << 10,
	.open = thread_rename_open,
	.close = thread_rename_close,
};
