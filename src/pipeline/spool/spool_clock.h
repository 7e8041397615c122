/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Age of spool files, independent of steps of the wall clock: a host may boot in 1970 and be set
 * right later. File times come from the spool's clock: set to the wall clock at its first use after
 * the boot, then running with CLOCK_BOOTTIME. The file `clock` records its start.
 */
#ifndef UNDERSPAN_PIPELINE_SPOOL_SPOOL_CLOCK_H
#define UNDERSPAN_PIPELINE_SPOOL_SPOOL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { SPOOL_BOOT_ID_MAX = 40 };

struct spool_clock {
	char boot_id[SPOOL_BOOT_ID_MAX];
	int64_t base_ns; /* time of the spool's clock at the boot */
	/* clock of the files found at the start */
	enum { SPOOL_CLOCK_NONE, SPOOL_CLOCK_SAME_BOOT, SPOOL_CLOCK_OTHER_BOOT } found;
	int64_t last_ns; /* OTHER_BOOT: last known time of that clock */
	uint64_t touched_ns;
};

/* Reads the directory's clock file; writes nothing. */
void spool_clock_open(struct spool_clock *clock, int dir);

/* Age in ns of a file with this time; 0: unknown. Time with the host off is unknown and not
 * counted. */
uint64_t spool_clock_age(const struct spool_clock *clock, const struct timespec *mtime);

/* Sets the file's time to `age_ns` ago. `name` NULL: `fd` is the file; otherwise its directory. */
void spool_clock_stamp(const struct spool_clock *clock, int fd, const char *name, uint64_t age_ns);

/* Records this clock for new files: after the scan, and after a new directory was created. */
void spool_clock_write(struct spool_clock *clock, int dir);

/* At most once a minute: records the clock's time for a run after the next boot. */
void spool_clock_touch(struct spool_clock *clock, int dir);

#endif
