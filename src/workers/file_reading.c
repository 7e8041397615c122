// SPDX-License-Identifier: Apache-2.0
/* Reads an open file. See file_reading.h. */
#include "workers/file_reading.h"

void reading_begin(struct reading *reading, const struct read_extra *extra)
{
	if (extra->fd >= 0)
		snprintf(reading->path, sizeof(reading->path), "/proc/self/fd/%d", extra->fd);
}

int file_read(const struct readable_file *file, read_function run, struct reading *reading,
	      size_t size, struct why *why)
{
	struct read_extra extra = { .fd = file->fd };
	int err;

	snprintf(reading->path, sizeof(reading->path), "%s", file->path);
	err = reader_process_run(run, reading, size, &extra);
	if (extra.fd >= 0 && extra.fd != file->fd)
		close(extra.fd);
	if (err)
		return why_fail(
			why, -err,
			"the file cannot be read: stalled, or over the limit of memory or time");
	if (reading->err && why)
		*why = reading->why;
	return reading->err;
}
