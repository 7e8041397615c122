// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where TCP loses packets and time: retransmissions by kind, stalls until the retransmission timer
 * helped, windows that were closed on either side, resets; as intervals, with the socket's owner.
 * Nothing here runs per packet: retransmissions and resets have tracepoints of their own; closed
 * windows are seen at the socket's timers and where its receiver reads.
 */
#include "underspan.bpf.h"
#include "compat.bpf.h"
#include "tcp.bpf.h"
#include "tcp_episode.bpf.h"
#include "events/tcp_loss.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* enum tcp_ca_state; ICSK_TIME_* of include/net/inet_connection_sock.h */
enum { CA_RECOVERY = 3, CA_LOSS = 4 };
enum { PENDING_NONE = 0, PENDING_RETRANS = 1, PENDING_PROBE0 = 3, PENDING_LOSS_PROBE = 5 };

#define SOCK_STREAM   1
#define SHUTDOWN_MASK 3
#define EPIPE	      32
#define ECONNRESET    104
#define ECONNREFUSED  111

/* What a socket's timers call, learnt from the first socket: /proc/kallsyms may be closed. */
__u64 write_timer_function, delack_timer_function;

static __always_inline __u32 pending_of(__u64 sock)
{
	return BPF_CORE_READ((struct inet_connection_sock *)sock, icsk_pending);
}

static __always_inline __u32 ca_state_of(__u64 sock)
{
	return BPF_CORE_READ_BITFIELD_PROBED((struct inet_connection_sock *)sock, icsk_ca_state);
}

/* Raw sockets and other families use the same protocol numbers. */
static __always_inline bool is_tcp(struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return (family == AF_INET || family == AF_INET6) &&
	       BPF_CORE_READ(sk, sk_type) == SOCK_STREAM &&
	       BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
}

static __always_inline void learn_timers(__u64 sock)
{
	struct timer_list *timer = (void *)(sock + tcp_write_timer_offset());

	if (write_timer_function)
		return;
	delack_timer_function = (__u64)BPF_CORE_READ((struct inet_connection_sock *)sock,
						     icsk_delack_timer.function);
	write_timer_function = (__u64)BPF_CORE_READ(timer, function);
}

/* ---- the end of what is under way ---- */

/* Did anything new arrive at the peer since the episode began? */
static __always_inline bool progressed(__u64 sock, struct episode *episode)
{
	struct tcp_sock *tcp = tcp_of(sock);

	return BPF_CORE_READ(tcp, snd_una) != episode->snd_una ||
	       BPF_CORE_READ(tcp, delivered) != episode->delivered;
}

static __always_inline bool peer_window_closed(__u64 sock)
{
	struct tcp_sock *tcp = tcp_of(sock);
	__u32 unsent = BPF_CORE_READ(tcp, write_seq) - BPF_CORE_READ(tcp, snd_nxt);
	__u32 mss = BPF_CORE_READ(tcp, mss_cache);

	return BPF_CORE_READ(tcp, snd_wnd) < (unsent < mss ? unsent : mss);
}

/* Ends the episode if it is over. Called whenever the socket is seen again, and every second. */
static __noinline int look_at(struct tcp_loss_key *key, struct episode *episode, __u64 now,
			      __u32 ca_state)
{
	__u64 sock = key->sock;

	if (episode->pause_ns) { /* what begins again says so itself */
		if (now - episode->pause_ns > merge_ns)
			episode_end(key, episode, now, TCP_LOSS_END_PROGRESS);
		return 0;
	}
	switch (key->kind) {
	case TCP_LOSS_RETRANSMIT:
		if (ca_state != CA_RECOVERY)
			episode_pause(episode, ack_ns(sock, episode, now));
		break;
	case TCP_LOSS_RTO:
	case TCP_LOSS_TLP:
		if (progressed(sock, episode))
			episode_end(key, episode, ack_ns(sock, episode, now),
				    TCP_LOSS_END_PROGRESS);
		break;
	case TCP_LOSS_LOSS_RECOVERY:
		if (ca_state != CA_LOSS)
			episode_end(key, episode, ack_ns(sock, episode, now),
				    TCP_LOSS_END_PROGRESS);
		break;
	case TCP_LOSS_ZERO_WINDOW_SENT:
		/* reading made room: the window opened before the call that read last returned */
		if (BPF_CORE_READ(tcp_of(sock), rcv_wnd))
			episode_pause(episode, episode->last_ns);
		break;
	case TCP_LOSS_ZERO_WINDOW_RECEIVED:
		if (pending_of(sock) != PENDING_PROBE0 && !peer_window_closed(sock))
			episode_pause(episode, ack_ns(sock, episode, now));
		break;
	}
	return 0;
}

