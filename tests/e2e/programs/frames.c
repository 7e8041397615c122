// SPDX-License-Identifier: Apache-2.0
/*
 * frames N: sleeps N times for 20 ms at the end of a chain of calls with frame pointers, so that
 * the native stack is known. Prints the pid, waits for a byte, sleeps, waits again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* not libc's function, which has no frame pointers */
#if defined(__x86_64__)
__attribute__((noinline)) static long sleep_20_ms(void)
{
	struct timespec time = { 0, 20000000 };
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(35), "D"(&time), "S"(NULL)
		     : "rcx", "r11", "memory");
	return result;
}
#else
__attribute__((noinline)) static long sleep_20_ms(void)
{
	struct timespec time = { 0, 20000000 };

	return nanosleep(&time, NULL);
}
#endif

#define LINK(name, next)                                                                           \
	__attribute__((noinline)) static long name(long n)                                         \
	{                                                                                          \
		long result = next(n);                                                             \
                                                                                                   \
		asm volatile("" : "+r"(result)); /* no tail call */                                \
		return result;                                                                     \
	}

__attribute__((noinline)) static long chain_0(long n)
{
	long result = 0;

	for (long i = 0; i < n; i++)
		result += sleep_20_ms();
	return result;
}
LINK(chain_1, chain_0)
LINK(chain_2, chain_1)
LINK(chain_3, chain_2)
LINK(chain_4, chain_3)
LINK(chain_5, chain_4)
LINK(chain_6, chain_5)
LINK(chain_7, chain_6)
LINK(chain_8, chain_7)
LINK(chain_9, chain_8)
LINK(chain_10, chain_9)

int main(int argc, char **argv)
{
	char byte;

	printf("{\"pid\": %d}\n", getpid());
	fflush(stdout);
	if (argc != 2 || read(0, &byte, 1) != 1)
		return 1;
	chain_10(atol(argv[1]));
	printf("{}\n");
	fflush(stdout);
	return read(0, &byte, 1) < 0;
}
