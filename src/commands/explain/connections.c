// SPDX-License-Identifier: Apache-2.0
/* Handshakes, losses, closed windows and allowances of a request's connections. See connections.h.
 */
#include "commands/explain/connections.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/ask.h"
#include "commands/explain/outbound.h"
#include "commands/explain/place.h"

/* A share of the part, in percent: worth a word; decides the remedy. */
enum { SAID_PERCENT = 10, REMEDY_PERCENT = 50 };

enum { DNS_PORT = 53 };

static const char is_connect[] = "connect";

/* ---- rows ---- */

int connections_attach(struct clickhouse_client *client, json_t *r, struct why *why)
{
	int64_t from = explain_number(r, "from_us"), to = explain_number(r, "to_us");
	double network_ms = explain_ms(r, "net_ms") + explain_ms(r, "await_ms") +
			    explain_ms(r, "client_slow_ms");
	int err;

	if (network_ms * 100 < explain_ms(r, "duration_ms") * SAID_PERCENT)
		return 0;
	err = explain_attach(client, r, r, "connections", "explain/connections.sql", from, to, why);
	if (!err)
		err = explain_attach(client, r, r, "allowances", "explain/allowances.sql", from, to,
				     why);
	if (!err)
		err = outbound_attach(client, r, why);
	return err;
}

static bool is_kind(const json_t *row, const char *kind)
{
	return !strcmp(explain_text(row, "kind"), kind);
}

/* What a row says of its time, after "to X port N". Kinds: sql/tables/ebpf_tcp_loss.sql. */
static const char *words_of(const json_t *row)
{
	static const struct {
		const char *kind, *words, *of_client;
	} kinds[] = {
		{ "rto", "packets were lost, and the retransmission timer had to expire", NULL },
		{ "retransmit", "packets were lost and sent again", NULL },
		{ "loss_recovery", "packets were lost and sent again", NULL },
		{ "tlp", "the last packet or its acknowledgement was lost or late", NULL },
		{ "zero_window_sent", "its receive window was closed, as no thread here read",
		  NULL },
		{ "zero_window_received", "the peer's receive window was closed: it did not read",
		  "the client's receive window was closed: it did not read" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (is_kind(row, kinds[i].kind))
			return explain_number(row, "own") && kinds[i].of_client ? kinds[i].of_client
										: kinds[i].words;
	}
	return explain_text(row, "kind");
}

static bool is_loss_of_packets(const json_t *row)
{
	return !is_kind(row, is_connect) &&
	       strncmp(explain_text(row, "kind"), "zero_window", 11) != 0;
}

/* ", refused, its first packet sent 2 times more": of a handshake. */
static void put_outcome(char *buf, size_t size, const json_t *row)
{
	const char *outcome = explain_text(row, "outcome");
	long long repeated = explain_number(row, "repeated");
	size_t n;

	snprintf(buf, size, "%s%.20s", strcmp(outcome, "success") ? ", " : "",
		 strcmp(outcome, "success") ? outcome : "");
	n = strlen(buf);
	if (repeated)
		snprintf(buf + n, size - n, ", its first packet sent %lld time%s more", repeated,
			 plural(repeated));
}

void connections_add_lines(struct lines *lines, const json_t *r)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(r, "connections"), i, row) {
		char label[LABEL_MAX], outcome[80];

		if (is_kind(row, is_connect)) {
			put_outcome(outcome, sizeof(outcome), row);
			snprintf(label, sizeof(label), "connect to %.60s port %lld%s",
				 explain_text(row, "peer_ip"),
				 (long long)explain_number(row, "peer_port"), outcome);
		} else if (explain_number(row, "own")) {
			snprintf(label, sizeof(label), "the client's connection: %.200s",
				 words_of(row));
		} else {
			snprintf(label, sizeof(label), "connection to %.60s port %lld: %.200s",
				 explain_text(row, "peer_ip"),
				 (long long)explain_number(row, "peer_port"), words_of(row));
		}
		lines_add(lines, label, explain_number(row, "begin_us"),
			  explain_number(row, "end_us"));
	}
}

/* ---- evidence ---- */

/* Of a loss that is several intervals, its time without progress. */
static double ms_within(const json_t *row, int64_t from_us, int64_t to_us)
{
	int64_t overlap = explain_overlap_us(row, from_us, to_us),
		stalled = explain_number(row, "stalled_us");

	overlap = overlap < stalled ? overlap : stalled;
	return overlap > 0 ? (double)overlap / 1000 : 0;
}

struct evidence {
	const json_t *longest;
	double ms; /* of the longest */
	double all_ms;
	size_t n;
};

enum whose { HANDSHAKES, LOSSES, OF_CLIENT };

static bool belongs(const json_t *row, enum whose whose)
{
	bool connect = is_kind(row, is_connect), own = explain_number(row, "own") != 0;

	return whose == HANDSHAKES ? connect : whose == LOSSES ? !connect && !own : own;
}

