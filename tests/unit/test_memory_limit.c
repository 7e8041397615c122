// SPDX-License-Identifier: Apache-2.0
/* Path of a process's memory cgroup, from texts of kernels and container runtimes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "host/memory_limit.h"

#define V1_MOUNTS                                                                                  \
	"30 29 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"                      \
	"31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"    \
	"32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"               \
	"33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
#define V2_MOUNTS                                                                                  \
	"24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"                                \
	"29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static void is(const char *cgroups, const char *mounts, bool is_v2, const char *mount,
	       const char *path)
{
	struct memory_cgroup found;

	assert_int_equal(memory_cgroup_find(cgroups, mounts, &found), 0);
	assert_int_equal(found.is_v2, is_v2);
	assert_string_equal(found.mount, mount);
	assert_string_equal(found.path, path);
}

static void both_versions_are_found(void **state)
{
	(void)state;
	is("0::/system.slice/underspan.service\n", V2_MOUNTS, true, "/sys/fs/cgroup",
	   "/system.slice/underspan.service");
	is("9:name=systemd:/a\n5:cpu,cpuacct:/b\n4:memory:/c/d\n0::/e\n", V1_MOUNTS, false,
	   "/sys/fs/cgroup/memory", "/c/d");
	is("0::/e\n4:memory:/c\n", V1_MOUNTS, false, "/sys/fs/cgroup/memory", "/c");
	is("5:cpu,cpuacct:/b\n0::/e\n", V1_MOUNTS, true, "/sys/fs/cgroup/unified", "/e");
}

static void containers_see_a_part_of_the_tree(void **state)
{
	(void)state;
	/* a cgroup namespace: root of the visible part */
	is("0::/\n", V2_MOUNTS, true, "/sys/fs/cgroup", "");
	/* no cgroup namespace, but the mount's root is the container */
	is("4:memory:/docker/0123\n",
	   "9 8 0:7 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", false,
	   "/sys/fs/cgroup/memory", "");
	is("4:memory:/docker/0123/sub\n",
	   "9 8 0:7 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", false,
	   "/sys/fs/cgroup/memory", "/sub");
	/* the process is outside of the namespace */
	is("0::/../../other\n", V2_MOUNTS, true, "/sys/fs/cgroup", "");
}

static void no_such_cgroup_is_said(void **state)
{
	static const char *const texts[][2] = {
		{ "", "" },
		{ "0::/a\n", "" },
		{ "", V2_MOUNTS },
		{ "4:memory:/c\n", V2_MOUNTS },
		{ "x\n:\n", V2_MOUNTS },
		{ "5:memoryx,xmemory:/b\n", V1_MOUNTS },
	};
	struct memory_cgroup found;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(memory_cgroup_find(texts[i][0], texts[i][1], &found), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_versions_are_found),
		cmocka_unit_test(containers_see_a_part_of_the_tree),
		cmocka_unit_test(no_such_cgroup_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
