/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One batch as one file of the spool: a header, strings, the body exactly as it is sent. Its name
 * has what must be known before it is opened: `<order>[-<part>].<rows>.<table>`.
 */
#ifndef UNDERSPAN_SPOOL_FILE_H
#define UNDERSPAN_SPOOL_FILE_H

#include "pipeline/batch.h"

enum { SPOOL_NAME_MAX = 176, SPOOL_VERSION = 1 };

struct spool_name {
	uint64_t order, rows;
	char part[BATCH_PART_MAX + 1];
	char table[BATCH_TABLE_MAX];
};

/* False if it is no batch's name. */
bool spool_name_parse(const char *text, struct spool_name *ret_name);
void spool_name_print(const struct batch *batch, const char *table, char ret[SPOOL_NAME_MAX]);

/* What stands before the body in the file, for a sealed batch. Returns 0 or -ENOMEM. */
int spool_file_header(const struct batch *batch, const char *table, struct buffer *ret_header);

/*
 * The whole file back into what the batch has in memory. `name` is what its name says, which has
 * to agree. -EBADMSG with why: it is torn, corrupt or of another version; -ENOMEM.
 */
int spool_file_decode(const struct buffer *file, const struct spool_name *name, struct batch *batch,
		      struct why *why);

#endif