static __always_inline void look_at_kind(struct tcp_socket *socket, __u64 sock, __u32 kind,
					 __u64 now, __u32 ca_state)
{
	struct tcp_loss_key key = episode_key(sock, kind);
	struct episode *episode;

	if (!is_open(socket, kind))
		return;
	episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	if (episode)
		look_at(&key, episode, now, ca_state);
}

static __noinline int look_at_all(struct tcp_socket *socket, __u64 sock, __u64 now, __u32 ca_state)
{
	if (!socket)
		return 0;
	look_at_kind(socket, sock, TCP_LOSS_RETRANSMIT, now, ca_state);
	look_at_kind(socket, sock, TCP_LOSS_RTO, now, ca_state);
	look_at_kind(socket, sock, TCP_LOSS_LOSS_RECOVERY, now, ca_state);
	look_at_kind(socket, sock, TCP_LOSS_TLP, now, ca_state);
	look_at_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_SENT, now, ca_state);
	look_at_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_RECEIVED, now, ca_state);
	return 0;
}

/*
 * User space runs it each second for each open episode: `sock`, `kind`, `no_sock` are its key. It
 * holds no lock of the socket, so it leaves alone what was touched a moment ago.
 */
SEC("raw_tp")
int BPF_PROG(tcp_loss_tick, __u64 sock, __u64 kind, __u64 no_sock)
{
	struct tcp_loss_key key = { .sock = sock, .kind = kind, .no_sock = no_sock };
	struct episode *episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	__u64 now = bpf_ktime_get_ns();

	if (!episode || !episode->event.header.start_ns)
		return 0;
	if (kind == TCP_LOSS_RST_SENT || kind == TCP_LOSS_SYNACK_RETRANSMIT) {
		if (now - episode->event.header.start_ns > EPISODE_MAX_NS)
			episode_end(&key, episode, episode->last_ns, TCP_LOSS_END_NONE);
		return 0;
	}
	/* with something in flight, an ACK or a timer will show it, under the socket's lock */
	if (kind <= TCP_LOSS_TLP && BPF_CORE_READ(tcp_of(sock), packets_out))
		return 0;
	if (now > episode->last_ns + merge_ns)
		look_at(&key, episode, now, ca_state_of(sock));
	return 0;
}

/* ---- retransmissions ---- */

static __always_inline void on_syn_retransmit(__u64 sock, __u32 segments, __u64 now)
{
	struct tcp_socket *socket = tcp_socket_get(sock);
	__u64 start = socket && socket->connect_ns ? socket->connect_ns : now;
	struct episode *episode = episode_begin(sock, TCP_LOSS_SYN_RETRANSMIT, start, now);

	if (!episode)
		return;
	episode->event.segments += segments;
	episode->event.timeouts += segments; /* one each */
}

static __always_inline void on_rto(struct tcp_socket *socket, __u64 sock, __u32 segments, __u64 now)
{
	__u64 start = last_progress_ns(sock, now);
	struct episode *episode;

	/* what was tried before has failed */
	if (is_open(socket, TCP_LOSS_TLP))
		episode_end_kind(sock, TCP_LOSS_TLP, now, TCP_LOSS_END_RTO);
	if (is_open(socket, TCP_LOSS_RETRANSMIT))
		episode_end_kind(sock, TCP_LOSS_RETRANSMIT, now, TCP_LOSS_END_RTO);
	if (is_open(socket, TCP_LOSS_LOSS_RECOVERY))
		episode_end_kind(sock, TCP_LOSS_LOSS_RECOVERY, start, TCP_LOSS_END_RTO);
	episode = episode_begin(sock, TCP_LOSS_RTO, start, now);
	if (!episode)
		return;
	episode->event.segments += segments;
	/* into a window that the peer took back it is a probe, by the kernel's own count too */
	if (BPF_CORE_READ(tcp_of(sock), snd_wnd))
		episode->event.timeouts += segments; /* one each */
}

