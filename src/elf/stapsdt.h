/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static probes (USDT): probe sites and the location of the first argument, from section
 * .note.stapsdt.
 */
#ifndef UNDERSPAN_ELF_STAPSDT_H
#define UNDERSPAN_ELF_STAPSDT_H

#include "elf/elf_file.h"
#include "elf/probe_site.h"

/*
 * Collects up to `max` sites of `provider`:`name` into `ret`. Returns the total, possibly more than
 * `max`; 0: none. A site or semaphore outside the file makes the result 0: an incomplete set of
 * sites would lose events.
 */
size_t stapsdt_find(const struct elf_file *elf, const char *provider, const char *name,
		    struct probe_site *ret, size_t max);

/*
 * Parses the first argument of a note, such as `-4@-228(%rbp)`, `-8@%rax`, `-4@$2`, on
 * arm64 `-4@[sp, 16]` or `-8@x0`. False: form or size that a probe cannot read.
 */
bool stapsdt_parse_argument(uint16_t machine, const char *text, struct arg_spec *ret);

#endif
