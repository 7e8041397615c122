/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads that ended together with their process while requests were open: a signal, exit_group().
 * The process's sockets are closed after that, by the thread that ends last, when the records of
 * the handlers' threads are gone.
 */
#ifndef UNDERSPAN_REQUEST_KILLED_BPF_H
#define UNDERSPAN_REQUEST_KILLED_BPF_H

#include "request/connection.bpf.h"

struct request_killed {
	struct request_snapshot sums; /* at the thread's end */
	__u64 polled_ns;	      /* the same of struct request_sums */
	__u64 worked_ns; /* the last sign that a pool may have worked for this loop's requests */
	__u32 host_tid;
	__u32 lacks;  /* enum request_lack */
	__u32 end_by; /* REQUEST_END_exit, or the signal */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 512);
	__type(key, __u64); /* task_key() */
	__type(value, struct request_killed);
} request_killed SEC(".maps");

static const struct request_killed empty_request_killed;

/* How the process of the exiting task ends. Bits of exit_code: include/uapi/linux/wait.h */
static __always_inline __u32 request_end_of(struct task_struct *task)
{
	__u32 signal = BPF_CORE_READ(task, exit_code) & 0x7f;

	return REQUEST_END_exit + (signal < REQUEST_END_MAX - REQUEST_END_exit ? signal : 0);
}

/* The sums of the handler's thread at its end; NULL: the thread has not ended with the process. */
static __always_inline struct request_killed *
request_killed_find(const struct request_connection *conn)
{
	__u64 key = conn->worker;
	struct request_killed *killed = bpf_map_lookup_elem(&request_killed, &key);

	/* an older thread of the same address? */
	if (!killed || killed->host_tid != conn->header.host_tid ||
	    killed->sums.at_ns < conn->read_ns)
		return NULL;
	return killed;
}

#endif