static __always_inline void on_tlp(struct tcp_socket *socket, __u64 sock, __u32 segments, __u64 now)
{
	struct episode *episode = episode_begin(sock, TCP_LOSS_TLP, last_progress_ns(sock, now),
						now);

	if (!episode)
		return;
	episode->event.segments += segments;
	episode->event.probes++;
}

/* `segments`, and those that were sent before but not seen; see add_uncounted(). */
static __always_inline __u32 count_retransmit(__u64 sock, __u32 segments)
{
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
	__u32 total = BPF_CORE_READ(tcp_of(sock), total_retrans);
	__s32 missed = 0;

	if (socket) {
		missed = total - socket->retrans_counted - segments;
		socket->retrans_counted = total;
	}
	return missed > 0 ? segments + missed : segments;
}

static __noinline int on_retransmit(__u64 sock, __u32 segments, __u64 now)
{
	__u32 state = BPF_CORE_READ((struct sock *)sock, __sk_common.skc_state);
	struct tcp_socket *socket;
	__u32 ca_state = ca_state_of(sock), pending = pending_of(sock);
	__u32 kind = TCP_LOSS_RETRANSMIT;
	struct episode *episode;

	segments = count_retransmit(sock, segments);
	socket = tcp_socket_get(sock);
	if (state == TCP_STATE_SYN_SENT) {
		on_syn_retransmit(sock, segments, now);
		return 0;
	}
	look_at_all(socket, sock, now, ca_state);
	if (ca_state == CA_LOSS && pending == PENDING_NONE) {
		on_rto(socket, sock, segments, now);
		return 0;
	}
	if (ca_state < CA_RECOVERY && pending == PENDING_LOSS_PROBE) {
		on_tlp(socket, sock, segments, now);
		if (socket) /* what tlp_high_seq will be */
			socket->tlp_counted = BPF_CORE_READ(tcp_of(sock), snd_nxt);
		return 0;
	}
	if (ca_state == CA_LOSS)
		kind = TCP_LOSS_LOSS_RECOVERY;
	episode = episode_begin(sock, kind, now, now);
	if (!episode)
		return 0;
	episode->event.segments += segments;
	return 0;
}

SEC("raw_tp/tcp_retransmit_skb")
int BPF_PROG(tcp_loss_retransmit, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb *cb = (void *)skb + bpf_core_field_offset(struct sk_buff, cb);

	on_retransmit((__u64)sk, BPF_CORE_READ(cb, tcp_gso_segs), bpf_ktime_get_ns());
	return 0;
}

/*
 * `sk` is the listener; with TCP Fast Open the connection, which counts them among its own. Floods
 * come here: the SYN-ACKs of a listener are summed up.
 */
SEC("raw_tp/tcp_retransmit_synack")
int BPF_PROG(tcp_loss_retransmit_synack, struct sock *sk, struct request_sock *request)
{
	__u64 now = bpf_ktime_get_ns(), sock = (__u64)sk;
	__u64 start = BPF_CORE_READ((struct tcp_request_sock *)request, snt_synack) * 1000;
	struct episode *episode = episode_begin(sock, TCP_LOSS_SYNACK_RETRANSMIT, now, now);

	count_retransmit(sock, 1);
	if (!episode)
		return 0;
	if (!episode->event.segments)
		tcp_read_addresses(&episode->event.connection, (struct sock *)request);
	if (start && start < episode->event.header.start_ns)
		episode->event.header.start_ns = start;
	episode->event.segments++;
	return 0;
}

/* ---- the socket's timers ---- */

