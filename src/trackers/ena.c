// SPDX-License-Identifier: Apache-2.0
/*
 * ena: which allowance of the EC2 instance was exceeded, on which interface, when. The drivers are
 * asked from tick(); what they report to others in between (bpf/ena.bpf.c, where the kernel allows
 * it) divides the interval further. A row for each reading, also when nothing was exceeded:
 * conntrack_allowance_available moves with every connection anyway, a row costs a few bytes once
 * compressed, and "was not exceeded" can be told from "was not looked at" by a plain join on time.
 */
#include "events/ena.h"

#include <bpf/bpf.h>
#include <net/if.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

#include "ena.skel.h"
#include "log.h"
#include "pipeline/enrich.h"
#include "probe/clock.h"
#include "probe/ethtool.h"
#include "trackers/ena_counters.h"
#include "trackers/tracker.h"

enum ena_source { SOURCE_IOCTL, SOURCE_FEXIT };
static const char *const source_names[] = { "ioctl", "fexit" };

struct ena_row {
	struct row_common common;
	struct ena_event event;
	const char *interface, *driver;
	struct column_maybe_u64 delta[ENA_N_COUNTERS], total[ENA_N_COUNTERS];
	uint8_t source, reset;
};

#define ROW(kind, member, name, type) COLUMN(kind, struct ena_row, member, name, type)
#define LOW_STRING		      "LowCardinality(String)"
#define NULLABLE(array, counter, suffix)                                                           \
	ROW(COLUMN_MAYBE_U64, array[ENA_##counter], #counter suffix, "Nullable(UInt64)")
#define COUNTER(counter) NULLABLE(delta, counter, ""), NULLABLE(total, counter, "_total")
static const struct column columns[] = {
	ROW(COLUMN_STRING, common.host, "host", LOW_STRING),
	ROW(COLUMN_STRING, interface, "interface", LOW_STRING),
	ROW(COLUMN_U32, event.ifindex, "ifindex", "UInt32"),
	ROW(COLUMN_STRING, driver, "driver", LOW_STRING),
	ROW(COLUMN_TIME, common.start_ns, "start_time", "DateTime64(6, 'UTC')"),
	ROW(COLUMN_TIME, common.end_ns, "end_time", "DateTime64(6, 'UTC')"),
	COUNTER(bw_in_allowance_exceeded),
	COUNTER(bw_out_allowance_exceeded),
	COUNTER(pps_allowance_exceeded),
	COUNTER(conntrack_allowance_exceeded),
	COUNTER(linklocal_allowance_exceeded),
	NULLABLE(total, conntrack_allowance_available, ""),
	ROW(COLUMN_U8, reset, "reset", "UInt8"),
	COLUMN_NAMED(struct ena_row, source, "source", source_names),
	ROW(COLUMN_CHARS, common.comm, "asked_by", LOW_STRING),
};

static uint64_t interval_ns = NSEC_PER_SEC;
static struct string_list driver_choice, counter_choice;

static const struct option options[] = {
	{ .key = "ena.interval",
	  .type = OPTION_SECONDS,
	  .target = &interval_ns,
	  .arg = "S",
	  .help = "how often the interfaces' allowance counters are read (1)",
	  .min = 1,
	  .max = 3600 },
	{ .key = "ena.driver",
	  .type = OPTION_LIST,
	  .target = &driver_choice,
	  .arg = "NAME",
	  .help = "interfaces of these drivers (default: ena); what others are told is seen for the "
		  "first" },
	{ .key = "ena.counters",
	  .type = OPTION_LIST,
	  .target = &counter_choice,
	  .arg = "COLUMN=NAME",
	  .help = "fill a column of ebpf_ena from another statistic of the driver" },
};

struct interface {
	uint32_t ifindex;
	char name[IF_NAMESIZE];
	char driver[ETHTOOL_NAME_LEN + 1];
	bool wanted, present;
	struct ena_places places;
	struct ena_reading last;
	struct complaint unreadable;
	UT_hash_handle hh;
};

static struct ena_bpf *skeleton; /* NULL: this kernel allows no fexit on the driver */
static struct why no_fexit;	 /* why */
static bool told_about_host;
static uint64_t next_reading_ns;
static struct ethtool_reader *reader;
static struct interface *interfaces; /* by ifindex, also those of other drivers */
static char *default_driver[] = { "ena" };

static const struct string_list *drivers(void)
{
	static const struct string_list only_ena = { default_driver, 1 };

	return driver_choice.n ? &driver_choice : &only_ena;
}

static bool is_wanted(const char *driver)
{
	for (size_t i = 0; i < drivers()->n; i++) {
		if (!strcmp(drivers()->items[i], driver))
			return true;
	}
	return false;
}

/* ---- the BPF side ---- */

static struct ena_bpf *open_skeleton(struct why *why)
{
	struct ena_bpf *opened = ena_bpf__open();
	char function[64];
	struct stat netns;
	int err;

	if (!opened) {
		why_fail(why, errno, "cannot open its object: %s", strerror(errno));
		return NULL;
	}
	if (stat("/proc/self/ns/net", &netns) == 0)
		opened->rodata->own_netns = (uint32_t)netns.st_ino;
	opened->rodata->agent_tgid = (uint32_t)getpid();
	snprintf(function, sizeof(function), "%s_get_ethtool_stats", drivers()->items[0]);
	bpf_program__set_autoload(opened->progs.ena_reported, true);
	err = bpf_program__set_attach_target(opened->progs.ena_reported, 0, function);
	if (!err)
		return opened;
	why_fail(why, -err, "the kernel's type information knows no function %s", function);
	/* libbpf lets go of that information, 6 MB, at the end of loading only */
	bpf_program__set_autoload(opened->progs.ena_reported, false);
	ena_bpf__load(opened);
	ena_bpf__destroy(opened);
	return NULL;
}

/* Some kernels refuse the program when it is loaded, others when it is attached: try both. */
static bool fexit_works(struct why *why)
{
	struct ena_bpf *trial = open_skeleton(why);
	int err;

	if (!trial)
		return false;
	err = ena_bpf__load(trial);
	if (!err)
		err = ena_bpf__attach(trial);
	if (err)
		why_fail(why, -err, "the kernel refuses fexit on %s_get_ethtool_stats: %s",
			 drivers()->items[0], strerror(-err));
	ena_bpf__destroy(trial);
	return !err;
}

static int ena_check_options(struct why *why)
{
	return ena_counters_choose(&counter_choice, why);
}

static int ena_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton, struct why *why)
{
	(void)only_chosen; /* interfaces belong to no process */
	reader = ethtool_open(why);
	if (!reader)
		return -EIO;
	if (fexit_works(&no_fexit))
		skeleton = open_skeleton(&no_fexit);
	*ret_skeleton = skeleton ? skeleton->skeleton : NULL;
	return 0;
}

static void forget(struct interface *interface)
{
	if (skeleton)
		bpf_map_delete_elem(bpf_map__fd(skeleton->maps.ena_interfaces),
				    &interface->ifindex);
	HASH_DEL(interfaces, interface);
	free(interface);
}

static void ena_close(void)
{
	struct interface *interface, *next;

	HASH_ITER(hh, interfaces, interface, next)
	{
		forget(interface);
	}
	ena_bpf__destroy(skeleton);
	skeleton = NULL;
	ethtool_close(reader);
	reader = NULL;
}

/* ---- rows ---- */

static void fill_row(struct ena_row *row, struct interface *interface,
		     const struct ena_reading *now)
{
	struct ena_change change;

	ena_counters_compare(&interface->last, now, &change);
	if (now->ns > interface->last.ns)
		interface->last = *now;
	row->interface = interface->name;
	row->driver = interface->driver;
	row->common.start_ns = change.since_ns;
	row->common.end_ns = now->ns;
	row->reset = change.reset;
	for (size_t i = 0; i < ENA_N_COUNTERS; i++) {
		row->delta[i] = change.delta[i];
		row->total[i] = (struct column_maybe_u64){ .value = now->value[i],
							   .known = now->known >> i & 1 };
	}
}

/* A driver answered somebody else. */
static void ena_complete(void *data)
{
	struct ena_row *row = data;
	const struct ena_event *event = &row->event;
	struct ena_reading now = { .ns = event->header.end_ns, .known = event->known };
	struct interface *interface;

	row->source = SOURCE_FEXIT;
	memcpy(now.value, event->value, sizeof(now.value));
	HASH_FIND(hh, interfaces, &event->ifindex, sizeof(event->ifindex), interface);
	if (interface)
		fill_row(row, interface, &now);
}

static void tell_health(const struct tracker_output *output, const struct interface *interface,
			const char *reason)
{
	const struct tracker_health health = { .live = !reason,
					       .method = reason ? "" : source_names[SOURCE_IOCTL],
					       .what = interface->name,
					       .reason = reason ? reason : "" };

	output->health(output, &health);
}

/* Returns false when the interface is gone. */
static bool read_interface(const struct tracker_output *output, struct interface *interface)
{
	struct ena_row row = { .common.host = enrich_host(),
			       .event.ifindex = interface->ifindex,
			       .source = SOURCE_IOCTL };
	struct ethtool_stats_view view;
	struct ena_reading now = { 0 };
	struct ena_places places;
	struct why why;
	int err = ethtool_read(reader, interface->name, &view, &why);

	if (err == -ENODEV)
		return false;
	if (err) {
		if (!interface->unreadable.active)
			tell_health(output, interface, why.text);
		complain(&interface->unreadable, "ena: %s", why.text);
		return true;
	}
	if (interface->unreadable.active || !interface->last.ns)
		tell_health(output, interface, NULL);
	complain_over(&interface->unreadable, "ena: %s: read again", interface->name);
	now.ns = clock_monotonic_ns();
	ena_counters_locate(&view, &places);
	if (skeleton && memcmp(&places, &interface->places, sizeof(places)))
		bpf_map_update_elem(bpf_map__fd(skeleton->maps.ena_interfaces), &interface->ifindex,
				    &places, BPF_ANY);
	interface->places = places;
	ena_counters_pick(&view, &places, &now);
	fill_row(&row, interface, &now);
	output->add(output, &(struct tracker_row){ .row = &row, .size = sizeof(row) });
	return true;
}

/* ---- which interfaces there are ---- */

static struct interface *look_up(const struct if_nameindex *found)
{
	struct interface *interface;

	HASH_FIND(hh, interfaces, &found->if_index, sizeof(found->if_index), interface);
	if (interface)
		goto out;
	interface = calloc(1, sizeof(*interface));
	if (!interface)
		return NULL;
	interface->ifindex = found->if_index;
	if (ethtool_driver(reader, found->if_name, interface->driver, sizeof(interface->driver))) {
		free(interface); /* gone again, or not to be asked now: the next time */
		return NULL;
	}
	interface->wanted = is_wanted(interface->driver);
	HASH_ADD(hh, interfaces, ifindex, sizeof(interface->ifindex), interface);
	if (interface->wanted)
		log_info("ena: watching %s (driver %s)", found->if_name, interface->driver);
out:
	/* interfaces are renamed, the index stays */
	snprintf(interface->name, sizeof(interface->name), "%s", found->if_name);
	return interface;
}

static void tell_about_host(const struct tracker_output *output, size_t n_wanted)
{
	struct tracker_health fexit = { .live = skeleton != NULL,
					.method = skeleton ? source_names[SOURCE_FEXIT] : "",
					.what = "",
					.reason = skeleton ? "" : no_fexit.text };
	struct why why;

	if (told_about_host)
		return;
	told_about_host = true;
	if (!skeleton)
		log_info("ena: what drivers report to others is not seen: %s; they are asked all "
			 "the same",
			 no_fexit.text);
	output->health(output, &fexit);
	if (n_wanted)
		return;
	why_fail(&why, ENODEV, "no interface of driver %s here%s", drivers()->items[0],
		 drivers()->n > 1 ? " or the others" : "");
	log_info("ena: %s (yet)", why.text);
	output->health(output,
		       &(struct tracker_health){ .method = "", .what = "", .reason = why.text });
}

static void forget_absent(const struct tracker_output *output)
{
	struct interface *interface, *next;

	HASH_ITER(hh, interfaces, interface, next)
	{
		if (interface->present) {
			interface->present = false;
			continue;
		}
		if (interface->wanted) {
			log_info("ena: %s is gone", interface->name);
			tell_health(output, interface, "the interface is gone");
		}
		forget(interface);
	}
}

static void ena_tick(const struct tracker_output *output, uint64_t now_ns)
{
	struct if_nameindex *found;
	size_t n_wanted = 0;

	if (interval_ns > NSEC_PER_SEC && now_ns < next_reading_ns)
		return;
	next_reading_ns = now_ns + interval_ns;
	found = if_nameindex();
	if (!found)
		return; /* out of memory or descriptors: the next time */
	for (const struct if_nameindex *i = found; i->if_index; i++) {
		struct interface *interface = look_up(i);

		if (!interface)
			continue;
		interface->present = !interface->wanted || read_interface(output, interface);
		n_wanted += interface->wanted;
	}
	if_freenameindex(found);
	forget_absent(output);
	tell_about_host(output, n_wanted);
}

const struct tracker ena_tracker = {
	.name = "ena",
	.table = { .name = "ebpf_ena",
		   .columns = { columns },
		   .n_columns = { ARRAY_SIZE(columns) } },
	.event_size = sizeof(struct ena_event),
	.row_size = sizeof(struct ena_row),
	.event_offset = offsetof(struct ena_row, event),
	.ring_bytes = 1 << 16,
	.of_host = true,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = ena_open,
	.close = ena_close,
	.check_options = ena_check_options,
	.tick = ena_tick,
	.complete = ena_complete,
};
