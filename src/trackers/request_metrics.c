// SPDX-License-Identifier: Apache-2.0
/* The request ledger at /metrics. See request_metrics.h. */
#include "trackers/request_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "rows/services.h"

enum {
	GROUPS_MAX = 64, /* services by port; the last entry sums the rest */
	CLASSES = 6,	 /* of status; 0: no answer */
	/* shown buckets of durations, 2^n microseconds; all buckets are counted */
	FIRST_BUCKET = 8,
	LAST_BUCKET = 26,
	LABELS_MAX = SERVICE_LABELS_MAX + 64,
};
static const uint64_t GROUP_KEEP_NS = 900 * NSEC_PER_SEC; /* idle, if there is no room */

/* Of parts, by rows: not below request.min_duration_us. */
static const uint64_t bounds_ns[] = {
	25 * NSEC_PER_MSEC,   50 * NSEC_PER_MSEC,  100 * NSEC_PER_MSEC,
	250 * NSEC_PER_MSEC,  500 * NSEC_PER_MSEC, 1 * NSEC_PER_SEC,
	2500 * NSEC_PER_MSEC, 5 * NSEC_PER_SEC,	   10 * NSEC_PER_SEC,
};
enum { BOUNDS = ARRAY_SIZE(bounds_ns) };

struct exemplar {
	char trace_id[33];
	uint64_t request_id, duration_ns, end_ns; /* end_ns 0: none */
};

struct class_sums {
	uint64_t count, ns, buckets[REQUEST_BUCKETS];
	struct exemplar exemplars[REQUEST_BUCKETS];
};

struct group {
	char labels[LABELS_MAX];
	uint64_t seen_ns;
	uint32_t netns;
	uint16_t port;
	struct class_sums classes[CLASSES];
	uint64_t count, parts[REQUEST_PART_MAX], lacks[REQUEST_LACKS];
	/* Requests with more of a part than a bound: of each side's interval, and of all ended. */
	uint64_t coming[2][REQUEST_PART_MAX][BOUNDS], above[REQUEST_PART_MAX][BOUNDS];
	uint64_t within[REQUEST_PART_MAX][BOUNDS]; /* as shown: never shrinks */
	struct request_live live;
};

static struct group *groups[GROUPS_MAX], *other;
static size_t n_groups;
static const struct sched_sums *sums;
static const char *const *lack_names;
static uint64_t rows_from_ns; /* maximum so far */

static const char *const class_names[CLASSES] = { "none", "1xx", "2xx", "3xx", "4xx", "5xx" };
static const char *const part_names[REQUEST_PART_MAX] = {
#define X(name) [REQUEST_##name] = #name,
	REQUEST_THREAD_PARTS(X) REQUEST_WHOLE_PARTS(X)
#undef X
};

/* Bit of not_measured for a part; 0: always measured. */
static uint16_t lack_of_part(int part)
{
	switch (part) {
	case REQUEST_accept_queue:
		return REQUEST_LACK_accept;
	case REQUEST_client_wait:
	case REQUEST_queue:
		return REQUEST_LACK_arrival;
	case REQUEST_gil:
		return REQUEST_LACK_gil;
	case REQUEST_gc_own:
	case REQUEST_gc_sibling:
		return REQUEST_LACK_gc;
	}
	return 0;
}

/* ---- groups ---- */

void request_metrics_start(const struct sched_sums *of, const char *const names[REQUEST_LACKS])
{
	sums = of;
	lack_names = names;
}

void request_metrics_stop(void)
{
	for (size_t i = 0; i < n_groups; i++)
		free(groups[i]);
	free(other);
	n_groups = 0;
	other = NULL;
	rows_from_ns = 0;
}

void request_metrics_every_from(uint64_t min_ns)
{
	if (min_ns > rows_from_ns)
		rows_from_ns = min_ns;
}

static struct group *new_group(const char *labels)
{
	struct group *group = calloc(1, sizeof(*group));

	if (group)
		snprintf(group->labels, sizeof(group->labels), "%s", labels);
	return group;
}

/* An entry for a group: unused, or of the group idle for longest. NULL: none. */
static struct group **find_place(uint64_t now_ns)
{
	struct group **idle = NULL;