/*
 * A tail-loss probe with new data is no retransmission. It shows in tlp_high_seq, which is set
 * until the peer has everything up to there.
 */
static __always_inline void look_for_probe(struct tcp_socket *socket, __u64 sock, __u64 now)
{
	__u32 high = BPF_CORE_READ(tcp_of(sock), tlp_high_seq);

	if (!high || high == socket->tlp_counted)
		return;
	socket->tlp_counted = high;
	on_tlp(socket, sock, 0, now);
}

static __always_inline void on_window_probe(__u64 sock, __u64 now)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sock;
	struct episode *episode = episode_find(sock, TCP_LOSS_ZERO_WINDOW_RECEIVED);
	__u8 backoff;

	/* the same timer waits out shortages of our own: pacing, memory */
	if ((!episode || episode->pause_ns) && peer_window_closed(sock))
		episode = episode_begin(sock, TCP_LOSS_ZERO_WINDOW_RECEIVED, now, now);
	if (!episode)
		return;
	/* each probe backs off further, up to a limit; it is counted until the answer is there */
	backoff = BPF_CORE_READ(icsk, icsk_backoff);
	if (backoff > episode->backoff)
		episode->event.probes += backoff - episode->backoff;
	else if (backoff && BPF_CORE_READ(icsk, icsk_probes_out))
		episode->event.probes++;
	else
		return;
	episode->backoff = backoff;
	episode->last_ns = now;
}

/* A close is no use: of a process that ends, any thread may be the last to hold the socket. */
static __always_inline bool used_by_a_thread(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_lock.owned) &&
	       BPF_CORE_READ_BITFIELD_PROBED(sk, sk_shutdown) != SHUTDOWN_MASK;
}

static __noinline int on_write_timer_start(__u64 sock)
{
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
	__u32 pending = pending_of(sock);
	__u64 now = 0;

	if (socket && socket->open) {
		now = bpf_ktime_get_ns();
		look_at_all(socket, sock, now, ca_state_of(sock));
	}
	if (used_by_a_thread((struct sock *)sock)) {
		if (!socket)
			socket = tcp_socket_get(sock);
		if (socket)
			tcp_used_by_current(socket);
	}
	if (pending == PENDING_PROBE0)
		on_window_probe(sock, now ? now : bpf_ktime_get_ns());
	else if (socket && pending == PENDING_RETRANS)
		look_for_probe(socket, sock, now ? now : bpf_ktime_get_ns());
	return 0;
}

/* A typed pointer as a number, on which the verifier allows arithmetic. */
static __always_inline __u64 timer_address(struct timer_list *timer)
{
	__u64 address;

	bpf_probe_read_kernel(&address, sizeof(address), &timer);
	return address;
}

/* Every timer of the kernel passes here: one comparison for those that are not TCP's. */
SEC("tp_btf/timer_start")
int BPF_PROG(tcp_loss_timer_start, struct timer_list *timer)
{
	if ((__u64)timer->function == write_timer_function && write_timer_function)
		on_write_timer_start(timer_address(timer) - tcp_write_timer_offset());
	return 0;
}

/* ---- our own window ---- */

/*
 * It closed with an ACK that nothing traced: at once with the last data that fitted in, or delayed.
 * tcp_mstamp is the precise time until the peer probes, which it does 200 ms later or more
 * (TCP_RTO_MIN); then the data's time is the best that is left, in jiffies.
 */
static __always_inline __u64 window_closed_ns(__u64 sock, __u64 now, bool just_now)
{
	enum { FIRST_PROBE_NS = 200000000 };
	__u32 jiffies = BPF_CORE_READ((struct inet_connection_sock *)sock, icsk_ack.lrcvtime);
	__u64 data = jiffies_to_ns(jiffies, now);
	__u64 exact = BPF_CORE_READ(tcp_of(sock), tcp_mstamp) * 1000;

	if (just_now || exact < data + FIRST_PROBE_NS)
		return exact;
	return data + jiffy_ns < now ? data + jiffy_ns : now;
}

