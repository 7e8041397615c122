/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The heads of open requests. Most are in slots of an array, found by the socket's address: to
 * allocate, fill and free an entry of a hash for each request was a tenth of the ledger's time. The
 * hash has the heads whose slot is taken by a different connection.
 */
#ifndef UNDERSPAN_REQUEST_HEADS_BPF_H
#define UNDERSPAN_REQUEST_HEADS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "events/request.h"

struct request_head {
	__u16 n;      /* bytes, up to REQUEST_HEAD_BYTES */
	__u16 tail_n; /* bytes of the entry in request_tails */
	__u32 gap;    /* bytes omitted before the tail */
	char bytes[REQUEST_HEAD_BYTES];
};

enum { REQUEST_HEAD_SLOTS = 1024 };

struct request_head_slot {
	__u64 users; /* 1: taken; adding and looking, a second user sees 2 on any CPU */
	__u64 owner; /* struct sock *; differs if two ends of a request have freed the slot twice */
	struct request_head head;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REQUEST_HEAD_SLOTS);
	__type(key, __u32);
	__type(value, struct request_head_slot);
} request_head_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct request_head);
} request_heads SEC(".maps");

static __always_inline struct request_head_slot *request_head_slot(__u64 key)
{
	__u32 i = key * 0x9e3779b97f4a7c15ULL >> 32 & (REQUEST_HEAD_SLOTS - 1);

	return bpf_map_lookup_elem(&request_head_slots, &i);
}

/* Keeps the first `n` bytes of the head. False: no room. */
static __always_inline bool request_head_put(__u64 key, const struct request_head *head, __u32 n,
					     bool *ret_in_slot)
{
	struct request_head_slot *slot = request_head_slot(key);

	*ret_in_slot = false;
	if (!slot)
		return false;
	__sync_fetch_and_add(&slot->users, 1);
	if (*(volatile __u64 *)&slot->users != 1) {
		__sync_fetch_and_add(&slot->users, -1);
		return !bpf_map_update_elem(&request_heads, &key, head, BPF_ANY);
	}
	slot->owner = key;
	slot->head.n = head->n;
	slot->head.tail_n = head->tail_n;
	slot->head.gap = head->gap;
	barrier_var(n); /* 5.10 knows the bounds of the compared register alone */
	if (n <= REQUEST_HEAD_BYTES)
		bpf_probe_read_kernel(slot->head.bytes, n, head->bytes);
	*ret_in_slot = true;
	return true;
}

static __always_inline struct request_head *request_head_find(__u64 key, bool in_slot)
{
	struct request_head_slot *slot;

	if (!in_slot)
		return bpf_map_lookup_elem(&request_heads, &key);
	slot = request_head_slot(key);
	return slot && slot->owner == key ? &slot->head : NULL;
}

static __always_inline void request_head_free(__u64 key, bool in_slot)
{
	struct request_head_slot *slot;

	if (!in_slot) {
		bpf_map_delete_elem(&request_heads, &key);
		return;
	}
	slot = request_head_slot(key);
	if (slot && slot->owner == key) {
		slot->owner = 0;
		__sync_fetch_and_add(&slot->users, -1);
	}
}

#endif
