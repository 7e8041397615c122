// SPDX-License-Identifier: Apache-2.0
/* Closed unix sockets, and the names of services. See request_unix.h. */
#include "trackers/request_unix.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

static const uint64_t connections_every_ns = NSEC_PER_SEC, arrivals_every_ns = 10 * NSEC_PER_SEC;

void request_unix_open(struct sched_bpf *skeleton, bool seen)
{
	struct bpf_program *programs[] = { skeleton->progs.request_sweep,
					   skeleton->progs.request_sweep_arrivals };

	for (size_t i = 0; i < 2; i++) {
		bpf_program__set_autoload(programs[i], seen);
		bpf_program__set_autoattach(programs[i], false);
	}
}

static int run_once(const struct bpf_program *program)
{
	LIBBPF_OPTS(bpf_test_run_opts, run);

	return bpf_prog_test_run_opts(bpf_program__fd(program), &run);
}

void request_unix_sweep(struct sched_bpf *skeleton, uint64_t now_ns)
{
	static uint64_t swept_ns, arrivals_swept_ns;
	static struct log_limit limit;
	int err;

	if (!skeleton->bss->request_unix || bpf_program__fd(skeleton->progs.request_sweep) < 0)
		return;
	if (now_ns && now_ns - swept_ns < connections_every_ns)
		return;
	swept_ns = now_ns;
	err = run_once(skeleton->progs.request_sweep);
	if (!err && now_ns - arrivals_swept_ns >= arrivals_every_ns) {
		arrivals_swept_ns = now_ns;
		err = run_once(skeleton->progs.request_sweep_arrivals);
	}
	if (err)
		log_ratelimited(&limit, "request: closed unix sockets are not found: %s",
				strerror(-err));
}

void request_unix_peer(const struct sched_bpf *skeleton, struct request_event *event,
		       char ret[REQUEST_PEER_PATH_SIZE])
{
	struct request_unix_name name;
	uint64_t id;

	ret[0] = 0;
	if (event->net_peer_port || event->net_peer_ip[0] != REQUEST_UNIX_PEER)
		return;
	memcpy(&id, event->net_peer_ip + 8, sizeof(id));
	memset(event->net_peer_ip, 0, sizeof(event->net_peer_ip));
	if (!skeleton ||
	    bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.request_unix_names), &id, &name))
		return;
	if (name.n > sizeof(name.bytes))
		name.n = sizeof(name.bytes);
	/* the path of a file may have its NUL */
	if (name.bytes[0])
		name.n = (uint32_t)strnlen(name.bytes, name.n);
	for (uint32_t i = 0; i < name.n; i++)
		ret[i] = name.bytes[i] ? name.bytes[i] : '@';
	ret[name.n] = 0;
}
