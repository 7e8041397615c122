// SPDX-License-Identifier: Apache-2.0
/* The same rows as JSON lines on stdout, for people, pipes and tests. */
#include <string.h>

#include "pipeline/sink.h"

static enum send_result stdout_send(struct sink *sink, const struct batch *batch,
				    struct send_reply *reply)
{
	(void)sink;
	for (size_t sent = 0; sent < batch->body.len;) {
		ssize_t n = write(STDOUT_FILENO, batch->body.data + sent, batch->body.len - sent);

		if (n > 0) {
			sent += (size_t)n;
		} else if (n < 0 && errno != EINTR) {
			why_fail(&reply->why, errno, "cannot write to stdout: %s", strerror(errno));
			return SEND_BROKEN;
		}
	}
	return SEND_OK;
}

static void stdout_free(struct sink *sink)
{
	free(sink);
}

struct sink *sink_stdout_new(void)
{
	struct sink *sink = calloc(1, sizeof(*sink));

	if (sink)
		*sink = (struct sink){
			.name = "stdout",
			.rows_name_their_table = true,
			.send = stdout_send,
			.free = stdout_free,
		};
	return sink;
}
