// SPDX-License-Identifier: Apache-2.0
/*
 * Present activity of servers, from the kernel's maps of connections. Offsets of members come from
 * the object's BTF: the structs are private to bpf/request/.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "process/processes.h"
#include "trackers/request_metrics.h"
#include "trackers/take_out.h"

enum { BATCH = 512 };

/* Offsets of members. */
static struct {
	uint32_t worker, header, server_port, netns, closed; /* of struct request_connection */
	uint32_t established, accepted, first_byte, arrival_port, arrival_netns;
} at;
static struct sched_bpf *skeleton;
static bool known;

static bool find_member(const struct btf *btf, const char *type, const char *member, uint32_t *ret)
{
	int id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
	const struct btf_member *members = t ? btf_members(t) : NULL;

	for (uint32_t i = 0; t && i < btf_vlen(t); i++) {
		if (!strcmp(btf__name_by_offset(btf, members[i].name_off), member)) {
			*ret = btf_member_bit_offset(t, i) / 8;
			return true;
		}
	}
	return false;
}

void request_live_start(struct sched_bpf *of)
{
	static const char conn[] = "request_connection", arrival[] = "request_arrival";
	const struct btf *btf = bpf_object__btf(of->obj);

	skeleton = of;
	known = btf && find_member(btf, conn, "worker", &at.worker) &&
		find_member(btf, conn, "header", &at.header) &&
		find_member(btf, conn, "server_port", &at.server_port) &&
		find_member(btf, conn, "netns", &at.netns) &&
		find_member(btf, conn, "closed_ns", &at.closed) &&
		find_member(btf, arrival, "established_ns", &at.established) &&
		find_member(btf, arrival, "accepted_ns", &at.accepted) &&
		find_member(btf, arrival, "first_byte_ns", &at.first_byte) &&
		find_member(btf, arrival, "port", &at.arrival_port) &&
		find_member(btf, arrival, "netns", &at.arrival_netns);
	if (!known)
		log_warn("request: /metrics is without gauges: the object has no BTF of its maps");
}

static bool is_open(const void *connection)
{
	uint64_t worker;

	memcpy(&worker, (const char *)connection + at.worker, sizeof(worker));
	return known && worker;
}

void request_take_out(void)
{
	sched_take_out(&skeleton->bss->request_out);
}

/* The only map with an entry for each index: cleared, not deleted. */
static void forget_heads(void)
{
	static const char none[2048];
	struct bpf_map *map = skeleton->maps.request_head_slots;

	if (bpf_map__value_size(map) > sizeof(none))
		return;
	for (uint32_t i = 0; i < bpf_map__max_entries(map); i++)
		bpf_map_update_elem(bpf_map__fd(map), &i, none, BPF_ANY);
}

/* As at the start of the agent: serving ports are known, and no connection. */
uint64_t request_put_back(void)
{
	struct bpf_map *const maps[] = {
		skeleton->maps.request_arrivals,  skeleton->maps.request_listeners,
		skeleton->maps.request_processes, skeleton->maps.request_released,
		skeleton->maps.request_works,	  skeleton->maps.request_heads,
		skeleton->maps.request_tails,	  skeleton->maps.request_lines
	};
	uint64_t n = map_forget(skeleton->maps.request_connections, is_open);

	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		map_forget(maps[i], NULL);
	forget_heads();
	sched_put_back(&skeleton->bss->request_out);
	return n;
}

/* ---- results ---- */

struct server {
	struct {
		uint32_t host_pid, netns, port;
	} key;
	struct request_live live;
	UT_hash_handle hh;
};

struct worker {
	uint64_t task;
	UT_hash_handle hh;
};

struct look {
	struct server *servers;
	struct worker *workers;
};

static struct request_live *live_of(struct look *look, uint32_t host_pid, uint32_t netns,
				    uint16_t port)
{
	struct server *server, wanted = { .key = { host_pid, netns, port } };

	HASH_FIND(hh, look->servers, &wanted.key, sizeof(wanted.key), server);
	if (server || HASH_COUNT(look->servers) >= REQUEST_LIVE_MAX)
		return server ? &server->live : NULL;
	server = calloc(1, sizeof(*server));
	if (!server)
		return NULL;
	server->key = wanted.key;
	server->live = (struct request_live){ .host_pid = host_pid, .netns = netns, .port = port };
	HASH_ADD(hh, look->servers, key, sizeof(server->key), server);
	return &server->live;
}

