/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function ranges from .eh_frame_hdr and .eh_frame, which strip keeps for unwinding: an entry for
 * each function and for each part moved by the compiler (.cold).
 */
#ifndef UNDERSPAN_ELF_EH_FRAME_H
#define UNDERSPAN_ELF_EH_FRAME_H

#include "elf/elf_file.h"
#include "elf/function_list.h"
#include "base/util.h"

/*
 * Appends all ranges to `ret` (unsorted). Needs elf_load_readonly(). -ENOENT: no unwind table;
 * -EINVAL: invalid, or of a kind that linkers do not write.
 */
int eh_frame_functions(const struct elf_file *elf, struct functions *ret, struct why *why);

#endif
