/* SPDX-License-Identifier: Apache-2.0 */
/* All trackers, in the order of README.md. A new tracker: one line here, and the files of
 * its stem. */
#ifndef UNDERSPAN_TRACKERS_ALL_H
#define UNDERSPAN_TRACKERS_ALL_H

/* clang-format off */
#define ALL_TRACKERS(X) \
	X(handoff) \
	X(gc_pause) \
	X(gil_wait) \
	X(off_cpu) \
	X(on_cpu) \
	X(loop_stall) \
	X(tcp_accept) \
	X(tcp_connect) \
	X(tcp_loss) \
	X(ena) \
	X(request) \
	X(cpu_throttle)
/* clang-format on */

#endif