static struct evidence find_evidence(const json_t *r, enum whose whose, const char *from)
{
	int64_t from_us = explain_number(r, from), to_us = explain_number(r, "to_us");
	struct evidence found = { 0 };
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(r, "connections"), i, row) {
		double ms = belongs(row, whose) ? ms_within(row, from_us, to_us) : 0;

		if (ms <= 0)
			continue;
		found.n++;
		found.all_ms += ms;
		if (ms > found.ms)
			found.longest = row;
		found.ms = ms > found.ms ? ms : found.ms;
	}
	return found;
}

static bool is_share(double ms, const struct cause *c, int percent)
{
	return ms > 0 && ms * 100 >= c->ms * percent;
}

static void add_handshakes(const struct evidence *found, struct cause *c)
{
	char outcome[80], several[48] = "";
	size_t n = strlen(c->said);

	if (!is_share(found->all_ms, c, SAID_PERCENT))
		return;
	put_outcome(outcome, sizeof(outcome), found->longest);
	if (found->n > 1)
		snprintf(several, sizeof(several), "%zu times, longest (%.1f ms) ", found->n,
			 found->ms);
	snprintf(c->said + n, sizeof(c->said) - n, "; %.1f ms: it connected %sto %.60s port %lld%s",
		 found->all_ms, several, explain_text(found->longest, "peer_ip"),
		 (long long)explain_number(found->longest, "peer_port"), outcome);
}

static void add_losses(const struct evidence *found, struct cause *c)
{
	const json_t *row = found->longest;
	size_t n = strlen(c->said);

	if (!is_share(found->ms, c, SAID_PERCENT))
		return;
	if (explain_number(row, "own"))
		snprintf(c->said + n, sizeof(c->said) - n, "; %.1f ms: %.200s", found->ms,
			 words_of(row));
	else
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; %.1f ms: on the connection to %.60s port %lld %.200s", found->ms,
			 explain_text(row, "peer_ip"), (long long)explain_number(row, "peer_port"),
			 words_of(row));
}

/* "; the EC2 instance exceeded its allowance pps on ens5 (120 packets)" */
static const json_t *add_allowance(const json_t *r, struct cause *c)
{
	const json_t *most = json_array_get(json_object_get(r, "allowances"), 0);
	long long packets = explain_number(most, "packets");
	size_t n = strlen(c->said);

	if (most)
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; the EC2 instance exceeded its allowance %.20s on %.20s meanwhile (%lld "
			 "packet%s queued or dropped)",
			 explain_text(most, "allowance"), explain_text(most, "name"), packets,
			 plural(packets));
	return most;
}

static const char fix_allowance[] =
	"an instance type with a higher allowance, or fewer packets: ebpf_ena has each second";
static const char fix_loss[] = "the network or that host drops packets: sql/queries/tcp_loss.sql "
			       "lists where";

/* ---- causes ---- */

/* A pool helps only where connections come about. */
static void fix_handshakes(struct cause *c, const json_t *longest)
{
	const char *outcome = explain_text(longest, "outcome");

	if (explain_number(longest, "repeated") || !strcmp(outcome, "timeout"))
		FIX(c, "that server's accept queue was full, or a firewall or the network dropped "
		       "packets: sql/queries/tcp_connect.sql lists such peers");
	else if (!strcmp(outcome, "aborted"))
		FIX(c, "the code gave up before an answer came (its time-out): that server's "
		       "accept queue was full, a firewall or the network dropped packets, or the "
		       "time-out is shorter than the way there and back: "
		       "sql/queries/tcp_connect.sql lists such peers");
	else if (strcmp(outcome, "success") != 0)
		FIX(c,
		    "find why that peer cannot be reached (%.20s): "
		    "sql/queries/tcp_connect.sql lists such peers",
		    outcome);
	else
		FIX(c, "keep connections open (a pool): each handshake costs a round trip");
}

/* Of what the rows show; none otherwise. */
static void put_fix(struct cause *c, const struct evidence *handshakes,
		    const struct evidence *losses, bool allowance)
{
	if (allowance)
		FIX(c, "%s", fix_allowance);
	else if (is_share(handshakes->all_ms, c, REMEDY_PERCENT))
		fix_handshakes(c, handshakes->longest);
	else if (is_share(losses->ms, c, REMEDY_PERCENT) && is_loss_of_packets(losses->longest))
		FIX(c, "%s", fix_loss);
}

/* Sockets that a pool's thread without Python waits for are those of getaddrinfo(). */
static bool asks_for_a_name(const json_t *r, const struct cause *c)
{
	const struct place place = place_of(r, c, "net");

	return explain_number(r, "net_peer_port") == DNS_PORT ||
	       (!strcmp(explain_text(r, "model"), "pool") && !explain_has_peer(r) &&
		(!*place.text || strstr(place.text, " in getaddrinfo (")));
}