static __noinline int on_own_window_closed(__u64 sock, bool just_now)
{
	struct episode *episode = episode_find(sock, TCP_LOSS_ZERO_WINDOW_SENT);
	__u64 now = bpf_ktime_get_ns(), start;

	if (episode && !episode->pause_ns) {
		episode->last_ns = now;
		return 0;
	}
	start = window_closed_ns(sock, now, just_now);
	if (episode && start < episode->pause_ns)
		start = episode->pause_ns;
	episode_begin(sock, TCP_LOSS_ZERO_WINDOW_SENT, start, now);
	return 0;
}

/*
 * The timer function has run, with what it sent. The socket may be gone by now: its memory stays a
 * socket's (SLAB_TYPESAFE_BY_RCU), but only what is known or established is looked at.
 */
SEC("tp_btf/timer_expire_exit")
int BPF_PROG(tcp_loss_timer_expired, struct timer_list *timer)
{
	__u64 function = (__u64)timer->function, sock;
	struct tcp_socket *socket;

	if (!function)
		return 0;
	if (function == write_timer_function) {
		sock = timer_address(timer) - tcp_write_timer_offset();
		socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
		if (socket)
			look_for_probe(socket, sock, bpf_ktime_get_ns());
	} else if (function == delack_timer_function) {
		sock = timer_address(timer) -
		       bpf_core_field_offset(struct inet_connection_sock, icsk_delack_timer);
		/* delayed ACKs are sent here; a socket that nobody has used yet is not known either
		 */
		if (!BPF_CORE_READ(tcp_of(sock), rcv_wnd) &&
		    BPF_CORE_READ((struct sock *)sock, __sk_common.skc_state) ==
			    TCP_STATE_ESTABLISHED)
			on_own_window_closed(sock, true);
	}
	return 0;
}

/*
 * Which sockets this CPU has asked about in this jiffy: to keep the owner up to date within one
 * costs a fast reader nothing then.
 */
#define RECENT 64
struct recent {
	__u64 sock[RECENT];
	__u32 jiffies[RECENT];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct recent);
} tcp_loss_recent SEC(".maps");

static __always_inline bool asked_recently(__u64 sock)
{
	__u32 zero = 0, slot = sock >> 7 & (RECENT - 1), jiffies = bpf_jiffies64();
	struct recent *recent = bpf_map_lookup_elem(&tcp_loss_recent, &zero);

	if (!recent || (recent->sock[slot] == sock && recent->jiffies[slot] == jiffies))
		return true;
	recent->sock[slot] = sock;
	recent->jiffies[slot] = jiffies;
	return false;
}

static __noinline int on_read(__u64 sock, bool closed)
{
	struct tcp_socket *socket = tcp_socket_get(sock);

	if (!socket)
		return 0;
	tcp_used_by_current(socket);
	if (closed)
		on_own_window_closed(sock, false);
	else
		look_at_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_SENT, bpf_ktime_get_ns(), 0);
	return 0;
}

/* A thread has copied data out; the window, if it was closed, still is: it opens after this. */
SEC("raw_tp/tcp_rcv_space_adjust")
int BPF_PROG(tcp_loss_read, struct sock *sk)
{
	__u64 sock = (__u64)sk;
	bool closed = !BPF_CORE_READ(tcp_of(sock), rcv_wnd);

	if (closed || !asked_recently(sock))
		on_read(sock, closed);
	return 0;
}

/* ---- resets ---- */

SEC("raw_tp/tcp_receive_reset")
int BPF_PROG(tcp_loss_rst_received, struct sock *sk)
{
	__u64 sock = (__u64)sk, now = bpf_ktime_get_ns();
	struct episode *episode = episode_begin(sock, TCP_LOSS_RST_RECEIVED, now, now);

	if (!episode)
		return 0;
	episode->event.segments++;
	episode_end_kind(sock, TCP_LOSS_RST_RECEIVED, now, TCP_LOSS_END_NONE);
	return 0;
}

