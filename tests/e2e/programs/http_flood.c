// SPDX-License-Identifier: Apache-2.0
/*
 * http_flood PORT CONNECTIONS REQUESTS [SECONDS]: kept-alive connections, each with the given
 * number of sequential requests for distinct paths; no new ones after SECONDS. A connection closed
 * by the server is opened again. Prints the number of answers, the sum of nanoseconds from before
 * the send to after the answer, the longest, and the seconds in all.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, ANSWER_MAX = 8192 };

struct connection {
	long left;
	uint64_t begin_ns;
	size_t len;
	char answer[ANSWER_MAX];
};

static struct connection connections[CONNECTIONS_MAX];
static struct pollfd fds[CONNECTIONS_MAX];
static struct sockaddr_in address = { .sin_family = AF_INET };
static uint64_t answers, sum_ns, longest_ns, until_ns = UINT64_MAX;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void open_connection(long i)
{
	int one = 1;

	if (fds[i].fd > 0)
		close(fds[i].fd);
	fds[i].fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fds[i].fd < 0 || connect(fds[i].fd, (struct sockaddr *)&address, sizeof(address)))
		fail("connect");
	setsockopt(fds[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fds[i].events = POLLIN;
}

static void ask(long i)
{
	struct connection *c = &connections[i];
	char request[128];
	int n = snprintf(request, sizeof(request), "GET /%ld-%ld HTTP/1.1\r\nHost: x\r\n\r\n", i,
			 c->left);

	c->len = 0;
	c->begin_ns = now_ns();
	if (send(fds[i].fd, request, (size_t)n, MSG_NOSIGNAL) != n)
		fail("send");
}

/* Is the answer complete, by Content-Length? */
static int answered(struct connection *c)
{
	char *body, *length;

	c->answer[c->len] = '\0';
	body = strstr(c->answer, "\r\n\r\n");
	length = body ? strcasestr(c->answer, "\r\ncontent-length:") : NULL;
	return length && (size_t)(body + 4 - c->answer) + strtoul(length + 17, NULL, 10) == c->len;
}

static void take(long i)
{
	struct connection *c = &connections[i];
	ssize_t n = recv(fds[i].fd, c->answer + c->len, ANSWER_MAX - 1 - c->len, 0);
	int closes;
	uint64_t ns;

	if (n <= 0)
		fail("recv");
	c->len += (size_t)n;
	if (!answered(c))
		return;
	ns = now_ns() - c->begin_ns;
	answers++;
	sum_ns += ns;
	if (ns > longest_ns)
		longest_ns = ns;
	closes = strcasestr(c->answer, "\r\nconnection: close") != NULL;
	if (!--c->left || now_ns() > until_ns) {
		close(fds[i].fd);
		fds[i].fd = -1;
		return;
	}
	if (closes)
		open_connection(i);
	ask(i);
}

int main(int argc, char **argv)
{
	long n = argc > 2 ? atol(argv[2]) : 0, open = n;
	uint64_t begin = now_ns();

	if (argc < 4 || argc > 5 || n < 1 || n > CONNECTIONS_MAX)
		return 2;
	if (argc == 5)
		until_ns = begin + strtoull(argv[4], NULL, 10) * 1000000000U;
	address.sin_port = htons((uint16_t)atoi(argv[1]));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (long i = 0; i < n; i++) {
		connections[i].left = atol(argv[3]);
		open_connection(i);
		ask(i);
	}
	while (open) {
		if (poll(fds, (nfds_t)n, 60000) <= 0)
			fail("poll");
		for (long i = open = 0; i < n; i++) {
			if (fds[i].fd >= 0 && fds[i].revents)
				take(i);
			open += fds[i].fd >= 0;
		}
	}
	printf("{\"answers\": %llu, \"sum_ns\": %llu, \"longest_ns\": %llu, \"seconds\": %.3f}\n",
	       (unsigned long long)answers, (unsigned long long)sum_ns,
	       (unsigned long long)longest_ns, (double)(now_ns() - begin) / 1e9);
	return 0;
}