/* Of one wait for an answer that is most of the part: fewer questions would not be shorter. */
static bool answered_late(const json_t *r, struct cause *c)
{
	const json_t *wait;
	int64_t longest_us = 0;
	size_t i;

	json_array_foreach (json_object_get(r, "waits"), i, wait) {
		const char *syscall = explain_text(wait, "syscall");
		int64_t us = explain_handled_us(r, wait);

		if (strcmp(explain_text(wait, "cause"), "net") != 0 || us <= longest_us)
			continue;
		if (strstr(syscall, "send") || strstr(syscall, "write") ||
		    !strcmp(syscall, "connect"))
			continue;
		longest_us = us;
	}
	if (!is_share((double)longest_us / 1000, c, REMEDY_PERCENT) ||
	    !is_share(explain_ms(r, "net_peer_ms"), c, REMEDY_PERCENT))
		return false;
	FIX(c,
	    "find why that peer answered late, %.1f ms in one wait (of a database: locks and slow "
	    "queries), or a shorter time-out",
	    (double)longest_us / 1000);
	return true;
}

void cause_net(const json_t *r, struct cause *c)
{
	struct evidence handshakes = find_evidence(r, HANDSHAKES, "handled_us"),
			losses = find_evidence(r, LOSSES, "handled_us");
	char peer[EXPLAIN_PEER_SIZE];

	c->name = "net";
	if (explain_has_peer(r))
		SAY(c, "the thread waited for sockets, %.1f ms of it for %s%s",
		    explain_ms(r, "net_peer_ms"), explain_peer(r, peer),
		    place_of(r, c, "net").text);
	else
		SAY(c, "the thread waited for sockets%s", place_of(r, c, "net").text);
	add_handshakes(&handshakes, c);
	add_losses(&losses, c);
	put_fix(c, &handshakes, &losses, add_allowance(r, c) != NULL);
	outbound_add(r, c);
	if (!*c->fix && asks_for_a_name(r, c))
		FIX(c, "%s", CAUSE_FIX_DNS);
	else if (!*c->fix && explain_has_peer(r) && !answered_late(r, c))
		FIX(c, "ask that peer less often or for less data");
}

void connections_add_blocked(const json_t *r, struct cause *c)
{
	char peer[EXPLAIN_PEER_SIZE];
	size_t n = strlen(c->said);

	if (explain_has_peer(r))
		snprintf(c->said + n, sizeof(c->said) - n, "; %.1f ms of it for %s",
			 explain_ms(r, "net_peer_ms"), explain_peer(r, peer));
	n = strlen(c->fix);
	if (asks_for_a_name(r, c))
		snprintf(c->fix + n, sizeof(c->fix) - n, "; %s", CAUSE_FIX_DNS);
}

/* Does the client run on the server's host, by the kind of its connection? */
static bool is_local(const json_t *r)
{
	const char *ip = explain_text(r, "peer_ip");

	return !strcmp(explain_text(r, "family"), "unix") || !strncmp(ip, "127.", 4) ||
	       !strcmp(ip, "::1");
}

void connections_fix_client(const json_t *r, struct cause *c, const struct client_fix *fix)
{
	const json_t *client = json_array_get(json_object_get(r, "client"), 0);
	size_t n = strlen(c->said);
	bool here = explain_number(client, "here") != 0;

	if (client) {
		snprintf(c->said + n, sizeof(c->said) - n, "; the client is %.60s, pid %lld%s%.60s",
			 explain_text(client, "service"),
			 (long long)explain_number(client, "by_pid"), here ? "" : " on ",
			 here ? "" : explain_text(client, "host"));
		FIX(c, "find what kept that client from %s%s", fix->doing, fix->or_else);
	} else if (is_local(r)) {
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; the client is a program of the same host");
		FIX(c, "if that client is a proxy, %s; otherwise find what kept it from %s%s",
		    fix->of_proxy, fix->doing, fix->or_else);
	} else {
		FIX(c,
		    "a proxy in front that %s%s; if the client is one, its buffers are off or "
		    "full",
		    fix->in_front, fix->or_else);
	}
}

void cause_client_slow(const json_t *r, struct cause *c)
{
	static const struct client_fix fix = {
		.doing = "reading",
		.or_else = ", or smaller answers",
		.in_front = "takes whole answers (nginx buffers them)",
		.of_proxy = "let it take whole answers (nginx: proxy_buffering, and room in "
			    "proxy_max_temp_file_size)",
	};
	struct evidence losses = find_evidence(r, OF_CLIENT, "from_us");
	bool lost = is_share(losses.ms, c, REMEDY_PERCENT) && is_loss_of_packets(losses.longest);

	c->name = "client_slow";
	SAY(c, "the client read the answer (%lld bytes) more slowly than the server wrote",
	    (long long)explain_number(r, "bytes_out"));
	add_losses(&losses, c);
	if (add_allowance(r, c))
		FIX(c, "%s", fix_allowance);
	else if (lost)
		FIX(c, "%s", fix_loss);
	else
		connections_fix_client(r, c, &fix);
}

void connections_add_awaited(const json_t *r, struct cause *c)
{
	struct evidence handshakes = find_evidence(r, HANDSHAKES, "handled_us"),
			losses = find_evidence(r, LOSSES, "handled_us");

	/* the loop's thread has the connections of all its requests */
	if (explain_number(r, "open_requests") > 1) {
		outbound_add(r, c);
		return;
	}
	add_handshakes(&handshakes, c);
	add_losses(&losses, c);
	put_fix(c, &handshakes, &losses, add_allowance(r, c) != NULL);
	outbound_add(r, c);
}
