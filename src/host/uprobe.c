// SPDX-License-Identifier: Apache-2.0
/* Attaches uprobes: uprobe_multi, with cookies, or with program copies. See uprobe.h. */
#include "host/uprobe.h"

#include <string.h>

#include "host/kernel.h"
#include "host/uprobe_multi.h"

enum { MAX_RODATA = 4096 };

static struct bpf_link *attach(const struct bpf_program *program, const char *path,
			       const struct uprobe_site *site, uint64_t cookie, struct why *why)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .ref_ctr_offset = site->ref_ctr_offset,
		    .bpf_cookie = cookie);
	struct bpf_link *link = bpf_program__attach_uprobe_opts(program, -1, path,
								site->file_offset, &opts);

	if (!link)
		why_fail(why, errno, "the kernel refused a uprobe at offset 0x%llx: %s",
			 (unsigned long long)site->file_offset, strerror(errno));
	return link;
}

/* The copy shares all maps with the original except the constants, which hold the cookie. */
static int share_map(const struct uprobe_object *original, struct bpf_map *copy, uint64_t cookie)
{
	struct bpf_map *map = bpf_object__find_map_by_name(*original->skeleton->obj,
							   bpf_map__name(copy));
	size_t size, at = (size_t)((const char *)original->constant_cookie -
				   (const char *)original->rodata);
	char rodata[MAX_RODATA];

	if (!map)
		return -ENOENT;
	if (!bpf_map__is_internal(copy) || !strstr(bpf_map__name(copy), ".rodata"))
		return bpf_map__reuse_fd(copy, bpf_map__fd(map));
	bpf_map__initial_value(copy, &size);
	if (size > sizeof(rodata) || at + sizeof(cookie) > size)
		return -E2BIG;
	memcpy(rodata, original->rodata, size);
	memcpy(rodata + at, &cookie, sizeof(cookie));
	return bpf_map__set_initial_value(copy, rodata, size);
}

static int prepare_copy(const struct uprobe_object *original, struct bpf_object *copy,
			const char *program, uint64_t cookie)
{
	struct bpf_program *p;
	struct bpf_map *map;
	int err = 0;

	bpf_object__for_each_program (p, copy) {
		if (strcmp(bpf_program__name(p), program))
			bpf_program__set_autoload(p, false);
	}
	bpf_object__for_each_map (map, copy) {
		if (!err)
			err = share_map(original, map, cookie);
	}
	return err ? err : bpf_object__load(copy);
}

/* The kernel keeps a reference to the program: the copy is freed at once. */
static struct bpf_link *attach_copy(const struct uprobe_object *original, const char *program,
				    const char *path, const struct uprobe_site *site,
				    struct why *why)
{
	/* maps of constants are named after the object */
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = original->skeleton->name);
	struct bpf_object *copy = bpf_object__open_mem(original->skeleton->data,
						       original->skeleton->data_sz, &opts);
	struct bpf_link *link = NULL;
	int err;

	if (!copy) {
		why_fail(why, errno, "cannot copy the program: %s", strerror(errno));
		return NULL;
	}
	err = prepare_copy(original, copy, program, site->cookie);
	if (err)
		why_fail(why, -err, "the kernel refused a copy of the program: %s", strerror(-err));
	else
		link = attach(bpf_object__find_program_by_name(copy, program), path, site, 0, why);
	bpf_object__close(copy);
	return link;
}

static int attach_each(const struct uprobe_object *object, const struct bpf_program *program,
		       const char *path, const struct uprobe_site *sites, size_t n,
		       struct link_list *links, struct why *why)
{
	bool copies = object && !kernel_has("attach_cookie");

	for (size_t i = 0; i < n; i++) {
		struct bpf_link *link = copies ? attach_copy(object, bpf_program__name(program),
							     path, &sites[i], why)
					       : attach(program, path, &sites[i], sites[i].cookie,
							why);

		if (!link)
			return -EIO;
		if (link_list_add(links, link))
			return why_fail(why, ENOMEM, "out of memory");
	}
	return 0;
}

static int attach_together(const struct bpf_program *program, const char *path,
			   const struct uprobe_site *sites, size_t n, struct link_list *links,
			   struct why *why)
{
	uint64_t offsets[UPROBE_MAX_PLACES], counters[UPROBE_MAX_PLACES];
	uint64_t cookies[UPROBE_MAX_PLACES];
	int fd;

	if (n > UPROBE_MAX_PLACES)
		return why_fail(why, E2BIG, "too many places to probe");
	for (size_t i = 0; i < n; i++) {
		offsets[i] = sites[i].file_offset;
		counters[i] = sites[i].ref_ctr_offset;
		cookies[i] = sites[i].cookie;
	}
	fd = uprobe_multi_attach(bpf_program__fd(program), path,
				 &(struct uprobe_multi){ offsets, counters, cookies, n });
	if (fd < 0)
		return why_fail(why, -fd, "the kernel refused %zu uprobes, the first at 0x%llx: %s",
				n, (unsigned long long)offsets[0], strerror(-fd));
	return link_list_add_fd(links, fd, n) ? why_fail(why, ENOMEM, "out of memory") : 0;
}

void uprobe_prepare(struct bpf_program *program)
{
	if (kernel_has("uprobe_multi"))
		bpf_program__set_expected_attach_type(program, UPROBE_MULTI_ATTACH_TYPE);
}

int uprobe_attach(const struct uprobe_object *object, struct bpf_program *program, const char *path,
		  const struct uprobe_site *sites, size_t n, struct link_list *links,
		  struct why *why)
{
	if (!n)
		return 0;
	return kernel_has("uprobe_multi")
		       ? attach_together(program, path, sites, n, links, why)
		       : attach_each(object, program, path, sites, n, links, why);
}
