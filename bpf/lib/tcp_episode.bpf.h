/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The intervals of bpf/tcp_loss.bpf.c: opened at the first sign of trouble, added to while it
 * lasts, a row when it is over. One of each kind can be under way on a socket.
 */
#ifndef UNDERSPAN_TCP_EPISODE_BPF_H
#define UNDERSPAN_TCP_EPISODE_BPF_H

#include "tcp_owner.bpf.h"

struct episode {
	struct tcp_loss_event event; /* start_ns 0: it is just being made */
	__u64 last_ns;		     /* last added to */
	__u64 stall_ns;		     /* the present stall's start, or the last one's */
	__u64 pause_ns;		     /* it is over, unless it comes back soon; 0: it is not */
	__u64 delivered_mstamp;	     /* these three as they were at the start: */
	__u32 snd_una;
	__u32 delivered;
	__u8 chosen;  /* its owner was tracked then; it may have ended since */
	__u8 backoff; /* of the window probes, as it was last seen */
	__u8 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tcp_loss_key);
	__type(value, struct episode);
} tcp_loss_episodes SEC(".maps");

/* too big for the BPF stack */
static const struct episode empty_episode;

const volatile bool only_chosen = false;
const volatile __u64 jiffy_ns = 4000000;

/* Stalls and recoveries of a socket with less than this between them are one row... */
const volatile __u64 merge_ns = 100000000;
/* ...which gets no new ones when it is this long. */
#define EPISODE_MAX_NS 1000000000ULL

static __always_inline struct tcp_sock *tcp_of(__u64 sock)
{
	return (struct tcp_sock *)sock;
}

static __always_inline struct tcp_loss_key episode_key(__u64 sock, __u32 kind)
{
	return (struct tcp_loss_key){ .sock = sock, .kind = kind };
}

static __always_inline struct episode *episode_find(__u64 sock, __u32 kind)
{
	struct tcp_loss_key key = episode_key(sock, kind);

	return bpf_map_lookup_elem(&tcp_loss_episodes, &key);
}

/* When a time in jiffies was, as the low 32 bits that TCP keeps; within a jiffy. */
static __always_inline __u64 jiffies_to_ns(__u32 jiffies, __u64 now)
{
	return now - (__u64)((__u32)bpf_jiffies64() - jiffies) * jiffy_ns;
}

/* The socket's last progress: the last ACK of something new or, later, the first send after a rest.
 */
static __always_inline __u64 last_progress_ns(__u64 sock, __u64 now)
{
	__u64 ns = BPF_CORE_READ(tcp_of(sock), delivered_mstamp) * 1000;

	return ns && ns < now ? ns : now;
}

/* The stall is over, its row is not yet. */
static __always_inline void episode_pause(struct episode *episode, __u64 end_ns)
{
	if (episode->pause_ns)
		return;
	if (end_ns < episode->stall_ns)
		end_ns = episode->stall_ns;
	episode->pause_ns = end_ns;
	episode->event.stalled_ns += end_ns - episode->stall_ns;
}

/*
 * The kernel's own count is the measure: a retransmission that could not be sent has no tracepoint
 * on older kernels, and some hosts run no BPF program while a process of the platform is current,
 * which a soft interrupt may find. What is missing belongs to what was going on.
 */
static __always_inline void add_uncounted(struct tcp_socket *socket, struct episode *episode,
					  __u32 kind, __u32 total)
{
	__s32 missing = total - socket->retrans_counted;

	if (missing <= 0 || kind > TCP_LOSS_SYN_RETRANSMIT || kind == TCP_LOSS_TLP)
		return;
	socket->retrans_counted = total;
	episode->event.segments += missing;
	if (kind == TCP_LOSS_RTO || kind == TCP_LOSS_SYN_RETRANSMIT)
		episode->event.timeouts += missing;
}

/* Makes a row of it, once: who takes it out of the map does. In a pause, it ended when that began.
 */
static __noinline int episode_end(struct tcp_loss_key *key, struct episode *episode, __u64 end_ns,
				  __u32 ended_by)
{
	struct tcp_sock *tcp = tcp_of(key->sock);
	struct tcp_socket *socket = NULL;
	struct tcp_loss_event *event;

	if (bpf_map_delete_elem(&tcp_loss_episodes, key))
		return 0;
	episode_pause(episode, end_ns);
	if (!key->no_sock)
		socket = bpf_map_lookup_elem(&tcp_loss_sockets, &key->sock);
	if (socket) {
		socket->open &= ~(1 << key->kind);
		/* nobody was seen to use it before, somebody was by now */
		if (episode->event.owner != TCP_LOSS_OWNER_USER) {
			__u64 start_ns = episode->event.header.start_ns;

			episode->event.header = socket->owner;
			episode->event.header.start_ns = start_ns;
			episode->event.owner = socket->owner_from;
		}
		episode->event.connection.total_retrans = BPF_CORE_READ(tcp, total_retrans);
		add_uncounted(socket, episode, key->kind, episode->event.connection.total_retrans);
	}
	stat_add(STAT_SEEN, 1);
	if (only_chosen && !episode->chosen && !process_tracked(episode->event.header.host_pid)) {
		stat_add(STAT_FILTERED, 1);
		return 0;
	}
	event = event_reserve(sizeof(*event));
	if (!event)
		return 0;
	__builtin_memcpy(event, &episode->event, sizeof(*event));
	event->header.end_ns = episode->pause_ns;
	event->ended_by = ended_by;
	event_submit(event);
	return 0;
}

