// SPDX-License-Identifier: Apache-2.0
/*
 * futexes FILE: a wait in each form of futex(), about 50 ms each. Waits until FILE exists, then
 * prints a line of JSON with the address that each form waits for (0: several, or the waiter's
 * own), and ends when stdin is closed.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
enum { NR_FUTEX_WAKE = 454, NR_FUTEX_WAIT = 455, WAIT_US = 50000, FUTEX2_U32_PRIVATE = 2 | 128 };

struct vector {
	uint64_t val, uaddr;
	uint32_t flags, reserved;
};

static uint32_t *word; /* of the present form */
static pthread_mutex_t *mutex;

static long futex(int operation, uint32_t value)
{
	return syscall(SYS_futex, word, operation, value, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void sleep_shared(void)
{
	futex(FUTEX_WAIT, 1);
}

static void wake_shared(void)
{
	futex(FUTEX_WAKE, 1);
}

static void sleep_bitset(void)
{
	futex(FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, 1);
}

static void wake_bitset(void)
{
	futex(FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 1);
}

static void sleep_pi(void)
{
	futex(FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0);
	futex(FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0);
}

static void wake_pi(void)
{
	futex(FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0);
}

static void sleep_futex2(void)
{
	syscall(NR_FUTEX_WAIT, word, 1UL, (unsigned long)UINT32_MAX, FUTEX2_U32_PRIVATE, NULL, 0);
}

static void wake_futex2(void)
{
	syscall(NR_FUTEX_WAKE, word, (unsigned long)UINT32_MAX, 1, FUTEX2_U32_PRIVATE);
}

static void sleep_vector(void)
{
	static uint32_t other = 1;
	struct vector of[2] = { { 1, (uintptr_t)word, FUTEX2_U32_PRIVATE, 0 },
				{ 1, (uintptr_t)&other, FUTEX2_U32_PRIVATE, 0 } };

	syscall(SYS_futex_waitv, of, 2, 0, NULL, 0);
}

static void sleep_mutex(void)
{
	pthread_mutex_lock(mutex);
	pthread_mutex_unlock(mutex);
}

static void wake_mutex(void)
{
	pthread_mutex_unlock(mutex);
}

static const struct form {
	const char *name;
	void (*sleep)(void), (*wake)(void);
} forms[] = {
	{ "shared", sleep_shared, wake_shared },
	{ "bitset", sleep_bitset, wake_bitset },
	{ "pi", sleep_pi, wake_pi },
	{ "futex2", sleep_futex2, wake_futex2 },
	{ "vector", sleep_vector, wake_bitset },
	{ "mutex", sleep_mutex, wake_mutex },
	{ "again", sleep_mutex, wake_mutex }, /* a new lock in the memory of the freed lock */
};

static void *sleeper(void *arg)
{
	const struct form *form = arg;

	pthread_setname_np(pthread_self(), form->name);
	form->sleep();
	return NULL;
}

/* Returns the address. */
static uintptr_t run(const struct form *form)
{
	pthread_t thread;

	*word = form->wake == wake_pi ? (uint32_t)syscall(SYS_gettid) : 1;
	mutex = malloc(sizeof(*mutex));
	pthread_mutex_init(mutex, NULL);
	pthread_mutex_lock(mutex);
	pthread_create(&thread, NULL, sleeper, (void *)form);
	usleep(WAIT_US);
	form->wake();
	pthread_join(thread, NULL);
	if (form->wake != wake_mutex)
		return form->sleep == sleep_vector ? 0 : (uintptr_t)word;
	free(mutex);
	return (uintptr_t)mutex;
}

int main(int argc, char **argv)
{
	char byte;

	if (argc != 2)
		return 2;
	word = calloc(1, 64);
	while (access(argv[1], F_OK))
		usleep(1000);
	usleep(WAIT_US);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		printf("%s\"%s\": %lu", i ? ", " : "{", forms[i].name, run(&forms[i]));
	printf("}\n");
	fflush(stdout);
	return read(0, &byte, 1) < 0;
}
