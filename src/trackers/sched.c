// SPDX-License-Identifier: Apache-2.0
/* The object shared by gil_wait, off_cpu and request. See sched.h. */
#include "trackers/sched.h"

#include <bpf/bpf.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "host/kernel.h"
#include "trackers/sched_return.h"

enum { LOOKED_AT_ONCE = 8192 }; /* some 5 ms */

static struct sched_bpf *skeleton;
static int users, users_out;

int sched_open(struct sched_bpf **ret_skeleton, struct why *why)
{
	bool storage;

	if (skeleton && bpf_program__fd(skeleton->progs.sched_exit) >= 0)
		return why_fail(why, EBUSY,
				"the shared BPF object is already loaded without the tracker");
	if (!skeleton) {
		skeleton = sched_bpf__open();
		if (!skeleton)
			return why_fail(why, errno, "cannot open: %s", strerror(errno));
		storage = kernel_has("task_storage");
		skeleton->rodata->has_task_storage = storage;
		bpf_map__set_autocreate(skeleton->maps.sched_thread_storage, storage);
		bpf_map__set_autocreate(skeleton->maps.sched_thread_hash, !storage);
		sched_return_open(skeleton);
		bpf_program__set_autoload(skeleton->progs.sched_forget, true);
		bpf_program__set_autoattach(skeleton->progs.sched_forget, false);
		skeleton->rodata->gil_wait_runs = false;
		skeleton->rodata->gil_callsite_runs = false;
		bpf_map__set_max_entries(skeleton->maps.gil_calls, 1);
		bpf_map__set_max_entries(skeleton->maps.gil_takes, 1);
		bpf_map__set_max_entries(skeleton->maps.gil_takers, 1);
		bpf_map__set_max_entries(skeleton->maps.gil_turns, 1);
		skeleton->rodata->off_cpu_runs = false;
		skeleton->rodata->request_runs = false;
	}
	users++;
	users_out = 0;
	*ret_skeleton = skeleton;
	return 0;
}

void sched_watch_switches(void)
{
	bpf_program__set_autoload(skeleton->progs.sched_switch, true);
	bpf_program__set_autoload(skeleton->progs.sched_waking, true);
}

void sched_close(void)
{
	if (!users || --users)
		return;
	sched_return_close();
	sched_bpf__destroy(skeleton);
	skeleton = NULL;
}

int sched_run_on_threads(const struct bpf_program *program)
{
	struct bpf_link *link = bpf_program__attach_iter(program, NULL);
	int fd = link ? bpf_iter_create(bpf_link__fd(link)) : -errno;
	char nothing[64];
	ssize_t n = fd;

	while (fd >= 0 && ((n = read(fd, nothing, sizeof(nothing))) > 0 || errno == EAGAIN))
		errno = 0;
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	return n < 0 ? -errno : 0;
}

/* ---- taken out ---- */

void sched_take_out(bool *out)
{
	*out = true;
	if (++users_out == users)
		skeleton->bss->sched_out = true;
}

void sched_put_back(bool *out)
{
	bool request = out == &skeleton->bss->request_out;

	users_out--;
	if ((request || skeleton->bss->sched_out) &&
	    sched_run_on_threads(skeleton->progs.sched_forget))
		log_warn("sched: threads' open intervals are not dropped: %s", strerror(errno));
	skeleton->bss->sched_out = false;
	*out = false;
}

void sched_gc_pause_out(bool out)
{
	if (!skeleton)
		return;
	skeleton->bss->gc_pause_out = out;
	if (!out)
		skeleton->bss->gc_pause_since_ns = clock_monotonic_ns();
}

/* ---- sums ---- */

static void take_entry(const struct sched_sums *sums, const struct tracker_output *output, int fd,
		       const void *key, void *value)
{
	if (bpf_map_lookup_elem(fd, key, value) == 0)
		sums->each(output, sums, key, value);
	bpf_map_delete_elem(fd, key);
}

static bool first_key(const struct sched_sums *sums, int fd, bool all, char *ret)
{
	if (!all && sums->has_looked && bpf_map_get_next_key(fd, sums->looked, ret) == 0)
		return true;
	return bpf_map_get_next_key(fd, NULL, ret) == 0;
}

/*
 * All entries of a side; or of the next so many those that `is_complete` names, as maps may hold a
 * million.
 */
static void take(struct sched_sums *sums, uint32_t side, const struct tracker_output *output,
		 bool all)
{
	struct bpf_map *map = sums->maps[side];
	AUTO_FREE void *value = malloc(bpf_map__value_size(map));
	char key[SCHED_KEY_MAX], next[SCHED_KEY_MAX];
	int fd = bpf_map__fd(map);
	bool more = value && first_key(sums, fd, all, next);

	for (size_t n = 0; more && (all || n < LOOKED_AT_ONCE); n++) {
		memcpy(key, next, bpf_map__key_size(map));
		/* next key first: a deleted key has no successor */
		more = bpf_map_get_next_key(fd, key, next) == 0;
		if (all || sums->is_complete(map, key, sums->end_ns))
			take_entry(sums, output, fd, key, value);
	}
	sums->has_looked = more && !all;
	if (sums->has_looked)
		memcpy(sums->looked, key, sizeof(key));
}

static void drain(struct sched_sums *sums, uint32_t side, const struct tracker_output *output)
{
	take(sums, side, output, true);
	if (sums->drained)
		sums->drained(output, sums, side);
}

void sched_sums_tick(struct sched_sums *sums, const struct tracker_output *output, uint64_t now_ns)
{
	uint32_t side = *sums->side & 1;

	if (!sums->since_ns)
		sums->since_ns = now_ns;
	/* switched a second ago: no program still uses the map */
	if (sums->pending)
		drain(sums, !side, output);
	sums->pending = false;
	sums->start_ns = sums->since_ns;
	sums->end_ns = now_ns;
	if (!output->last && sums->is_complete)
		take(sums, side, output, false);
	if (!output->last && now_ns - sums->since_ns < sums->interval_ns)
		return;
	sums->since_ns = now_ns;
	if (output->last) {
		drain(sums, side, output);
		return;
	}
	*sums->side = !side;
	sums->has_looked = false;
	sums->pending = true;
}
