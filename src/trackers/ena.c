// SPDX-License-Identifier: Apache-2.0
/*
 * ena: which allowance of the EC2 instance was exceeded, on which interface, when. Drivers are read
 * from tick(); readings by other processes in between (bpf/ena.bpf.c, if the kernel allows fexit)
 * divide the interval further. Each reading is a row, even without an exceeded allowance: a
 * compressed row is small, and "not exceeded" is distinguished from "not measured" by a plain join
 * on time.
 */
#include "events/ena.h"

#include <bpf/bpf.h>
#include <net/if.h>
#include <string.h>
#include <sys/stat.h>

#include "ena.skel.h"
#include "base/log.h"
#include "base/clock.h"
#include "host/ethtool.h"
#include "trackers/ena_rows.h"
#include "trackers/tracker.h"

static uint64_t interval_ns = NSEC_PER_SEC;
static struct string_list driver_choice, counter_choice;

static const struct option options[] = {
	{ .key = "ena.interval",
	  .type = OPTION_SECONDS,
	  .target = &interval_ns,
	  .arg = "S",
	  .help = "how often the interfaces' allowance counters are read",
	  .min = 1,
	  .max = 3600 },
	{ .key = "ena.driver",
	  .type = OPTION_LIST,
	  .target = &driver_choice,
	  .arg = "NAME",
	  .help = "watch the interfaces of these drivers; queries by other programs are "
		  "observed for the first driver only",
	  .otherwise = "ena" },
	{ .key = "ena.counters",
	  .type = OPTION_LIST,
	  .target = &counter_choice,
	  .arg = "COLUMN=NAME",
	  .help = "fill a column of ebpf_ena from another statistic of the driver" },
};

static struct ena_bpf *skeleton; /* NULL: no fexit on the driver */
static struct why no_fexit;	 /* why */
static bool host_reported;
static uint64_t next_reading_ns;
static struct ethtool_reader *reader;
static char *default_driver[] = { "ena" };

static const struct string_list *wanted_drivers(void)
{
	static const struct string_list only_ena = { default_driver, 1 };

	return driver_choice.n ? &driver_choice : &only_ena;
}

static bool is_wanted(const char *driver)
{
	for (size_t i = 0; i < wanted_drivers()->n; i++) {
		if (!strcmp(wanted_drivers()->items[i], driver))
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
		why_fail(why, errno, "cannot open the BPF object: %s", strerror(errno));
		return NULL;
	}
	if (stat("/proc/self/ns/net", &netns) == 0)
		opened->rodata->own_netns = (uint32_t)netns.st_ino;
	opened->rodata->agent_tgid = (uint32_t)getpid();
	snprintf(function, sizeof(function), "%s_get_ethtool_stats", wanted_drivers()->items[0]);
	bpf_program__set_autoload(opened->progs.ena_reported, true);
	err = bpf_program__set_attach_target(opened->progs.ena_reported, 0, function);
	if (!err)
		return opened;
	why_fail(why, -err, "the kernel's type information knows no function %s", function);
	/* libbpf frees the kernel's BTF (6 MB) only at the end of loading */
	bpf_program__set_autoload(opened->progs.ena_reported, false);
	ena_bpf__load(opened);
	ena_bpf__destroy(opened);
	return NULL;
}

/* Kernels may refuse the program at load or at attach: tries both. */
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
			 wanted_drivers()->items[0], strerror(-err));
	ena_bpf__destroy(trial);
	return !err;
}

static int ena_check_options(struct why *why)
{
	return ena_counters_choose(&counter_choice, why);
}

static int ena_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton, struct why *why)
{
	(void)only_chosen; /* interfaces are not per process */
	reader = ethtool_open(why);
	if (!reader)
		return -EIO;
	if (fexit_works(&no_fexit))
		skeleton = open_skeleton(&no_fexit);
	*ret_skeleton = skeleton ? skeleton->skeleton : NULL;
	return 0;
}

static void drop_interface(struct ena_interface *interface)
{
	if (skeleton)
		bpf_map_delete_elem(bpf_map__fd(skeleton->maps.ena_interfaces),
				    &interface->ifindex);
	ena_interface_forget(interface);
}

static void ena_close(void)
{
	struct ena_interface *interface, *next;

	HASH_ITER(hh, ena_interfaces(), interface, next)
	{
		drop_interface(interface);
	}
	ena_bpf__destroy(skeleton);
	skeleton = NULL;
	ethtool_close(reader);
	reader = NULL;
}

