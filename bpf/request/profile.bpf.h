/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sums over all requests, however short. */
#ifndef UNDERSPAN_REQUEST_PROFILE_BPF_H
#define UNDERSPAN_REQUEST_PROFILE_BPF_H

#include "request/process.bpf.h"

/* Double buffer: programs add to the active map while user space empties the other map. */
volatile __u32 request_active_profile = 0;
struct request_profile_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct request_profile_key);
	__type(value, struct request_profile);
};
struct request_profile_map request_profile_0 SEC(".maps"), request_profile_1 SEC(".maps");

static const struct request_profile new_request_profile;

/* The bucket of a duration: i for less than 2^i microseconds. */
static __always_inline __u32 request_bucket(__u64 ns)
{
	__u64 us = ns / 1000;
	__u32 bucket = 0;

	if (us >> 31)
		return REQUEST_BUCKETS - 1;
	for (__u32 step = 16; step; step /= 2) {
		if (us >> step) {
			bucket += step;
			us >>= step;
		}
	}
	return bucket + (us != 0);
}

/* False: no room. Several threads of the process may add at a time. */
static __always_inline bool request_profile_add(const struct request_event *event)
{
	struct request_profile_key key = {
		.host_pid = event->header.host_pid,
		.server_port = event->server_port,
		.method = event->method,
		.status_class = request_class_of(event->status),
		.model = event->model,
	};
	void *map = request_active_profile & 1 ? (void *)&request_profile_1
					       : (void *)&request_profile_0;
	struct request_profile *profile = bpf_map_lookup_elem(map, &key);
	__u64 ns = event->header.end_ns - event->header.start_ns;

	if (!profile) {
		bpf_map_update_elem(map, &key, &new_request_profile, BPF_NOEXIST);
		profile = bpf_map_lookup_elem(map, &key);
		if (!profile)
			return false;
		profile->header = event->header;
		profile->min_ns = ns;
	}
	__sync_fetch_and_add(&profile->count, 1);
	__sync_fetch_and_add(&profile->duration_ns, ns);
	/* the loops first: the verifier explores them once for each path that leads to them */
	for (int i = 0; i < REQUEST_PART_MAX; i++) {
		if (event->parts[i])
			__sync_fetch_and_add(&profile->parts[i], event->parts[i]);
	}
	if (event->not_measured) {
		profile->not_measured |= event->not_measured;
		for (int i = 0; i < REQUEST_LACKS; i++) {
			if (event->not_measured & 1U << i)
				__sync_fetch_and_add(&profile->lacks[i], 1);
		}
	}
	if (ns < profile->min_ns)
		profile->min_ns = ns;
	if (ns > profile->max_ns)
		profile->max_ns = ns;
	__sync_fetch_and_add(&profile->buckets[request_bucket(ns) & (REQUEST_BUCKETS - 1)], 1);
	return true;
}

#endif
