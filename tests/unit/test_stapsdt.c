// SPDX-License-Identifier: Apache-2.0
/* Arguments of static probes: forms written by compilers, and invalid forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "elf/stapsdt.h"

static void check(uint16_t machine, const char *text, struct arg_spec want)
{
	struct arg_spec got = { .place = 99 };

	if (!stapsdt_parse_argument(machine, text, &got))
		fail_msg("'%s' was not understood", text);
	assert_int_equal(got.place, want.place);
	assert_int_equal(got.reg_index, want.reg_index);
	assert_int_equal(got.size, want.size);
	assert_int_equal(got.is_signed, want.is_signed);
	assert_int_equal(got.value, want.value);
}

static void test_x86_64(void **state)
{
	(void)state;
	check(EM_X86_64, "-4@-228(%rbp)", (struct arg_spec){ ARG_MEMORY, 4, 4, 1, -228 });
	check(EM_X86_64, "-4@44(%rsp)", (struct arg_spec){ ARG_MEMORY, 19, 4, 1, 44 });
	check(EM_X86_64, "-4@(%rsp)", (struct arg_spec){ ARG_MEMORY, 19, 4, 1, 0 });
	check(EM_X86_64, "-8@%rax", (struct arg_spec){ ARG_REGISTER, 10, 8, 1, 0 });
	check(EM_X86_64, "8@%r12 -4@%esi", (struct arg_spec){ ARG_REGISTER, 3, 8, 0, 0 });
	check(EM_X86_64, "-4@%r15d", (struct arg_spec){ ARG_REGISTER, 0, 4, 1, 0 });
	check(EM_X86_64, "-4@%edi", (struct arg_spec){ ARG_REGISTER, 14, 4, 1, 0 });
	check(EM_X86_64, "-4@$2", (struct arg_spec){ ARG_CONSTANT, 0, 4, 1, 2 });
	check(EM_X86_64, "-4@$-1", (struct arg_spec){ ARG_CONSTANT, 0, 4, 1, -1 });
}

static void test_arm64(void **state)
{
	(void)state;
	check(EM_AARCH64, "-4@[sp, 16]", (struct arg_spec){ ARG_MEMORY, 31, 4, 1, 16 });
	check(EM_AARCH64, "-4@[sp]", (struct arg_spec){ ARG_MEMORY, 31, 4, 1, 0 });
	check(EM_AARCH64, "-8@[x29, -184] 4@x1", (struct arg_spec){ ARG_MEMORY, 29, 8, 1, -184 });
	check(EM_AARCH64, "-8@x0", (struct arg_spec){ ARG_REGISTER, 0, 8, 1, 0 });
	check(EM_AARCH64, "-4@w23", (struct arg_spec){ ARG_REGISTER, 23, 4, 1, 0 });
	check(EM_AARCH64, "-4@2", (struct arg_spec){ ARG_CONSTANT, 0, 4, 1, 2 });
	check(EM_AARCH64, "-4@-1", (struct arg_spec){ ARG_CONSTANT, 0, 4, 1, -1 });
}

static void test_not_understood(void **state)
{
	static const char *const x86[] = {
		"",
		"-4",
		"-4@",
		"4@%",
		"-2@%ax",
		"-4@%xmm0",
		"-4@8(%rax,%rbx,4)",
		"-4@x(%rip)",
		"-4@8(%rip)",
		"-4@8(rax)",
		"-4@8(%rax",
		"-4@$",
		"-4@$2x",
		"-4@$99999999999999999999",
		"16@%rax",
		"-4@8)%rax(",
		"-4@$ 2",
		"--4@%rax",
		"-4@)(",
	};
	static const char *const arm64[] = {
		"-4@x31", "-4@x-1",  "-4@[sp", "-4@[sp, x1]", "-4@[sp, 16]!",
		"-4@[]",  "-4@[sp,", "-4@v0",  "-4@x",
	};
	struct arg_spec spec;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(x86); i++) {
		if (stapsdt_parse_argument(EM_X86_64, x86[i], &spec))
			fail_msg("'%s' was understood", x86[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(arm64); i++) {
		if (stapsdt_parse_argument(EM_AARCH64, arm64[i], &spec))
			fail_msg("'%s' was understood", arm64[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_x86_64),
		cmocka_unit_test(test_arm64),
		cmocka_unit_test(test_not_understood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
