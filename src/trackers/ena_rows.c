// SPDX-License-Identifier: Apache-2.0
/* Rows from readings of an interface's counters. See ena_rows.h. */
#include "trackers/ena_rows.h"

#include <string.h>

#include "rows/enrich.h"

const char *const ena_source_names[ENA_N_SOURCES] = { "ioctl", "fexit" };

#define ROW(kind, member, name, type) COLUMN(kind, struct ena_row, member, name, type)
#define LOW_STRING		      "LowCardinality(String)"
#define NULLABLE(array, counter, suffix)                                                           \
	ROW(COLUMN_MAYBE_U64, array[ENA_##counter], #counter suffix, "Nullable(UInt64)")
#define COUNTER(counter) NULLABLE(delta, counter, ""), NULLABLE(total, counter, "_total")
const struct column ena_columns[ENA_N_COLUMNS] = {
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
	COLUMN_NAMED(struct ena_row, source, "source", ena_source_names),
	ROW(COLUMN_CHARS, common.comm, "asked_by", LOW_STRING),
};

static struct ena_interface *interfaces;

struct ena_interface *ena_interfaces(void)
{
	return interfaces;
}

struct ena_interface *ena_interface_find(uint32_t ifindex)
{
	struct ena_interface *interface;

	HASH_FIND(hh, interfaces, &ifindex, sizeof(ifindex), interface);
	return interface;
}

struct ena_interface *ena_interface_add(uint32_t ifindex, const char *driver)
{
	struct ena_interface *interface = calloc(1, sizeof(*interface));

	if (!interface)
		return NULL;
	interface->ifindex = ifindex;
	snprintf(interface->driver, sizeof(interface->driver), "%s", driver);
	HASH_ADD(hh, interfaces, ifindex, sizeof(interface->ifindex), interface);
	return interface;
}

void ena_interface_forget(struct ena_interface *interface)
{
	HASH_DEL(interfaces, interface);
	free(interface);
}

/* ---- rows ---- */

static void fill_row(struct ena_row *row, struct ena_interface *interface,
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

void ena_add_reading(const struct tracker_output *output, struct ena_interface *interface,
		     const struct ena_reading *now)
{
	struct ena_row row = { .common.host = enrich_host(),
			       .event.ifindex = interface->ifindex,
			       .source = ENA_SOURCE_IOCTL };

	fill_row(&row, interface, now);
	output->add(output, &(struct tracker_row){ .row = &row, .size = sizeof(row) });
}

void ena_complete(void *data, struct row_context *context)
{
	struct ena_row *row = data;
	const struct ena_event *event = &row->event;
	struct ena_reading now = { .ns = event->header.end_ns, .known = event->known };
	struct ena_interface *interface = ena_interface_find(event->ifindex);

	(void)context;
	row->source = ENA_SOURCE_FEXIT;
	memcpy(now.value, event->value, sizeof(now.value));
	if (interface)
		fill_row(row, interface, &now);
}
