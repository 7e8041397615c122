/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function ranges from .eh_frame_hdr and .eh_frame, which survive strip because unwinding needs
 * them: one entry for every function, and one for every part that the compiler moved elsewhere.
 */
#ifndef UNDERSPAN_PROBE_EH_FRAME_H
#define UNDERSPAN_PROBE_EH_FRAME_H

#include "probe/elf_file.h"
#include "probe/functions.h"

/*
 * Appends all ranges to `ret` (unsorted). Needs elf_load_readonly(). -ENOENT when the file has
 * no unwind table, -EINVAL when it is unsound or of a kind that no linker writes.
 */
int eh_frame_functions(const struct elf_file *elf, struct functions *ret, struct why *why);

#endif
