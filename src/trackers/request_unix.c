// SPDX-License-Identifier: Apache-2.0
/* Runs the kernel side's search for closed unix sockets. See request_unix.h. */
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
