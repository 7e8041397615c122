/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Limits the CPU time of Python stack walks per process or GIL: a token bucket. Tokens are
 * nanoseconds; the burst is TOKEN_BUCKET_BURST_SECONDS of refill. A process with a thousand
 * reportable events a second is described equally well by a hundred stacks.
 */
#ifndef UNDERSPAN_STACK_CPU_LIMIT_BPF_H
#define UNDERSPAN_STACK_CPU_LIMIT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct token_bucket {
	__s64 tokens_ns;   /* tokens left */
	__u64 refilled_ns; /* time of the last refill; 0: never */
};

enum { TOKEN_BUCKET_BURST_SECONDS = 5 };

/*
 * Refills at `ppm` of the elapsed time; returns whether tokens are left. A race of two CPUs refills
 * twice at most.
 */
static __always_inline bool token_bucket_has_tokens(struct token_bucket *bucket, __u64 ppm,
						    __u64 now)
{
	__u64 earned, most;

	if (now - bucket->refilled_ns >= 1000000) {
		earned = (now - bucket->refilled_ns) / 1000 * ppm / 1000;
		most = TOKEN_BUCKET_BURST_SECONDS * 1000 * ppm;
		bucket->refilled_ns = now;
		if (earned >= most || bucket->tokens_ns + (__s64)earned >= (__s64)most)
			bucket->tokens_ns = most;
		else
			__sync_fetch_and_add(&bucket->tokens_ns, earned);
	}
	return bucket->tokens_ns > 0;
}

static __always_inline void token_bucket_take(struct token_bucket *bucket, __u64 ns)
{
	__sync_fetch_and_add(&bucket->tokens_ns, -ns);
}

#endif
