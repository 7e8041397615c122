/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small process, forked early by the agent, that forks reader processes on demand
 * (reader_process.h). The server accesses no untrusted files and never hangs. Server and readers
 * hold no descriptor of the agent except their sockets, have few capabilities, and end with the
 * agent.
 */
#ifndef UNDERSPAN_WORKERS_FORK_SERVER_H
#define UNDERSPAN_WORKERS_FORK_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "workers/read_function.h"

/* Header of a request to a reader process, followed by `size` bytes of argument. */
struct reader_call {
	read_function run; /* valid since a forked process has the agent's addresses */
	uint64_t size;
	uint32_t host_pid; /* target process; 0: none */
};

/* Header of an answer, with the argument in the same message, followed by `data_size` bytes. */
struct reader_answer {
	uint64_t cpu_ns;
	uint64_t data_size;
};

/* Send and receive a packet with at most two descriptors. Return the bytes or -errno. */
enum { PACKET_MAX_FDS = 2 };
struct reader_started {
	int32_t err;
	uint32_t slot; /* slot of budget.h */
};
ssize_t packet_send(int socket, const struct iovec *parts, size_t n, const int *fds, size_t n_fds);
ssize_t packet_receive(int socket, const struct iovec *parts, size_t n, int *ret_fds,
		       size_t *ret_n_fds);

/*
 * Forks the server; returns the agent's end of the socket, or -errno. Each byte sent is answered by
 * a reader_started: socket and pidfd of a new reader process, or -errno. To be called
 * single-threaded. `memory_bytes`: heap limit of a reader process; 0: none.
 */
int fork_server_start(uint64_t memory_bytes, pid_t *ret_pid);

#endif
