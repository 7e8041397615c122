/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The local ports of connections that tracked processes accepted. Hooks of sockets run for every
 * process of the host, often in an interrupt with an arbitrary current thread, and tell sockets of
 * bystanders by three loads. bpf/process.bpf.c owns the map, all objects share its fd. A port is
 * never taken out: one too many costs a look-up, and servers listen on few ports.
 */
#ifndef UNDERSPAN_PORTS_BPF_H
#define UNDERSPAN_PORTS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "lib/socket.bpf.h"

/* a byte for each port: set by a single store, which cannot lose a concurrent store */
enum { PORTS_PER_GROUP = 64, PORT_GROUPS = 65536 / PORTS_PER_GROUP };

struct port_group {
	__u8 accepted[PORTS_PER_GROUP];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_GROUPS);
	__type(key, __u32);
	__type(value, struct port_group);
} accepted_ports SEC(".maps");

/* Port 0 stands for all sockets without ports: unix sockets. */
static __always_inline __u32 port_of(__u16 family, __u16 port)
{
	return family == AF_INET || family == AF_INET6 ? port : 0;
}

/* Call before the connection gets an entry in a map: until then the connection's packets pass
 * unseen. */
static __always_inline void port_accepts(struct sock *sk)
{
	__u32 port = port_of(BPF_CORE_READ(sk, __sk_common.skc_family),
			     BPF_CORE_READ(sk, __sk_common.skc_num));
	__u32 index = port / PORTS_PER_GROUP;
	struct port_group *group = bpf_map_lookup_elem(&accepted_ports, &index);

	if (group)
		group->accepted[port % PORTS_PER_GROUP] = 1;
}

/*
 * False: no tracked process accepted the connection. `sk`: a socket with a type known to the
 * verifier, not on its way to CLOSE, where sockets have no port any more.
 */
static __always_inline bool port_is_accepted(const struct sock *sk)
{
	__u32 port = port_of(sk->__sk_common.skc_family, sk->__sk_common.skc_num);
	__u32 index = port / PORTS_PER_GROUP;
	const struct port_group *group = bpf_map_lookup_elem(&accepted_ports, &index);

	return group && group->accepted[port % PORTS_PER_GROUP];
}

#endif
