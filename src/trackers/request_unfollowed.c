// SPDX-License-Identifier: Apache-2.0
/* What the ledger has seen and does not follow. See request_unfollowed.h. */
#include "trackers/request_unfollowed.h"

#include "base/clock.h"
#include "base/util.h"

void request_unfollowed_report(struct sched_bpf *skeleton, const struct tracker_output *output,
			       uint64_t now_ns)
{
	static const uint64_t every_ns = 10 * NSEC_PER_SEC;
	static uint64_t reported[11], reported_ns;
	const struct {
		const char *what, *one, *many, *words;
		uint64_t n;
	} counts[] = {
#define CONNECTIONS "connection", "connections"
		{ "TLS", CONNECTIONS, "with TLS inside the process; their requests have no rows",
		  skeleton->bss->request_tls },
		{ "HTTP/2", CONNECTIONS, "of HTTP/2; their requests have no rows",
		  skeleton->bss->request_http2 },
		{ "upgraded", CONNECTIONS,
		  "upgraded (websockets, h2c); their rows end at the upgrade",
		  skeleton->bss->request_upgraded },
		{ "answers", "answer", "answers",
		  "without a status line of HTTP/1; their rows have no status",
		  skeleton->bss->request_unreadable },
		{ "pipelined", "answer", "answers", "to pipelined requests that have no rows",
		  skeleton->bss->request_pipelined },
		{ "CONNECT", "tunnel", "tunnels",
		  "(CONNECT); their rows end where the tunnel begins",
		  skeleton->bss->request_tunnels },
		{ "others", CONNECTIONS, "to servers in further protocols; no rows",
		  skeleton->bss->request_odd },
		{ "open at start", "request", "requests", "open when the agent started; no rows",
		  skeleton->bss->request_older },
		{ "bodies", "request", "requests", "behind a body without a known end; no rows",
		  skeleton->bss->request_unbounded },
		{ "unseen reads", CONNECTIONS,
		  "read by io_uring, recvmmsg() or preadv2(); their requests have no rows",
		  skeleton->bss->request_unseen },
		{ "unread", CONNECTIONS,
		  "closed before their last bytes were read; a request among these has no row",
		  skeleton->bss->request_unread },
#undef CONNECTIONS
	};
	struct why why;

	if (!output->last && now_ns - reported_ns < every_ns)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		if (counts[i].n == reported[i])
			continue;
		why_fail(&why, 0, "%llu %s %s", (unsigned long long)counts[i].n,
			 counts[i].n == 1 ? counts[i].one : counts[i].many, counts[i].words);
		output->health(output, &(struct tracker_health){ .live = true,
								 .what = counts[i].what,
								 .reason = why.text });
		reported[i] = counts[i].n;
		reported_ns = now_ns;
	}
}
