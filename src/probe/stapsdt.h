/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static probes (USDT): where the notes of section .note.stapsdt say that an event can be probed,
 * and where its first argument is then.
 */
#ifndef UNDERSPAN_PROBE_STAPSDT_H
#define UNDERSPAN_PROBE_STAPSDT_H

#include "probe/elf_file.h"
#include "probe/python.h"

/*
 * Collects the sites of `provider`:`name` into `ret` (`max` of them). Returns how many there are,
 * which may be more than `max`; 0 when there are none. A site that does not lie in the file, or
 * whose semaphore does not, makes the answer 0: half of the sites would be half of the truth.
 */
size_t stapsdt_find(const struct elf_file *elf, const char *provider, const char *name,
		    struct probe_site *ret, size_t max);

/*
 * The first argument of a note's argument text, such as `-4@-228(%rbp)`, `-8@%rax`, `-4@$2`, on
 * arm64 `-4@[sp, 16]` or `-8@x0`. False for forms and sizes that a probe cannot read.
 */
bool stapsdt_parse_argument(uint16_t machine, const char *text, struct arg_spec *ret);

#endif
