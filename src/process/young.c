// SPDX-License-Identifier: Apache-2.0
/* Surviving programs of an exec() storm. See young.h. */
#include "process/young.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/clock.h"

static const uint64_t LIVES_NS = 500 * NSEC_PER_MSEC, EVERY_NS = 100 * NSEC_PER_MSEC;
enum { AT_ONCE = 512 }; /* more than any bucket of the map holds */

static int map_fd = -1;
static const volatile __u64 *programs;
static uint64_t programs_before, next_ns;
static bool some_left;

void young_start(int young_map_fd, const volatile __u64 *young_programs)
{
	map_fd = young_map_fd;
	programs = young_programs;
	programs_before = 0;
	next_ns = 0;
	some_left = false;
}

/* Entries change during the read: missed entries are read next time. */
static uint32_t read_some(uint32_t *position, bool first, uint32_t *pids, uint64_t *begins_ns,
			  bool *ret_more)
{
	uint32_t n = AT_ONCE, next = 0;

	*ret_more = bpf_map_lookup_batch(map_fd, first ? NULL : position, &next, pids, begins_ns,
					 &n, NULL) == 0;
	if (!*ret_more && errno != ENOENT)
		return 0;
	*position = next;
	return n;
}

static void scan_map(uint64_t now_ns, void (*grown)(uint32_t host_pid))
{
	uint32_t pids[AT_ONCE], position = 0, n;
	uint64_t begins_ns[AT_ONCE];
	bool more = true;

	for (bool first = true; more; first = false) {
		n = read_some(&position, first, pids, begins_ns, &more);
		some_left |= n > 0;
		for (uint32_t i = 0; i < n; i++) {
			if (begins_ns[i] + LIVES_NS <= now_ns &&
			    bpf_map_delete_elem(map_fd, &pids[i]) == 0)
				grown(pids[i]);
		}
	}
}

void young_tick(uint64_t now_ns, void (*grown)(uint32_t host_pid))
{
	static struct log_limit storm;
	uint64_t n = programs ? *programs : 0;

	if (now_ns < next_ns || (n == programs_before && !some_left))
		return;
	next_ns = now_ns + EVERY_NS;
	if (n != programs_before)
		log_ratelimited(
			&storm,
			"more than 200 programs start per second: further programs are checked "
			"half a second after their start");
	programs_before = n;
	some_left = false;
	scan_map(now_ns, grown);
}