	if (n_groups < GROUPS_MAX)
		return &groups[n_groups++];
	for (size_t i = 0; i < n_groups; i++) {
		if (now_ns - groups[i]->seen_ns > GROUP_KEEP_NS &&
		    (!idle || groups[i]->seen_ns < (*idle)->seen_ns))
			idle = &groups[i];
	}
	if (idle)
		free(*idle);
	return idle;
}

static struct group *find_other(void)
{
	if (!other)
		other = new_group("service=\"other\",port=\"other\"");
	return other;
}

/* NULL: out of memory. */
static struct group *group_of(const char *service, uint16_t port, uint64_t now_ns)
{
	char labels[LABELS_MAX], name[8] = "unix";
	struct group **place;

	if (port)
		snprintf(name, sizeof(name), "%u", port);
	snprintf(labels, sizeof(labels), "%s", service);
	exposition_label(labels, sizeof(labels), "port", name);
	for (size_t i = 0; i < n_groups; i++) {
		if (!strcmp(groups[i]->labels, labels))
			return groups[i];
	}
	place = find_place(now_ns);
	if (!place)
		return find_other();
	*place = new_group(labels);
	if (*place) {
		(*place)->port = port;
		(*place)->seen_ns = now_ns;
		return *place;
	}
	*place = groups[--n_groups];
	return NULL;
}

/* ---- requests ---- */

/* As request_bucket() of bpf/request/profile.bpf.h. */
static size_t bucket_of(uint64_t ns)
{
	uint64_t us = ns / NSEC_PER_USEC;
	size_t bucket = us ? 64 - (size_t)__builtin_clzll(us) : 0;

	return bucket < REQUEST_BUCKETS ? bucket : REQUEST_BUCKETS - 1;
}

void request_metrics_add_row(const struct row_common *common, const struct request_event *event)
{
	const char *service = services_labels(common->host_pid, event->header.cgroup_id,
					      common->comm, common->end_ns);
	struct group *group = group_of(service, event->server_port, common->end_ns);
	uint64_t weight = (uint64_t)llroundf(common->weight);
	struct exemplar *exemplar;
	uint32_t side = *sums->side & 1;

	if (!group)
		return;
	group->seen_ns = common->end_ns;
	group->netns = event->netns;
	exemplar = &group->classes[request_class_of(event->status) % CLASSES]
			    .exemplars[bucket_of(common->duration_ns)];
	*exemplar = (struct exemplar){ .request_id = event->request_id,
				       .duration_ns = common->duration_ns,
				       .end_ns = common->end_ns };
	memcpy(exemplar->trace_id, common->trace_id, sizeof(exemplar->trace_id));
	if (common->end_ns < sums->since_ns)
		side = !side;
	for (int part = 0; part < REQUEST_PART_MAX; part++) {
		if (event->not_measured & lack_of_part(part))
			continue;
		for (size_t b = 0; b < BOUNDS && event->parts[part] > bounds_ns[b]; b++)
			group->coming[side][part][b] += weight;
	}
}

void request_metrics_add_sum(const struct request_profile_key *key,
			     const struct request_profile *profile)
{
	const struct event_header *header = &profile->header;
	const char *service = services_labels(key->host_pid, header->cgroup_id, header->comm,
					      header->end_ns);
	struct group *group = group_of(service, key->server_port, header->end_ns);
	struct class_sums *class = group ? &group->classes[key->status_class % CLASSES] : NULL;

	if (!class)
		return;
	if (header->end_ns > group->seen_ns)
		group->seen_ns = header->end_ns;
	class->count += profile->count;
	class->ns += profile->duration_ns;
	for (int i = 0; i < REQUEST_BUCKETS; i++)
		class->buckets[i] += profile->buckets[i];
	group->count += profile->count;
	for (int i = 0; i < REQUEST_PART_MAX; i++)
		group->parts[i] += profile->parts[i];
	for (int i = 0; i < REQUEST_LACKS; i++)
		group->lacks[i] += profile->lacks[i];
}

