// SPDX-License-Identifier: Apache-2.0
/* BPF objects are loaded on several threads. See load_together.h. */
#include "trackers/load_together.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "host/memory_limit.h"

enum { THREADS_MAX = 4 };
/* a thread holds the kernel's types twice while libbpf reads them */
static const uint64_t BYTES_PER_THREAD = 64 << 20;

struct loading {
	struct object_load *loads;
	size_t n;
	atomic_size_t next;
};

static void *load_some(void *argument)
{
	struct loading *loading = argument;
	size_t i;

	while ((i = atomic_fetch_add(&loading->next, 1)) < loading->n)
		loading->loads[i].err = bpf_object__load_skeleton(loading->loads[i].skeleton);
	return NULL;
}

static int larger_first(const void *a, const void *b)
{
	size_t one = ((const struct object_load *)a)->skeleton->data_sz;
	size_t other = ((const struct object_load *)b)->skeleton->data_sz;

	return (one < other) - (one > other);
}

static size_t threads_at_most(void)
{
	uint64_t most = memory_limit() / BYTES_PER_THREAD;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (cpus > 0 && (uint64_t)cpus < most)
		most = (uint64_t)cpus;
	return most < THREADS_MAX ? (size_t)most : THREADS_MAX;
}

/* The image of an object in this program: not needed any more, and read again if it is. */
static void give_image_back(const struct bpf_object_skeleton *skeleton)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = ((uintptr_t)skeleton->data + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)skeleton->data + skeleton->data_sz) & ~(page - 1);

	if (begin < end)
		madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void load_together(struct object_load *loads, size_t n)
{
	struct loading loading = { .loads = loads, .n = n };
	size_t most = n > 1 ? threads_at_most() : 1, started = 0;
	pthread_t threads[THREADS_MAX];

	qsort(loads, n, sizeof(*loads), larger_first);
	while (started + 1 < most && started + 1 < n &&
	       !pthread_create(&threads[started], NULL, load_some, &loading))
		started++;
	load_some(&loading);
	while (started)
		pthread_join(threads[--started], NULL);
	for (size_t i = 0; i < n; i++)
		give_image_back(loads[i].skeleton);
}
