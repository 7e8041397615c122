// SPDX-License-Identifier: Apache-2.0
/* Heap budget for reading untrusted files. See budget.h. */
#include "base/budget.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

static const uint64_t LEAST_OF_FILE = 8ULL << 20, MOST_OF_FILE = 32ULL << 20;
enum { WAIT_MS = 1000 };

struct budget {
	_Atomic uint64_t used;
	_Atomic uint64_t of_slot[BUDGET_SLOTS];
};

static struct budget own, *shared = &own;
static uint64_t of_file = MOST_OF_FILE, of_all = 4 * MOST_OF_FILE;
static uint32_t my_slot;

int budget_start(uint64_t memory_limit)
{
	void *page = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			  -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	shared = page;
	of_file = memory_limit / 16;
	if (of_file < LEAST_OF_FILE)
		of_file = LEAST_OF_FILE;
	if (of_file > MOST_OF_FILE)
		of_file = MOST_OF_FILE;
	of_all = of_file * (memory_limit / 16 < LEAST_OF_FILE ? 2 : 4);
	return 0;
}

void budget_use_slot(uint32_t slot)
{
	my_slot = slot % BUDGET_SLOTS;
}

size_t budget_of_file(void)
{
	return of_file;
}

static bool take(size_t bytes)
{
	if (atomic_fetch_add(&shared->used, bytes) + bytes > of_all) {
		atomic_fetch_sub(&shared->used, bytes);
		return false;
	}
	atomic_fetch_add(&shared->of_slot[my_slot], bytes);
	return true;
}

bool budget_take(size_t bytes)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };

	if (shared->of_slot[my_slot] + bytes > of_file)
		return false;
	for (int i = 0; i < WAIT_MS; i++) {
		if (take(bytes))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

void budget_give(size_t bytes)
{
	atomic_fetch_sub(&shared->of_slot[my_slot], bytes);
	atomic_fetch_sub(&shared->used, bytes);
}

void budget_slot_ended(uint32_t slot)
{
	uint64_t left = atomic_exchange(&shared->of_slot[slot % BUDGET_SLOTS], 0);

	atomic_fetch_sub(&shared->used, left);
}

uint64_t budget_used(void)
{
	return shared->used;
}