/* Requests of which a part was measured. */
static uint64_t measured(const struct group *group, int part)
{
	uint64_t lacking = 0;

	for (int i = 0; i < REQUEST_LACKS; i++) {
		if (lack_of_part(part) & 1U << i)
			lacking = group->lacks[i];
	}
	return group->count - lacking;
}

static void publish(struct group *group, uint32_t side)
{
	for (int part = 0; part < REQUEST_PART_MAX; part++) {
		uint64_t all = measured(group, part);

		for (size_t b = 0; b < BOUNDS; b++) {
			uint64_t *above = &group->above[part][b];
			uint64_t *within = &group->within[part][b];

			*above += group->coming[side][part][b];
			group->coming[side][part][b] = 0;
			if (*above < all && all - *above > *within)
				*within = all - *above;
		}
	}
}

void request_metrics_publish(uint32_t side)
{
	for (size_t i = 0; i < n_groups; i++)
		publish(groups[i], side & 1);
	if (other)
		publish(other, side & 1);
}

/* ---- the page ---- */

static const struct metric_family duration_family = {
	"request_duration_seconds", METRIC_HISTOGRAM, "seconds",
	"requests, from the first byte's arrival to the last byte of the answer; status_class none: "
	"without an answer"
};
static const struct metric_family part_family = {
	"request_part_seconds", METRIC_HISTOGRAM, "seconds",
	"where the time of the requests went; requests without this part's measurement are left out"
};
static const struct metric_family lack_family = {
	"request_not_measured", METRIC_COUNTER, NULL,
	"requests of which a part was not measured, by reason"
};
static const struct metric_family open_family = { "request_open", METRIC_GAUGE, NULL,
						  "requests being served at the moment" };
static const struct metric_family busy_family = {
	"request_busy_threads", METRIC_GAUGE, NULL,
	"threads that have read a request and not answered it; an event loop, or the reader of a "
	"pool, is one thread"
};
static const struct metric_family queue_family = {
	"request_queue_depth", METRIC_GAUGE, NULL,
	"connections that wait at the moment for a thread or loop: in the accept queue, or with a "
	"request that is not read"
};
static const struct metric_family groups_family = {
	"request_services", METRIC_GAUGE, NULL,
	"services by port with series of their own, at most 64; all others are service=\"other\""
};

static void add_label(char *labels, const struct group *group, const char *name, const char *value)
{
	snprintf(labels, LABELS_MAX, "%s", group->labels);
	exposition_label(labels, LABELS_MAX, name, value);
}

static void add_bucket(struct exposition *to, const char *labels, uint64_t le_ns, uint64_t count,
		       const struct exemplar *newest)
{
	struct metric_exemplar exemplar = { 0 };
	char text[128] = "", id[24];

	if (newest) {
		if (newest->trace_id[0])
			exposition_label(text, sizeof(text), "trace_id", newest->trace_id);
		snprintf(id, sizeof(id), "%" PRIu64, newest->request_id);
		exposition_label(text, sizeof(text), "request_id", id);
		exemplar = (struct metric_exemplar){
			.labels = text,
			.value_ns = newest->duration_ns,
			.real_ns = clock_wall_us(newest->end_ns) * NSEC_PER_USEC,
		};
	}
	exposition_bucket(to, labels, le_ns, count, newest ? &exemplar : NULL);
}

static void expose_class(struct exposition *to, const struct group *group, size_t i)
{
	const struct class_sums *class = &group->classes[i];
	const struct exemplar *newest = NULL;
	char labels[LABELS_MAX];
	uint64_t count = 0;

	if (!class->count)
		return;
	add_label(labels, group, "status_class", class_names[i]);
	for (size_t b = 0; b < REQUEST_BUCKETS; b++) {
		const struct exemplar *e = &class->exemplars[b];
		bool last = b == REQUEST_BUCKETS - 1;

		count += class->buckets[b];
		if (e->end_ns && class->buckets[b] && (!newest || e->end_ns > newest->end_ns))
			newest = e;
		if (!last && (b < FIRST_BUCKET || b > LAST_BUCKET))
			continue;
		add_bucket(to, labels, last ? UINT64_MAX : (1ULL << b) * NSEC_PER_USEC, count,
			   newest);
		newest = NULL;
	}
	exposition_sum(to, labels, class->ns, class->count);
}

