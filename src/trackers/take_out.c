// SPDX-License-Identifier: Apache-2.0
/* Trackers taken out and put back. See take_out.h. */
#include "trackers/take_out.h"

#include <bpf/bpf.h>
#include <string.h>

#include "base/log.h"
#include "host/tracefs.h"

/* Links being closed by a separate thread, by tracker; static, since the thread may outlive the set
 */
static struct closing {
	struct link_list links;
	bool begun;
	atomic_bool done;
} closing[MAX_TRACKERS];

static struct closing *closing_of(const struct running_tracker *running)
{
	return &closing[running - running->set->items];
}

uint64_t map_forget(const struct bpf_map *map, bool (*is_open)(const void *value))
{
	AUTO_FREE void *value = malloc(bpf_map__value_size(map));
	char key[64], next[64];
	int fd = bpf_map__fd(map);
	bool more = value && bpf_map_get_next_key(fd, NULL, next) == 0;
	uint64_t n = 0;

	while (more) {
		memcpy(key, next, bpf_map__key_size(map));
		/* next key first: a deleted key has no successor */
		more = bpf_map_get_next_key(fd, key, next) == 0;
		if (!is_open || (bpf_map_lookup_elem(fd, key, value) == 0 && is_open(value)))
			n++;
		bpf_map_delete_elem(fd, key);
	}
	return n;
}

/* ---- programs ---- */

/* Runs on events caused by load, not on the life of processes, and not on request. */
static bool is_hot(const struct bpf_program *program)
{
	const char *section = bpf_program__section_name(program);

	return bpf_program__autoload(program) && bpf_program__autoattach(program) &&
	       !strstr(section, "sched_process_") && !strstr(section, "iter/") &&
	       !strstr(section, "uprobe") && !strstr(section, "perf_event");
}

static bool all_out(const struct running_tracker *running)
{
	const struct tracker_set *set = running->set;

	for (size_t i = 0; i < set->n; i++) {
		if (set->items[i].skeleton == running->skeleton && !set->items[i].dead &&
		    !set->items[i].out_since_ns)
			return false;
	}
	return true;
}

/* In a shared object, the prefix decides; programs without prefix belong to all trackers. */
static bool is_of(const struct running_tracker *running, const struct bpf_program *program)
{
	const struct tracker_set *set = running->set;
	const char *name = bpf_program__name(program);

	for (size_t i = 0; i < set->n; i++) {
		const char *prefix = set->items[i].tracker->program_prefix;

		if (set->items[i].skeleton == running->skeleton && prefix &&
		    !strncmp(name, prefix, strlen(prefix)))
			return &set->items[i] == running;
	}
	return false;
}

static bool is_wanted(const struct running_tracker *running, const struct bpf_program *program)
{
	return is_hot(program) && (is_of(running, program) || all_out(running));
}

static int attach(struct bpf_program *program, struct bpf_link **ret, struct why *why)
{
	int err = tracefs_attach_program(program, ret, why);

	if (err || *ret)
		return err;
	*ret = bpf_program__attach(program);
	return *ret ? 0
		    : why_fail(why, errno, "the kernel refused to attach %s: %s",
			       bpf_program__name(program), strerror(errno));
}

static void take_links(const struct running_tracker *running, struct link_list *list)
{
	const struct bpf_object_skeleton *skeleton = running->skeleton;

	for (int i = 0; i < skeleton->prog_cnt; i++) {
		struct bpf_link **link = skeleton->progs[i].link;

		if (!*link || !is_wanted(running, *skeleton->progs[i].prog))
			continue;
		link_list_add(list, *link);
		*link = NULL;
	}
}

/* ---- trackers ---- */

bool tracker_may_be_taken_out(const struct running_tracker *running)
{
	return running->skeleton && !running->dead && !running->out_since_ns &&
	       running->tracker->take_out && !closing_of(running)->begun;
}

void tracker_take_out(struct running_tracker *running, uint64_t now_ns)
{
	struct closing *c = closing_of(running);

	running->tracker->take_out();
	running->out_since_ns = now_ns;
	c->begun = true;
	atomic_store(&c->done, false);
	take_links(running, &c->links);
	if (running->tracker->give_links)
		running->tracker->give_links(&c->links);
	links_retire(&(struct link_list *){ &c->links }, 1, &c->done);
}

static bool still_closing(const struct running_tracker *running)
{
	for (size_t i = 0; i < running->set->n; i++) {
		if (closing[i].begun && !atomic_load(&closing[i].done))
			return true;
	}
	return false;
}

int tracker_put_back(struct running_tracker *running, struct why *why)
{
	const struct bpf_object_skeleton *skeleton = running->skeleton;
	struct link_list attached = { 0 };
	int err = 0;

	if (still_closing(running))
		return why_fail(why, EAGAIN, "its programs are still being detached");
	closing_of(running)->begun = false;
	if (running->tracker->put_back)
		running->dropped_open += running->tracker->put_back();
	for (int i = 0; i < skeleton->prog_cnt && !err; i++) {
		if (!*skeleton->progs[i].link && is_wanted(running, *skeleton->progs[i].prog))
			err = attach(*skeleton->progs[i].prog, skeleton->progs[i].link, why);
	}
	if (!err) {
		running->out_since_ns = 0;
		return 0;
	}
	running->tracker->take_out();
	take_links(running, &attached);
	link_list_destroy_together(&attached);
	return err;
}
