/* SPDX-License-Identifier: Apache-2.0 */
/* Files of sql/, embedded in the program (sql/embed.sh generates the table). */
#ifndef UNDERSPAN_CLICKHOUSE_SQL_FILES_H
#define UNDERSPAN_CLICKHOUSE_SQL_FILES_H

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
