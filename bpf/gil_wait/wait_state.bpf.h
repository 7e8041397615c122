/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of an open wait for a GIL: gil_wait's part of struct thread. */
#ifndef UNDERSPAN_GIL_WAIT_WAIT_STATE_BPF_H
#define UNDERSPAN_GIL_WAIT_WAIT_STATE_BPF_H

#include "vmlinux.h"
#include "events/gil_wait.h"

/* What a thread with an open wait is known to have done since its last sleep. */
enum gil_taken {
	GIL_NOT_TAKEN,
	GIL_TAKEN,   /* it has woken the forced dropper */
	GIL_DROPPED, /* it has dropped the GIL, and its return to a CPU was not traced */
};

/* A thread's wait for a GIL, composed of sleeps of up to 5 ms. */
struct gil_wait {
	/* read at each switch and each wake-up, so adjacent */
	__u64 start_ns; /* of the first sleep; 0: no wait is open */
	__u64 end_ns;	/* of the last sleep; 0: asleep */
	__u64 gap_ns;	/* on a CPU since the last sleep ended */
	__u64 gil;	/* address of the GIL */
	__u8 word;	/* enum gil_word: where the thread sleeps; GIL_NONE: awake */
	__u8 woken;	/* the last sleep ended with a drop of the GIL */
	__u8 taken;	/* enum gil_taken */
	__u8 n_holders;
	__u8 holder;		    /* index of the present holder in holders[] */
	__u8 missed, holder_missed; /* why no stack: enum event_stat; 0: no attempt so far */
	__u8 samples;		    /* number of attempts to walk the stacks */
	__u64 switch_number; /* of the GIL: when the last sleep began or, woken or resumed, ended */
	__u64 runq_ns;	     /* of the last sleep */
	__u64 forced_ns;
	__u64 forced_end_ns; /* of the last forced hand-over, forced_before_ns long */
	__u64 forced_before_ns;
	struct gil_thread_ids dropper;
	struct gil_holder holders[GIL_MAX_HOLDERS];
	__u32 sleeps;
	__u32 resumed;		   /* switch_number is that of the return from the last sleep */
	__u64 holder_tstate;	   /* thread state of holders[0] */
	__u64 stack, holder_stack; /* keys of gil_stacks; 0: none */
	struct python_frame holder_frame; /* innermost, of holder_stack */
};

#endif