/* The addresses of a packet that arrived: its destination is us. */
static __always_inline void read_packet_addresses(struct tcp_connection *ret, struct sk_buff *skb)
{
	unsigned char *head = BPF_CORE_READ(skb, head);
	unsigned char *ip = head + BPF_CORE_READ(skb, network_header);
	__be16 ports[2] = {};
	__be32 v4[2] = {};
	__u8 version = 0;

	bpf_probe_read_kernel(ports, sizeof(ports), head + BPF_CORE_READ(skb, transport_header));
	ret->remote_port = __builtin_bswap16(ports[0]);
	ret->local_port = __builtin_bswap16(ports[1]);
	bpf_probe_read_kernel(&version, sizeof(version), ip);
	if (version >> 4 == 6) {
		ret->family = TCP_FAMILY_IPV6;
		bpf_probe_read_kernel(ret->remote_ip, sizeof(ret->remote_ip), ip + 8);
		bpf_probe_read_kernel(ret->local_ip, sizeof(ret->local_ip), ip + 24);
	} else {
		ret->family = TCP_FAMILY_IPV4;
		bpf_probe_read_kernel(v4, sizeof(v4), ip + 12);
		ip_set_v4(ret->remote_ip, v4[0]);
		ip_set_v4(ret->local_ip, v4[1]);
	}
	ret->netns = BPF_CORE_READ(skb, dev, nd_net.net, ns.inum);
}

/* Nobody's: the answer to a packet without a socket. A scan makes many: summed up by our port. */
static __noinline int on_rst_without_socket(struct sk_buff *skb, __u64 now)
{
	struct tcp_loss_key key = { .kind = TCP_LOSS_RST_SENT, .no_sock = 1 };
	struct tcp_connection connection = {};
	struct episode *episode;

	read_packet_addresses(&connection, skb);
	key.sock = (__u64)connection.netns << 16 | connection.local_port;
	episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	if (!episode) {
		bpf_map_update_elem(&tcp_loss_episodes, &key, &empty_episode, BPF_NOEXIST);
		episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
		if (!episode) {
			stat_add(STAT_SEEN, 1);
			stat_add(STAT_LOST_STATE, 1);
			return 0;
		}
		episode->event.connection = connection;
		episode->event.kind = TCP_LOSS_RST_SENT;
		episode->event.stalls = 1;
		episode->stall_ns = now;
		episode->event.header.start_ns = now;
	}
	episode->last_ns = now;
	__sync_fetch_and_add(&episode->event.segments, 1);
	return 0;
}

/* `skb` is what was answered, NULL when a thread closed or aborted. `sk` may be NULL since 6.10. */
SEC("raw_tp/tcp_send_reset")
int BPF_PROG(tcp_loss_rst_sent, struct sock *sk, struct sk_buff *skb)
{
	__u64 sock = (__u64)sk, now = bpf_ktime_get_ns();
	struct episode *episode;
	__u32 state = sk ? BPF_CORE_READ(sk, __sk_common.skc_state) : TCP_STATE_NONE;

	if (state == TCP_STATE_NONE || state == TCP_STATE_LISTEN || state == TCP_STATE_TIME_WAIT ||
	    state == TCP_STATE_NEW_SYN_RECV) {
		if (skb)
			on_rst_without_socket(skb, now);
		return 0;
	}
	episode = episode_begin(sock, TCP_LOSS_RST_SENT, now, now);
	if (!episode)
		return 0;
	episode->event.segments++;
	episode_end_kind(sock, TCP_LOSS_RST_SENT, now, TCP_LOSS_END_NONE);
	return 0;
}

/* ---- the life of a socket ---- */

static __always_inline void close_kind(struct tcp_socket *socket, __u64 sock, __u32 kind, __u64 now,
				       __u32 ended_by)
{
	struct tcp_loss_key key = episode_key(sock, kind);
	struct episode *episode;

	if (!is_open(socket, kind))
		return;
	episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	if (!episode)
		return;
	/* the last expiry of the timer sends nothing any more, but it is one */
	if (ended_by == TCP_LOSS_END_TIMEOUT &&
	    (kind == TCP_LOSS_RTO || kind == TCP_LOSS_SYN_RETRANSMIT))
		episode->event.timeouts++;
	episode_end(&key, episode, now, episode->pause_ns ? TCP_LOSS_END_PROGRESS : ended_by);
}

