/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNDERSPAN_PYTHON_STACK_H
#define UNDERSPAN_PYTHON_STACK_H
struct target;
static inline void stack_forget(struct target *target)
{
	(void)target;
}
#endif