/* Whether the thread's first request in this reading. */
static bool is_new_worker(struct look *look, uint64_t task)
{
	struct worker *worker;

	HASH_FIND(hh, look->workers, &task, sizeof(task), worker);
	if (worker)
		return false;
	worker = calloc(1, sizeof(*worker));
	if (!worker)
		return false;
	worker->task = task;
	HASH_ADD(hh, look->workers, task, sizeof(worker->task), worker);
	return true;
}

#define MEMBER(type, value, offset)                                                                \
	({                                                                                         \
		type member_;                                                                      \
		memcpy(&member_, (const char *)(value) + (offset), sizeof(member_));               \
		member_;                                                                           \
	})

/* The server of a connection; NULL if the process has ended. */
static struct request_live *live_of_connection(struct look *look, const void *conn)
{
	uint32_t pid = MEMBER(struct event_header, conn, at.header).host_pid;

	return processes_find(pid) ? live_of(look, pid, MEMBER(uint32_t, conn, at.netns),
					     MEMBER(uint16_t, conn, at.server_port))
				   : NULL;
}

static void look_at_connection(struct look *look, uint64_t key, const void *conn)
{
	struct request_live *live = live_of_connection(look, conn);
	uint64_t worker = MEMBER(uint64_t, conn, at.worker);

	(void)key;
	if (!live || !worker || MEMBER(uint64_t, conn, at.closed))
		return;
	live->open++;
	live->busy += is_new_worker(look, worker);
}

/* Whether the connection is in the accept queue, or has unread bytes. */
static void look_at_arrival(struct look *look, uint64_t key, const void *arrival)
{
	int connections = bpf_map__fd(skeleton->maps.request_connections);
	bool queued = !MEMBER(uint64_t, arrival, at.accepted);
	bool arrived = MEMBER(uint64_t, arrival, at.first_byte) != 0;
	uint16_t port = MEMBER(uint16_t, arrival, at.arrival_port);
	struct request_live *live = NULL;
	_Alignas(8) char conn[bpf_map__value_size(skeleton->maps.request_connections)];

	if (!arrived && !(queued && MEMBER(uint64_t, arrival, at.established)))
		return;
	if (!bpf_map_lookup_elem(connections, &key, conn)) {
		/* a previous read: unread bytes wait, unless part of the open request */
		if (arrived && !MEMBER(uint64_t, conn, at.worker))
			live = live_of_connection(look, conn);
	} else if (port) {
		live = live_of(look, 0, MEMBER(uint32_t, arrival, at.arrival_netns), port);
	}
	if (live)
		live->waiting++;
}

/* ---- maps ---- */

static int for_each(const struct bpf_map *map, struct look *look,
		    void (*each)(struct look *look, uint64_t key, const void *value))
{
	size_t size = bpf_map__value_size(map);
	AUTO_FREE char *values = malloc(BATCH * size);
	uint64_t keys[BATCH], in, out;
	bool first = true;
	int err = values ? 0 : -ENOMEM;

	while (!err) {
		uint32_t n = BATCH;

		err = bpf_map_lookup_batch(bpf_map__fd(map), first ? NULL : &in, &out, keys, values,
					   &n, NULL);
		if (err && err != -ENOENT)
			break;
		for (uint32_t i = 0; i < n; i++)
			each(look, keys[i], values + i * size);
		in = out;
		first = false;
	}
	return err == -ENOENT ? 0 : err;
}

static int take_servers(struct look *look, struct request_live **ret)
{
	struct server *server, *next;
	int n = 0;

	*ret = calloc(HASH_COUNT(look->servers) + 1, sizeof(**ret));
	HASH_ITER(hh, look->servers, server, next)
	{
		if (*ret)
			(*ret)[n++] = server->live;
		HASH_DEL(look->servers, server);
		free(server);
	}
	return *ret ? n : -ENOMEM;
}

static void free_workers(struct look *look)
{
	struct worker *worker, *next;

	HASH_ITER(hh, look->workers, worker, next)
	{
		HASH_DEL(look->workers, worker);
		free(worker);
	}
}

int request_live_read(struct request_live **ret)
{
	struct look look = { 0 };
	int err = known ? 0 : -ENOTSUP, n;

	if (!err)
		err = for_each(skeleton->maps.request_connections, &look, look_at_connection);
	if (!err)
		err = for_each(skeleton->maps.request_arrivals, &look, look_at_arrival);
	n = take_servers(&look, ret);
	free_workers(&look);
	return err ? err : n;
}
