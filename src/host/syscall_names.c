// SPDX-License-Identifier: Apache-2.0
/* System calls by number. See syscall_names.h; the Makefile generates the list. */
#include "host/syscall_names.h"

#include <asm/unistd.h>

#include "base/util.h"

static const char *const names[] = {
#include "syscall_names.inc"
};

const char *syscall_name(int nr)
{
	if (nr < 0)
		return "";
	return nr < (int)ARRAY_SIZE(names) && names[nr] ? names[nr] : "unknown";
}
