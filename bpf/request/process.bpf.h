/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A process that serves requests, and the tracker's ring buffer, counters and options. */
#ifndef UNDERSPAN_REQUEST_PROCESS_BPF_H
#define UNDERSPAN_REQUEST_PROCESS_BPF_H

#include "lib/event.bpf.h"
#include "events/request.h"

TRACKER_MAPS(request_);

const volatile bool request_runs = true;
const volatile bool request_has_lengths = true; /* sock_recv_length: since 6.3 */
/* Only chosen listeners: user space has set the bits in request_ports. */
const volatile bool request_ports_only = false;
const volatile bool request_unix_wanted = true;
/* user space may change the values at any time */
volatile __u64 request_min_ns = 0;
volatile __u64 request_row_ns = 0; /* between two sampled rows of a process; 0: no limit */

static __always_inline bool request_measures(void)
{
	return request_runs && !request_out;
}

enum { REQUEST_BURST_NS = 1000000000 }; /* size of the bucket */

struct request_process {
	__u64 read_ns;	 /* the last request that was read */
	__u64 pool_ns;	 /* a thread of a pool behind a loop was last seen to leave the CPU */
	__u64 left_ns;	 /* a client left, and a pool's thread may work on for it */
	__u64 refill_ns; /* token bucket of sampled rows: time of the refill */
	__u64 tokens_ns;
	__u64 covered_ns; /* when `lacks` was found */
	__u32 busy;	  /* threads with an open request */
	__u32 skipped;	  /* requests since the last sampled row */
	__u32 lacks;	  /* enum request_lack: what gil_wait and gc_pause do not see */
	__u32 pool_works; /* threads of pools that work for a loop's request; signed */
};

enum { REQUEST_COVERED_NS = 10000000 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* host pid */
	__type(value, struct request_process);
} request_processes SEC(".maps");

static const struct request_process new_request_process;

static __always_inline struct request_process *request_process_of(__u32 tgid)
{
	struct request_process *process = bpf_map_lookup_elem(&request_processes, &tgid);

	if (process)
		return process;
	bpf_map_update_elem(&request_processes, &tgid, &new_request_process, BPF_NOEXIST);
	return bpf_map_lookup_elem(&request_processes, &tgid);
}

/* The process runs a new program. */
static __always_inline void request_process_renewed(__u32 tgid)
{
	struct request_process *process = bpf_map_lookup_elem(&request_processes, &tgid);

	if (process)
		process->covered_ns = 0;
}

static __always_inline void request_stat(__u32 stat, __u64 n)
{
	stat_add_in(&request_stats, stat, n);
}

/* A request without a row or a sum. */
static __always_inline void request_lost(void)
{
	request_stat(STAT_SEEN, 1);
	request_stat(STAT_LOST_STATE, 1);
}

#endif
