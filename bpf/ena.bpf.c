// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Readings of a network driver's statistics by a third party (ethtool -S, a monitoring agent),
 * between the agent's own readings. The attach target, <driver>_get_ethtool_stats, is chosen at
 * load time. Without fexit the tracker relies on its own readings.
 */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "events/ena.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); /* ifindex */
	__type(value, struct ena_indices);
} ena_interfaces SEC(".maps");

const volatile __u32 own_netns =
	0; /* inode number: an ifindex is only valid inside a network namespace */
const volatile __u32 agent_tgid = 0;

/* In the thread that read the statistics, after the driver filled `values`. */
SEC("?fexit")
int BPF_PROG(ena_reported, struct net_device *device, struct ethtool_stats *asked, __u64 *values)
{
	__u32 ifindex = BPF_CORE_READ(device, ifindex);
	struct ena_indices *indices;
	struct ena_event *event;

	if (current_tgid() == agent_tgid)
		return 0;
	if (BPF_CORE_READ(device, nd_net.net, ns.inum) != own_netns)
		return 0;
	indices = bpf_map_lookup_elem(&ena_interfaces, &ifindex);
	if (!indices)
		return 0;
	stat_add(STAT_SEEN, 1);
	if (BPF_CORE_READ(asked, n_stats) != indices->n_stats) {
		stat_add(STAT_FILTERED, 1);
		return 0;
	}
	event = event_reserve(sizeof(*event));
	if (!event)
		return 0;
	header_set_current(&event->header);
	event->header.start_ns = event->header.end_ns = bpf_ktime_get_ns();
	event->ifindex = ifindex;
	for (int i = 0; i < ENA_N_COUNTERS; i++) {
		__u32 index = indices->index[i];

		if (index < indices->n_stats &&
		    !bpf_probe_read_kernel(&event->value[i], sizeof(event->value[i]),
					   values + index))
			event->known |= 1U << i;
	}
	event_submit(event);
	return 0;
}
