/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The identity of the current thread as an event's header. To read it takes a dozen dependent loads
 * from cold memory, 0.4 us on a busy server, whose rows come from the same few threads again and
 * again. So it is kept, for a second and as long as the thread, its program and its cgroup are the
 * same; the name is read each time.
 */
#ifndef UNDERSPAN_IDENTITY_BPF_H
#define UNDERSPAN_IDENTITY_BPF_H

#include "lib/task.bpf.h"

enum { IDENTITY_SLOTS = 64, IDENTITY_KEEP_NS = 1000000000 };

/* Differs when the identity may differ: ids and addresses alone are reused. */
struct identity_key {
	__u64 thread;
	__u64 started_ns;
	__u64 execs;
	__u64 cgroups; /* struct css_set *, only a name here */
};

/* Kernels since 7.0 may preempt a program by a program that uses the same slot. */
struct identity {
	__u64 writers;
	__u64 version; /* of the rest */
	__u64 read_ns;
	struct identity_key key;
	struct event_header header;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, IDENTITY_SLOTS);
	__type(key, __u32);
	__type(value, struct identity);
} identities SEC(".maps");

static __always_inline void identity_key_set(struct identity_key *key)
{
	key->thread = bpf_get_current_pid_tgid();
	if (has_typed_current()) {
		const struct task_struct *task = bpf_get_current_task_btf();

		key->started_ns = task->start_time;
		key->execs = task->self_exec_id;
		key->cgroups = pointer_as_number(task->cgroups);
	} else {
		struct task_struct *task = (struct task_struct *)bpf_get_current_task();

		key->started_ns = BPF_CORE_READ(task, start_time);
		key->execs = BPF_CORE_READ(task, self_exec_id);
		key->cgroups = (__u64)BPF_CORE_READ(task, cgroups);
	}
}

static __always_inline bool identity_is_current(const struct identity *known,
						const struct identity_key *key, __u64 now)
{
	return !known->writers && known->key.thread == key->thread &&
	       known->key.started_ns == key->started_ns && known->key.execs == key->execs &&
	       known->key.cgroups == key->cgroups && now - known->read_ns < IDENTITY_KEEP_NS;
}

static __noinline int identity_read(struct event_header *header, struct identity *keep,
				    const struct identity_key *key, __u64 now)
{
	if (!header)
		return 0;
	__builtin_memset(header, 0, sizeof(*header));
	header_set_current(header);
	if (!keep || !key)
		return 0;
	__sync_fetch_and_add(&keep->writers, 1);
	if (*(volatile __u64 *)&keep->writers == 1) {
		__sync_fetch_and_add(&keep->version, 1);
		keep->read_ns = now;
		keep->key = *key;
		keep->header = *header;
	}
	__sync_fetch_and_add(&keep->writers, -1);
	return 0;
}

/* Fills the header with the current thread; the times are 0. */
static __always_inline void header_set_known(struct event_header *header, __u64 now)
{
	__u32 slot = current_tid() & (IDENTITY_SLOTS - 1);
	struct identity *known = bpf_map_lookup_elem(&identities, &slot);
	__u64 version = known ? *(volatile __u64 *)&known->version : 0;
	struct identity_key key;

	identity_key_set(&key);
	barrier();
	if (known && identity_is_current(known, &key, now)) {
		*header = known->header;
		barrier();
		if (*(volatile __u64 *)&known->version == version) {
			bpf_get_current_comm(header->comm, sizeof(header->comm));
			return;
		}
	}
	identity_read(header, known, &key, now);
}

#endif
