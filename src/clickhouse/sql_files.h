/* SPDX-License-Identifier: Apache-2.0 */
/* The files under sql/, carried inside the program (the build makes the table with sql/embed.sh).
 */
#ifndef UNDERSPAN_SQL_FILES_H
#define UNDERSPAN_SQL_FILES_H

#include <stddef.h>
#include <stdint.h>

struct sql_file {
	const char *path; /* below sql/, e.g. "tables/ebpf_handoff.sql" */
	const char *text; /* NUL-terminated */
	uint64_t len;
};

/* Sorted by path; ends with an entry whose path is NULL. */
extern const struct sql_file sql_files[];

#endif
