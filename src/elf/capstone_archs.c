// SPDX-License-Identifier: Apache-2.0
/*
 * Stand-ins for the architectures of the static library capstone that disasm.c does not use. The
 * library's cs.c has a table of all architectures; with a stand-in, the linker leaves the real one
 * out: 5 MB of the program, and 60,000 relocations that each start had to make.
 *
 * Names and signatures: cs_arch_init and cs_arch_option in capstone's cs.c. An architecture that a
 * later version adds is linked in, and costs only room.
 */
#include <capstone/capstone.h>

struct cs_struct;

#define LEAVE_OUT(arch)                                                                            \
	cs_err arch##_global_init(struct cs_struct *handle);                                       \
	cs_err arch##_option(struct cs_struct *handle, cs_opt_type type, size_t value);            \
	cs_err arch##_global_init(struct cs_struct *handle)                                        \
	{                                                                                          \
		(void)handle;                                                                      \
		return CS_ERR_ARCH;                                                                \
	}                                                                                          \
	cs_err arch##_option(struct cs_struct *handle, cs_opt_type type, size_t value)             \
	{                                                                                          \
		(void)handle;                                                                      \
		(void)type;                                                                        \
		(void)value;                                                                       \
		return CS_ERR_ARCH;                                                                \
	}

LEAVE_OUT(ARM)
LEAVE_OUT(AArch64)
LEAVE_OUT(Mips)
LEAVE_OUT(PPC)
LEAVE_OUT(Sparc)
LEAVE_OUT(SystemZ)
LEAVE_OUT(XCore)
LEAVE_OUT(M68K)
LEAVE_OUT(TMS320C64x)
LEAVE_OUT(M680X)
LEAVE_OUT(EVM)
