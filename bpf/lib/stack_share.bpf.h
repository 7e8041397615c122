/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A share of a process's time that its Python stacks may cost. A process in which a thousand things
 * a second are worth a stack is as well known by a hundred of them. A burst is free.
 */
#ifndef UNDERSPAN_STACK_SHARE_BPF_H
#define UNDERSPAN_STACK_SHARE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct stack_share {
	__s64 credit_ns; /* what stacks may cost yet */
	__u64 credit_at; /* when it was reckoned last; 0: never */
};

enum { STACK_SHARE_BURST_SECONDS = 5 };

/* May there be another one? `ppm` of the time. Two CPUs at once: it earns twice, a little. */
static __always_inline bool stack_share_left(struct stack_share *share, __u64 ppm, __u64 now)
{
	__u64 earned, most;

	if (now - share->credit_at >= 1000000) {
		earned = (now - share->credit_at) / 1000 * ppm / 1000;
		most = STACK_SHARE_BURST_SECONDS * 1000 * ppm;
		share->credit_at = now;
		if (earned >= most || share->credit_ns + (__s64)earned >= (__s64)most)
			share->credit_ns = most;
		else
			__sync_fetch_and_add(&share->credit_ns, earned);
	}
	return share->credit_ns > 0;
}

static __always_inline void stack_share_pay(struct stack_share *share, __u64 ns)
{
	__sync_fetch_and_add(&share->credit_ns, -ns);
}

#endif