/* ---- readings ---- */

static void report_health(const struct tracker_output *output,
			  const struct ena_interface *interface, const char *reason)
{
	const struct tracker_health health = {
		.live = !reason,
		.method = reason ? "" : ena_source_names[ENA_SOURCE_IOCTL],
		.what = interface->name,
		.reason = reason ? reason : ""
	};

	output->health(output, &health);
}

/* False: the interface is gone. */
static bool read_interface(const struct tracker_output *output, struct ena_interface *interface)
{
	struct ethtool_stats_view view;
	struct ena_reading now = { 0 };
	struct ena_indices indices;
	struct why why;
	int err = ethtool_read(reader, interface->name, &view, &why);

	if (err == -ENODEV)
		return false;
	if (err) {
		if (!interface->unreadable.active)
			report_health(output, interface, why.text);
		log_ratelimited(&interface->unreadable, "ena: %s", why.text);
		return true;
	}
	if (interface->unreadable.active || !interface->last.ns)
		report_health(output, interface, NULL);
	log_ratelimited_end(&interface->unreadable, "ena: %s: read again", interface->name);
	now.ns = clock_monotonic_ns();
	ena_counters_locate(&view, &indices);
	if (skeleton && memcmp(&indices, &interface->indices, sizeof(indices)))
		bpf_map_update_elem(bpf_map__fd(skeleton->maps.ena_interfaces), &interface->ifindex,
				    &indices, BPF_ANY);
	interface->indices = indices;
	ena_counters_pick(&view, &indices, &now);
	ena_add_reading(output, interface, &now);
	return true;
}

/* ---- list of interfaces ---- */

static struct ena_interface *look_up(const struct if_nameindex *found)
{
	struct ena_interface *interface = ena_interface_find(found->if_index);
	char driver[sizeof(interface->driver)];

	if (interface)
		goto out;
	if (ethtool_driver(reader, found->if_name, driver, sizeof(driver)))
		return NULL; /* gone, or unreadable now: retried at the next tick */
	interface = ena_interface_add(found->if_index, driver);
	if (!interface)
		return NULL;
	interface->wanted = is_wanted(driver);
	if (interface->wanted)
		log_info("ena: watching %s (driver %s)", found->if_name, interface->driver);
out:
	/* interfaces can be renamed, the index is stable */
	snprintf(interface->name, sizeof(interface->name), "%s", found->if_name);
	return interface;
}

static void report_host(const struct tracker_output *output, size_t n_wanted)
{
	struct tracker_health fexit = { .live = skeleton != NULL,
					.method = skeleton ? ena_source_names[ENA_SOURCE_FEXIT]
							   : "",
					.what = "",
					.reason = skeleton ? "" : no_fexit.text };
	struct why why;

	if (host_reported)
		return;
	host_reported = true;
	if (!skeleton)
		log_info("ena: driver queries by other programs are not observed: %s; the "
			 "agent's own queries go on",
			 no_fexit.text);
	output->health(output, &fexit);
	if (n_wanted)
		return;
	why_fail(&why, ENODEV, "no interface of driver %s here%s", wanted_drivers()->items[0],
		 wanted_drivers()->n > 1 ? " or the further drivers" : "");
	log_info("ena: %s so far", why.text);
	output->health(output,
		       &(struct tracker_health){ .method = "", .what = "", .reason = why.text });
}

static void forget_absent(const struct tracker_output *output)
{
	struct ena_interface *interface, *next;

	HASH_ITER(hh, ena_interfaces(), interface, next)
	{
		if (interface->present) {
			interface->present = false;
			continue;
		}
		if (interface->wanted) {
			log_info("ena: %s is gone", interface->name);
			report_health(output, interface, "the interface is gone");
		}
		drop_interface(interface);
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
		return; /* out of memory or descriptors: retried at the next tick */
	for (const struct if_nameindex *i = found; i->if_index; i++) {
		struct ena_interface *interface = look_up(i);

		if (!interface)
			continue;
		interface->present = !interface->wanted || read_interface(output, interface);
		n_wanted += interface->wanted;
	}
	if_freenameindex(found);
	forget_absent(output);
	report_host(output, n_wanted);
}

const struct tracker ena_tracker = {
	.name = "ena",
	.table = { .name = "ebpf_ena", .columns = { ena_columns }, .n_columns = { ENA_N_COLUMNS } },
	TRACKER_ROW(struct ena_row),
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
