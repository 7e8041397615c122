// SPDX-License-Identifier: Apache-2.0
/* The limit of stacks. See stack_limit.h. */
#include "base/stack_limit.h"

#include <pthread.h>
#include <sys/resource.h>

/* The kernel's default, for which the engine is made. The engine starts with 96 KiB, not with 64.
 */
static const rlim_t USUAL = 8 << 20, LOW = 2 << 20, NEEDED = 256 << 10;

void stack_limit_raise(void)
{
	pthread_attr_t attributes;
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= LOW)
		return;
	/* glibc took the default from the limit at the program's start */
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, USUAL);
	pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
	limit.rlim_cur = limit.rlim_max < USUAL ? limit.rlim_max : USUAL;
	setrlimit(RLIMIT_STACK, &limit);
}

int stack_limit_check(struct why *why)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= NEEDED)
		return 0;
	return why_fail(why, ENOMEM,
			"the limit of the stack is %llu KiB, too little for the store's engine: "
			"raise it to 8192 (`ulimit -s`, LimitSTACK of a unit)",
			(unsigned long long)limit.rlim_cur >> 10);
}
