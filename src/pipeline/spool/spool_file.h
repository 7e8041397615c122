/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Format of a spool file: header, strings, body exactly as sent. The name has the data needed
 * before opening:
 * `<order>[-<part>].<rows>.<table>`.
 */
#ifndef UNDERSPAN_PIPELINE_SPOOL_SPOOL_FILE_H
#define UNDERSPAN_PIPELINE_SPOOL_SPOOL_FILE_H

#include "pipeline/batch.h"

enum { SPOOL_NAME_MAX = 176, SPOOL_VERSION = 1 };

struct spool_name {
	uint64_t order, rows;
	char part[BATCH_PART_MAX + 1];
	char table[BATCH_TABLE_MAX];
};

/* False: not a batch's name. */
bool spool_name_parse(const char *text, struct spool_name *ret_name);
void spool_name_print(const struct batch *batch, const char *table, char ret[SPOOL_NAME_MAX]);

/* Header and strings of a sealed batch. 0 or -ENOMEM. */
int spool_file_header(const struct batch *batch, const char *table, struct buffer *ret_header);

/*
 * Decodes a complete file into the batch. Contents must agree with `name`. -EBADMSG with why: torn,
 * corrupt or another version; -ENOMEM.
 */
int spool_file_decode(const struct buffer *file, const struct spool_name *name, struct batch *batch,
		      struct why *why);

#endif
