/* SPDX-License-Identifier: Apache-2.0 */
/* An instruction of a file for a probe, and the place of an argument at the instruction. */
#ifndef UNDERSPAN_ELF_PROBE_SITE_H
#define UNDERSPAN_ELF_PROBE_SITE_H

#include <stdint.h>

/* Where a probe finds an integer argument, as SDT notes and calling conventions say. */
enum arg_place { ARG_NONE, ARG_REGISTER, ARG_MEMORY, ARG_CONSTANT };
struct arg_spec {
	uint8_t place;	   /* enum arg_place */
	uint8_t reg_index; /* index of the 8-byte register in the kernel's struct pt_regs */
	uint8_t size;	   /* bytes: 4 or 8 */
	uint8_t is_signed;
	int64_t value; /* ARG_MEMORY: displacement to the register; ARG_CONSTANT: the value */
};

struct probe_site {
	uint64_t va;		 /* of the probed instruction */
	uint64_t file_offset;	 /* as needed by perf_event_open for a uprobe */
	uint64_t ref_ctr_offset; /* file offset of the USDT semaphore; 0: none */
	struct arg_spec arg;	 /* the first argument */
	uint8_t reason_reg; /* register with the _PyGC_Reason, as reg_index; 0: none is known */
};

#endif
