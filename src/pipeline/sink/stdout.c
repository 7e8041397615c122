// SPDX-License-Identifier: Apache-2.0
/*
 * Rows as JSON lines on stdout, for people, pipes and tests. A reader that stops reading does not
 * delay the agent's end.
 */
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "pipeline/sink/sink.h"

struct stdout_sink {
	struct sink sink;
	int cancel_fd;
};

/* Size that fits after POLLOUT; complete lines if possible. */
static size_t next_piece(const char *bytes, size_t len)
{
	const char *end;

	if (len <= PIPE_BUF)
		return len;
	end = memrchr(bytes, '\n', PIPE_BUF);
	return end ? (size_t)(end + 1 - bytes) : PIPE_BUF;
}

/* 0: writable; otherwise stop. A blocking write() could not be cancelled. */
static int wait_for_room(const struct stdout_sink *s, struct why *why)
{
	struct pollfd fds[] = { { .fd = STDOUT_FILENO, .events = POLLOUT },
				{ .fd = s->cancel_fd, .events = POLLIN } };

	while (poll(fds, ARRAY_SIZE(fds), -1) < 0) {
		if (errno != EINTR)
			return why_fail(why, errno, "cannot wait for stdout: %s", strerror(errno));
	}
	return fds[1].revents ? why_fail(why, ECANCELED, "stdout is not read") : 0;
}

static uint64_t count_lines(const char *bytes, size_t len)
{
	const char *at = bytes, *end = bytes + len;
	uint64_t n = 0;

	while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
		at++;
		n++;
	}
	return n;
}

static enum send_result stdout_send(struct sink *base, const struct batch *batch,
				    struct send_reply *reply)
{
	const struct stdout_sink *s = (const struct stdout_sink *)base;
	const char *bytes = batch->body.data;
	size_t sent = 0;
	int err = 0;

	while (!err && sent < batch->body.len) {
		ssize_t n;

		err = wait_for_room(s, &reply->why);
		if (err)
			break;
		n = write(STDOUT_FILENO, bytes + sent,
			  next_piece(bytes + sent, batch->body.len - sent));
		if (n >= 0)
			sent += (size_t)n;
		else if (errno != EINTR && errno != EAGAIN)
			err = why_fail(&reply->why, errno, "cannot write to stdout: %s",
				       strerror(errno));
	}
	if (!err)
		return SEND_OK;
	reply->rows_taken = count_lines(bytes, sent);
	return err == -ECANCELED ? SEND_CANCELLED : SEND_BROKEN;
}

static void stdout_cancel(struct sink *base)
{
	eventfd_write(((struct stdout_sink *)base)->cancel_fd, 1);
}

static void stdout_free(struct sink *base)
{
	close(((struct stdout_sink *)base)->cancel_fd);
	free(base);
}

struct sink *sink_stdout_new(void)
{
	struct stdout_sink *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->sink = (struct sink){
		.name = "stdout",
		.rows_name_their_table = true,
		.send = stdout_send,
		.cancel = stdout_cancel,
		.free = stdout_free,
	};
	s->cancel_fd = eventfd(0, EFD_CLOEXEC);
	if (s->cancel_fd >= 0)
		return &s->sink;
	free(s);
	return NULL;
}
