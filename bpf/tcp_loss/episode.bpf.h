/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Episodes: the intervals of bpf/tcp_loss.bpf.c. An episode opens at the first sign of trouble,
 * accumulates, and becomes a row at its end. A socket has at most a single open episode per kind.
 */
#ifndef UNDERSPAN_TCP_LOSS_EPISODE_BPF_H
#define UNDERSPAN_TCP_LOSS_EPISODE_BPF_H

#include "lib/event.bpf.h"
#include "tcp_loss/owner.bpf.h"

struct episode {
	struct tcp_loss_event event; /* start_ns 0: under construction */
	__u64 last_ns;		     /* last added to */
	__u64 stall_ns;		     /* start of the present stall, or of the last stall */
	__u64 pause_ns;		/* end of the last stall, a new one may follow soon; 0: stalled */
	__u64 delivered_mstamp; /* values at the start of the stall: */
	__u32 snd_una;
	__u32 delivered;
	__u8 chosen;  /* the owner was tracked at the start; may have exited since */
	__u8 backoff; /* last seen backoff of the window probes */
	__u8 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tcp_loss_key);
	__type(value, struct episode);
} tcp_loss_episodes SEC(".maps");

/* Open episodes of sockets. While there are none, sends and reads cannot end any. */
__u64 episodes_open;

/* too big for the BPF stack */
static const struct episode empty_episode;

const volatile bool only_chosen = false;
const volatile __u64 jiffy_ns = 4000000;

/* Stalls and recoveries of a socket with smaller gaps are merged into a row... */
const volatile __u64 merge_ns = 100000000;
/* ...until the row is this long. */
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

/* The time of a jiffies value, given by the low 32 bits that TCP stores; exact to a jiffy. */
static __always_inline __u64 jiffies_to_ns(__u32 jiffies, __u64 now)
{
	return now - (__u64)((__u32)bpf_jiffies64() - jiffies) * jiffy_ns;
}

/*
 * The socket's last progress: the last ACK of something new or, later, the first send after a rest.
 */
static __always_inline __u64 last_progress_ns(__u64 sock, __u64 now)
{
	__u64 ns = BPF_CORE_READ(tcp_of(sock), delivered_mstamp) * 1000;

	return ns && ns < now ? ns : now;
}

/* Ends the present stall; the row is made later. */
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
 * Adds retransmissions that only the kernel's own counter shows. A failed retransmission has no
 * tracepoint on older kernels, and some hosts run no BPF program while a process of the
 * hypervisor's agent is current, which soft interrupts may hit. The missing segments are credited
 * to the ending episode.
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

/*
 * Turns the episode into a row, once: deleting the map entry gives the right to report. A paused
 * episode ended at the start of the pause.
 */
static __noinline int episode_end(struct tcp_loss_key *key, struct episode *episode, __u64 end_ns,
				  __u32 ended_by)
{
	struct tcp_sock *tcp = tcp_of(key->sock);
	struct tcp_socket *socket = NULL;
	struct tcp_loss_event *event;

	if (bpf_map_delete_elem(&tcp_loss_episodes, key))
		return 0;
	if (!key->no_sock)
		__sync_fetch_and_add(&episodes_open, -1);
	episode_pause(episode, end_ns);
	if (!key->no_sock)
		socket = bpf_map_lookup_elem(&tcp_loss_sockets, &key->sock);
	if (socket) {
		socket->open &= ~(1 << key->kind);
		/* the owner was unknown at the start, and is known now */
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

/* Episodes of the remaining kinds end without the socket. */
static __always_inline bool ends_with_the_socket(__u32 kind)
{
	return kind != TCP_LOSS_RST_SENT && kind != TCP_LOSS_RST_RECEIVED &&
	       kind != TCP_LOSS_SYNACK_RETRANSMIT;
}

/* Counts `n` occurrences (segments, or the unit of the kind) as lost: a map is full. */
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
	if (!bpf_map_update_elem(&tcp_loss_episodes, key, &empty_episode, BPF_NOEXIST))
		__sync_fetch_and_add(&episodes_open, 1);
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
 * Returns the open episode of the kind, or creates an episode that starts at start_ns. A paused
 * episode continues if the pause is short. `sock` must be a full socket. NULL: the map is full, and
 * the caller counts the loss.
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
 * The arrival time of the ACK that ended a wait, called during the processing of the ACK or later.
 * A send after an idle period overwrites the precise time; then the result is exact to a jiffy.
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
