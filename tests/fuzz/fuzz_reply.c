// SPDX-License-Identifier: Apache-2.0
/* A server's answer to an INSERT, from the first byte on: a thread sends the input and disconnects.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include "clickhouse/client.h"
#include "pipeline/sink/retry.h"

/* The previous input's connection may still be served. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t answer[1 << 16];
static size_t answer_len;
static int listener = -1;

static void *serve(void *unused)
{
	(void)unused;
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		static uint8_t copy[sizeof(answer)];
		char request[8192];
		size_t len;

		/* the request is small: a single read is enough */
		if (fd < 0 || read(fd, request, sizeof(request)) <= 0) {
			close(fd);
			continue;
		}
		pthread_mutex_lock(&lock);
		len = answer_len;
		memcpy(copy, answer, len);
		pthread_mutex_unlock(&lock);
		if (send(fd, copy, len, MSG_NOSIGNAL) >= 0) {
			shutdown(fd, SHUT_WR);
			while (read(fd, request, sizeof(request)) > 0)
				;
		}
		close(fd);
	}
	return NULL;
}

static void start(char url[64])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	pthread_t thread;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	MUST(!bind(listener, (struct sockaddr *)&address, len) && !listen(listener, 16));
	MUST(!getsockname(listener, (struct sockaddr *)&address, &len));
	MUST(!pthread_create(&thread, NULL, serve, NULL));
	snprintf(url, 64, "http://127.0.0.1:%d", ntohs(address.sin_port));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct clickhouse_client *client;
	static char url[64];
	const struct clickhouse_param params[] = { { "insert_deduplication_token", "t" }, { 0 } };
	const struct clickhouse_body body = { "x", 1, false };
	struct clickhouse_reply reply;
	struct why why = { { 0 } };
	int err;

	if (!client) {
		struct clickhouse_endpoint e = { .url = url, .timeout_ns = 5 * NSEC_PER_SEC };

		start(url);
		MUST(!clickhouse_client_new(&e, &client, &why));
	}
	pthread_mutex_lock(&lock);
	answer_len = size < sizeof(answer) ? size : sizeof(answer);
	memcpy(answer, data, answer_len);
	pthread_mutex_unlock(&lock);
	err = clickhouse_insert(client, "INSERT INTO t (a) FORMAT JSONEachRow", params, &body,
				&reply, &why);
	MUST(memchr(reply.message, '\0', sizeof(reply.message)));
	MUST(reply.retry_after_ns <= 1000000 * NSEC_PER_SEC);
	/* rows are dropped only after an explicit success */
	if (!err) {
		MUST(reply.http_status == 200 && !reply.exception_code && reply.from_clickhouse);
	} else {
		MUST(why.text[0]);
		MUST(retry_verdict(err, &reply) != SEND_OK);
	}
	return 0;
}