static __always_inline __u32 why_closed(__u64 sock)
{
	int error = BPF_CORE_READ((struct sock *)sock, sk_err);

	if (error == ECONNRESET || error == ECONNREFUSED || error == EPIPE)
		return TCP_LOSS_END_RESET;
	/* a timer function clears it before it acts */
	if (error && pending_of(sock) == PENDING_NONE)
		return TCP_LOSS_END_TIMEOUT;
	return TCP_LOSS_END_CLOSED;
}

static __noinline int on_close(struct tcp_socket *socket, __u64 sock)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 ended_by = why_closed(sock);

	if (!socket)
		return 0;
	look_at_all(socket, sock, now, ca_state_of(sock));
	close_kind(socket, sock, TCP_LOSS_RETRANSMIT, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_RTO, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_LOSS_RECOVERY, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_TLP, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_SYN_RETRANSMIT, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_RECEIVED, now, ended_by);
	return 0;
}

static __always_inline void on_connect(__u64 sock)
{
	struct tcp_socket *socket = tcp_socket_get(sock);

	if (!socket)
		return;
	tcp_used_by_current(socket);
	socket->connect_ns = bpf_ktime_get_ns();
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(tcp_loss_set_state, struct sock *sk, int old_state, int new_state)
{
	__u64 sock = (__u64)sk;
	struct tcp_socket *socket;

	if (!is_tcp(sk))
		return 0;
	learn_timers(sock);
	if (new_state == TCP_STATE_SYN_SENT) {
		on_connect(sock);
		return 0;
	}
	if (new_state == TCP_STATE_LISTEN) {
		socket = tcp_socket_get(sock);
		if (socket)
			tcp_used_by_current(socket);
		return 0;
	}
	socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
	if (!socket || !socket->open)
		return 0;
	if (old_state == TCP_STATE_SYN_SENT && new_state == TCP_STATE_ESTABLISHED)
		episode_end_kind(sock, TCP_LOSS_SYN_RETRANSMIT, bpf_ktime_get_ns(),
				 TCP_LOSS_END_PROGRESS);
	else if (new_state == TCP_STATE_CLOSE)
		on_close(socket, sock);
	return 0;
}

/* Ends what ends with an ACK at that ACK; without it, that is noticed at the socket's next timer.
 */
SEC("?raw_tp/tcp_cong_state_set")
int BPF_PROG(tcp_loss_cong_state, struct sock *sk, __u8 ca_state)
{
	__u64 sock = (__u64)sk;
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);

	if (socket && socket->open)
		look_at_all(socket, sock, bpf_ktime_get_ns(), ca_state);
	return 0;
}

/* Retransmissions that no row came to have: see add_uncounted(). */
static __always_inline void count_lost(struct tcp_socket *socket, __u64 sock)
{
	__s32 missing = BPF_CORE_READ(tcp_of(sock), total_retrans) - socket->retrans_counted;

	if (missing > 0) {
		stat_add(STAT_SEEN, missing);
		stat_add(STAT_LOST_STATE, missing);
	}
}

SEC("raw_tp/tcp_destroy_sock")
int BPF_PROG(tcp_loss_destroy, struct sock *sk)
{
	__u64 sock = (__u64)sk, now;
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);

	if (!socket)
		return 0;
	if (socket->open) {
		now = bpf_ktime_get_ns();
		on_close(socket, sock);
		/* the reset that close() sends may still have opened our window */
		close_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_SENT, now, why_closed(sock));
		episode_end_kind(sock, TCP_LOSS_SYNACK_RETRANSMIT, now, TCP_LOSS_END_CLOSED);
	}
	count_lost(socket, sock);
	bpf_map_delete_elem(&tcp_loss_sockets, &sock);
	return 0;
}

/* Read once by user space, after everything is attached. */
SEC("iter/task_file")
int tcp_loss_old_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	if (!sk || !is_tcp(sk))
		return 0;
	learn_timers((__u64)sk);
	tcp_held_by((__u64)sk, task);
	return 0;
}