/* The others end by themselves. */
static __always_inline bool ends_with_the_socket(__u32 kind)
{
	return kind != TCP_LOSS_RST_SENT && kind != TCP_LOSS_RST_RECEIVED &&
	       kind != TCP_LOSS_SYNACK_RETRANSMIT;
}

/* A map is full: `n` retransmitted segments, or what else rows of the kind count, have none. */
static __always_inline void count_no_room(__u32 n)
{
	stat_add(STAT_SEEN, n);
	stat_add(STAT_LOST_STATE, n);
}

static __noinline struct episode *episode_new(struct tcp_loss_key *key, __u64 start_ns)
{
	__u64 sock = key->sock;
	struct tcp_sock *tcp = tcp_of(sock);
	struct tcp_socket *socket = tcp_socket_get(sock);
	struct episode *episode;

	if (!socket && ends_with_the_socket(key->kind))
		return NULL;
	bpf_map_update_elem(&tcp_loss_episodes, key, &empty_episode, BPF_NOEXIST);
	episode = bpf_map_lookup_elem(&tcp_loss_episodes, key);
	if (!episode)
		return NULL;
	if (socket) {
		episode->chosen = only_chosen && process_tracked(socket->owner.host_pid);
		socket->open |= 1 << key->kind;
		episode->event.header = socket->owner;
		episode->event.owner = socket->owner_from;
	}
	tcp_read(&episode->event.connection, (struct sock *)sock);
	episode->event.kind = key->kind;
	episode->event.lost_out = BPF_CORE_READ(tcp, lost_out);
	episode->event.snd_wnd = BPF_CORE_READ(tcp, snd_wnd);
	episode->event.rcv_wnd = BPF_CORE_READ(tcp, rcv_wnd);
	episode->event.header.start_ns = start_ns;
	return episode;
}

/*
 * The open episode of this kind, or a new one that begins at start_ns; one that paused goes on if
 * that was not long ago. `sock` must be a full socket. NULL: no room, the caller counts what is
 * lost.
 */
static __noinline struct episode *episode_begin(__u64 sock, __u32 kind, __u64 start_ns, __u64 now)
{
	struct tcp_loss_key key = episode_key(sock, kind);
	struct episode *episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	struct tcp_sock *tcp = tcp_of(sock);

	if (episode && episode->pause_ns &&
	    (now - episode->pause_ns > merge_ns ||
	     now - episode->event.header.start_ns > EPISODE_MAX_NS)) {
		episode_end(&key, episode, now, TCP_LOSS_END_PROGRESS);
		episode = NULL;
	}
	if (!episode)
		episode = episode_new(&key, start_ns);
	if (!episode)
		return NULL;
	if (!episode->event.stalls || episode->pause_ns) {
		episode->event.stalls++;
		episode->stall_ns = start_ns;
		episode->pause_ns = 0;
		episode->backoff = 0;
		episode->delivered_mstamp = BPF_CORE_READ(tcp, delivered_mstamp);
		episode->delivered = BPF_CORE_READ(tcp, delivered);
		episode->snd_una = BPF_CORE_READ(tcp, snd_una);
	}
	episode->last_ns = now;
	return episode;
}

static __always_inline void episode_end_kind(__u64 sock, __u32 kind, __u64 end_ns, __u32 ended_by)
{
	struct tcp_loss_key key = episode_key(sock, kind);
	struct episode *episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);

	if (episode)
		episode_end(&key, episode, end_ns, ended_by);
}

static __always_inline bool is_open(struct tcp_socket *socket, __u32 kind)
{
	return socket && socket->open & (1 << kind);
}

/*
 * When the ACK came that ended a wait, asked when that is noticed: while it is being processed, or
 * later. A send after a rest has overwritten the precise time; then it is known to the jiffy.
 */
static __always_inline __u64 ack_ns(__u64 sock, struct episode *episode, __u64 now)
{
	struct tcp_sock *tcp = tcp_of(sock);
	__u64 delivered = BPF_CORE_READ(tcp, delivered_mstamp), ns;

	if (delivered == episode->delivered_mstamp) {
		ns = BPF_CORE_READ(tcp, tcp_mstamp) * 1000;
	} else if (BPF_CORE_READ(tcp, packets_out) &&
		   BPF_CORE_READ(tcp, first_tx_mstamp) == delivered) {
		ns = jiffies_to_ns(BPF_CORE_READ(tcp, rcv_tstamp), now);
		delivered *= 1000;
		ns = ns < delivered ? ns : delivered;
	} else {
		ns = delivered * 1000;
	}
	ns = ns < now ? ns : now;
	return ns > episode->last_ns ? ns : episode->last_ns;
}

#endif
