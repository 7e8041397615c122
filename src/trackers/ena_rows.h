/* SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces with their last counters, and rows of ebpf_ena. See ena.c. */
#ifndef UNDERSPAN_TRACKERS_ENA_ROWS_H
#define UNDERSPAN_TRACKERS_ENA_ROWS_H

#include <net/if.h>

#include "base/hash.h"
#include "base/log.h"
#include "trackers/ena_counters.h"
#include "trackers/tracker.h"

enum ena_source { ENA_SOURCE_IOCTL, ENA_SOURCE_FEXIT, ENA_N_SOURCES };
extern const char *const ena_source_names[ENA_N_SOURCES];

struct ena_row {
	struct row_common common;
	struct ena_event event;
	const char *interface, *driver;
	struct column_maybe_u64 delta[ENA_N_COUNTERS], total[ENA_N_COUNTERS];
	uint8_t source, reset;
};

enum { ENA_N_COLUMNS = 20 };
extern const struct column ena_columns[ENA_N_COLUMNS];

struct ena_interface {
	uint32_t ifindex;
	char name[IF_NAMESIZE];
	char driver[ETHTOOL_NAME_LEN + 1];
	bool wanted, present;
	struct ena_indices indices;
	struct ena_reading last;
	struct log_limit unreadable;
	UT_hash_handle hh;
};

/* All interfaces by ifindex, of any driver; head for HASH_ITER. */
struct ena_interface *ena_interfaces(void);
struct ena_interface *ena_interface_find(uint32_t ifindex);		       /* or NULL */
struct ena_interface *ena_interface_add(uint32_t ifindex, const char *driver); /* or NULL */
void ena_interface_forget(struct ena_interface *interface);

/* Adds the row of a reading by the agent. */
void ena_add_reading(const struct tracker_output *output, struct ena_interface *interface,
		     const struct ena_reading *now);

/* tracker.complete: a reading by another process. */
void ena_complete(void *row, struct row_context *context);

#endif
