// SPDX-License-Identifier: Apache-2.0
/* Sizes of BPF maps. See map_memory.h. */
#include "trackers/map_memory.h"

#include "base/log.h"
#include "host/kernel.h"
#include "base/util.h"

enum {
	LEAST_ENTRIES = 256,
	LEAST_RING_BYTES = 128 << 10,
	/* bpf_mem_alloc caches about 10 KB per size: too few entries of larger values */
	ON_DEMAND_VALUE_MAX = 1024,
};

static bool is_hash(const struct bpf_map *map)
{
	return bpf_map__type(map) == BPF_MAP_TYPE_HASH ||
	       bpf_map__type(map) == BPF_MAP_TYPE_LRU_HASH;
}

void map_memory_on_demand(struct bpf_object *object)
{
	struct bpf_map *map;

	if (!kernel_has("bpf_mem_alloc"))
		return;
	bpf_object__for_each_map (map, object) {
		if (bpf_map__type(map) == BPF_MAP_TYPE_HASH &&
		    bpf_map__value_size(map) <= ON_DEMAND_VALUE_MAX)
			bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BPF_F_NO_PREALLOC);
	}
}

static uint64_t round_up_to_power_of_2(uint64_t n)
{
	uint64_t power = 1;

	while (power < n)
		power *= 2;
	return power;
}

/* Sizes of kernel slabs: powers of two, 96 and 192 bytes. */
static uint64_t allocation(uint64_t n)
{
	uint64_t power = round_up_to_power_of_2(n);

	return n > 64 && n <= power / 4 * 3 && power <= 256 ? power / 4 * 3 : power;
}

static uint64_t hash_bytes(const struct bpf_map *map, uint64_t n)
{
	enum { ELEMENT_HEAD = 48, BUCKET = 16 };
	uint64_t element = ELEMENT_HEAD + (bpf_map__key_size(map) + 7) / 8 * 8 +
			   (bpf_map__value_size(map) + 7) / 8 * 8;

	if (bpf_map__map_flags(map) & BPF_F_NO_PREALLOC)
		element = allocation(element);
	return n * element + round_up_to_power_of_2(n) * BUCKET;
}

static uint64_t map_bytes(const struct bpf_map *map, uint64_t n)
{
	int n_cpus = libbpf_num_possible_cpus();

	if (is_hash(map))
		return hash_bytes(map, n);
	switch (bpf_map__type(map)) {
	case BPF_MAP_TYPE_RINGBUF:
		return n;
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		return n * bpf_map__value_size(map) * (uint64_t)(n_cpus > 0 ? n_cpus : 1);
	case BPF_MAP_TYPE_ARRAY:
		return n * bpf_map__value_size(map);
	default:
		return 0; /* task storage: allocated per thread */
	}
}

/* The configured entries, limited to `most` bytes. */
static uint32_t entries(const struct bpf_map *map, uint64_t most)
{
	uint32_t n = bpf_map__max_entries(map), least;

	if (is_hash(map))
		least = LEAST_ENTRIES;
	else if (bpf_map__type(map) == BPF_MAP_TYPE_RINGBUF)
		least = LEAST_RING_BYTES;
	else
		return n; /* array indices have a meaning */
	while (n / 2 >= least && map_bytes(map, n) > most)
		n /= 2;
	return n;
}

/* Total size of full maps. */
static uint64_t sum_of(struct bpf_object *const *objects, size_t n, uint64_t most)
{
	struct bpf_map *map;
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		bpf_object__for_each_map (map, objects[i]) {
			/* an existing map is shared with another object */
			if (bpf_map__autocreate(map) && bpf_map__fd(map) < 0)
				sum += map_bytes(map, entries(map, most));
		}
	}
	return sum;
}

void map_memory_shrink(struct bpf_object *object, uint64_t most)
{
	struct bpf_map *map;

	bpf_object__for_each_map (map, object) {
		if (bpf_map__fd(map) < 0)
			bpf_map__set_max_entries(map, entries(map, most));
	}
}

uint64_t map_memory_fit(struct bpf_object *const *objects, size_t n, uint64_t bytes)
{
	enum { LEAST = 64 << 10 };
	uint64_t most = bytes;

	if (sum_of(objects, n, UINT64_MAX) <= bytes)
		return UINT64_MAX;
	while (most > LEAST && sum_of(objects, n, most) > bytes)
		most -= most / 8;
	log_info(
		"memory limit: no BPF map takes more than %llu KiB, all together %llu MiB when full",
		(unsigned long long)(most >> 10),
		(unsigned long long)(sum_of(objects, n, most) >> 20));
	for (size_t i = 0; i < n; i++)
		map_memory_shrink(objects[i], most);
	return most;
}