static void expose_durations(struct exposition *to, const struct group *group)
{
	for (size_t i = 0; i < CLASSES; i++)
		expose_class(to, group, i);
}

static void expose_parts(struct exposition *to, const struct group *group)
{
	char labels[LABELS_MAX];

	for (int part = 0; part < REQUEST_PART_MAX; part++) {
		uint64_t all = measured(group, part);

		if (!all)
			continue;
		add_label(labels, group, "part", part_names[part]);
		for (size_t b = 0; b < BOUNDS; b++) {
			if (bounds_ns[b] >= rows_from_ns)
				exposition_bucket(to, labels, bounds_ns[b], group->within[part][b],
						  NULL);
		}
		exposition_bucket(to, labels, UINT64_MAX, all, NULL);
		exposition_sum(to, labels, group->parts[part], all);
	}
}

static void expose_lacks(struct exposition *to, const struct group *group)
{
	char labels[LABELS_MAX];

	for (int i = 0; i < REQUEST_LACKS; i++) {
		if (!group->lacks[i])
			continue;
		add_label(labels, group, "reason", lack_names[i]);
		exposition_sample(to, labels, METRIC_NUMBER(group->lacks[i]));
	}
}

static void expose_open(struct exposition *to, const struct group *group)
{
	exposition_sample(to, group->labels, METRIC_NUMBER(group->live.open));
}

static void expose_busy(struct exposition *to, const struct group *group)
{
	exposition_sample(to, group->labels, METRIC_NUMBER(group->live.busy));
}

/*
 * Waiting connections are unknown for unix sockets, and have no known service for ports shared by
 * several.
 */
static void expose_queue(struct exposition *to, const struct group *group)
{
	if (group->port)
		exposition_sample(to, group->labels, METRIC_NUMBER(group->live.waiting));
}

static void expose_family(struct exposition *to, const struct metric_family *family,
			  void (*each)(struct exposition *to, const struct group *group))
{
	size_t begin = to->to.len, samples;

	exposition_head(to, family);
	samples = to->to.len;
	for (size_t i = 0; i < n_groups; i++)
		each(to, groups[i]);
	if (other)
		each(to, other);
	if (to->to.len == samples) /* no head without a sample */
		to->to.len = begin;
}

static struct group *group_of_live(const struct request_live *live, uint64_t now_ns)
{
	if (live->host_pid)
		return group_of(services_labels(live->host_pid, 0, "", now_ns), live->port, now_ns);
	for (size_t i = 0; i < n_groups; i++) {
		if (groups[i]->port == live->port && groups[i]->netns == live->netns)
			return groups[i];
	}
	return NULL;
}

/* False: not known. With many connections a look is not free: twice a second at most. */
static bool look_at_live(void)
{
	static uint64_t looked_ns;
	uint64_t now = clock_monotonic_ns();
	AUTO_FREE struct request_live *found = NULL;
	int n;

	if (looked_ns && now - looked_ns < NSEC_PER_SEC / 2)
		return true;
	n = request_live_read(&found);
	if (n < 0)
		return false;
	looked_ns = now;
	for (size_t i = 0; i < n_groups; i++)
		groups[i]->live = (struct request_live){ 0 };
	if (other)
		other->live = (struct request_live){ 0 };
	for (int i = 0; i < n; i++) {
		struct group *group = group_of_live(&found[i], now);

		if (!group)
			continue;
		group->live.open += found[i].open;
		group->live.busy += found[i].busy;
		group->live.waiting += found[i].waiting;
	}
	return true;
}

void request_metrics_expose(struct exposition *to)
{
	bool live = look_at_live();

	expose_family(to, &duration_family, expose_durations);
	expose_family(to, &part_family, expose_parts);
	expose_family(to, &lack_family, expose_lacks);
	if (live) {
		expose_family(to, &open_family, expose_open);
		expose_family(to, &busy_family, expose_busy);
		expose_family(to, &queue_family, expose_queue);
	}
	exposition_head(to, &groups_family);
	exposition_sample(to, "", METRIC_NUMBER(n_groups));
}
