// SPDX-License-Identifier: Apache-2.0
/* Containers and pods from cgroup paths of runtimes, and from hostile paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "host/cgroup.h"

#define ID	    "4d2f0c3a9be1786655aa0f1c2d3e4b5a69788796a5b4c3d2e1f00112233445ef"
#define OTHER_ID    "00aa11bb22cc33dd44ee55ff66778899aabbccddeeff00112233445566778899"
#define UID	    "1f6a3c2e-9b47-4d05-8e21-0a7b6c5d4e3f"
#define UID_SYSTEMD "1f6a3c2e_9b47_4d05_8e21_0a7b6c5d4e3f"
#define STATIC_UID  "c0ffee00112233445566778899aabbcc"
#define FARGATE_ID  "0123456789abcdef0123456789abcdef-1122334455"

static void check(const char *text, const char *container_id, const char *pod_uid)
{
	struct cgroup_identity got;

	memset(&got, 'x', sizeof(got));
	cgroup_identity(text, &got);
	if (strcmp(got.container_id, container_id) != 0 || strcmp(got.pod_uid, pod_uid) != 0)
		fail_msg("%s: container '%s', pod '%s'", text, got.container_id, got.pod_uid);
}

static void test_no_container(void **state)
{
	(void)state;
	check("0::/\n", "", "");
	check("0::/init.scope\n", "", "");
	check("0::/system.slice/nginx.service\n", "", "");
	check("0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n", "", "");
	check("9:name=systemd:/\n8:pids:/\n7:blkio:/\n", "", "");
}

static void test_docker(void **state)
{
	(void)state;
	check("0::/system.slice/docker-" ID ".scope\n", ID, "");
	check("0::/docker/" ID "\n", ID, "");
	check("12:pids:/docker/" ID "\n11:memory:/docker/" ID "\n1:name=systemd:/docker/" ID
	      "\n0::/system.slice/containerd.service\n",
	      ID, "");
	check("0::/../docker-" ID ".scope\n", ID, "");
	check("0::/docker/" OTHER_ID "/docker/" ID "\n", ID, "");
	check("0::/docker/" ID "/system.slice/cron.service\n", ID, "");
}

static void test_podman(void **state)
{
	(void)state;
	check("0::/machine.slice/libpod-" ID ".scope/container\n", ID, "");
	check("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope\n",
	      ID, "");
	check("0::/machine.slice/libpod-conmon-" ID ".scope\n", "", "");
	/* the cgroupfs driver */
	check("0::/libpod_parent/libpod-" ID "\n", ID, "");
	check("4:memory:/libpod_parent/libpod-" ID "/init\n", ID, "");
}

static void test_nerdctl(void **state)
{
	(void)state;
	check("0::/system.slice/nerdctl-" ID ".scope\n", ID, "");
	check("0::/default/" ID "\n", ID, "");
}

static void test_kubernetes(void **state)
{
	(void)state;
	check("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_SYSTEMD
	      ".slice/cri-containerd-" ID ".scope\n",
	      ID, UID);
	check("0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" UID_SYSTEMD
	      ".slice/crio-" ID ".scope\n",
	      ID, UID);
	check("0::/kubepods.slice/kubepods-pod" UID_SYSTEMD ".slice/docker-" ID ".scope\n", ID,
	      UID);
	check("0::/kubepods/burstable/pod" UID "/" ID "\n", ID, UID);
	check("11:cpu,cpuacct:/kubepods/pod" UID "/" ID "\n10:pids:/kubepods/pod" UID "/" ID "\n",
	      ID, UID);
	check("0::/kubepods/burstable/pod" STATIC_UID "/" ID "\n", ID, STATIC_UID);
	check("0::/kubepods/besteffort/pod" UID "\n", "", UID);
	/* cri-o's helper belongs to the pod, not to a container */
	check("0::/kubepods.slice/kubepods-pod" UID_SYSTEMD ".slice/crio-conmon-" ID ".scope\n", "",
	      UID);
	/* kind: a node in a container; the pod's container is the result */
	check("0::/docker/" OTHER_ID
	      "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
	      "kubelet-kubepods-burstable-pod" UID_SYSTEMD ".slice/cri-containerd-" ID ".scope\n",
	      ID, UID);
	/* containerd with the cgroupfs driver on systemd: colons in the last component */
	check("0::/system.slice/containerd.service/kubepods-burstable-pod" UID_SYSTEMD
	      ".slice:cri-containerd:" ID "\n",
	      ID, UID);
}

static void test_nspawn(void **state)
{
	(void)state;
	/* a machine's name is not an id; a nested container has an id */
	check("0::/machine.slice/systemd-nspawn@web.service/payload\n", "", "");
	check("0::/machine.slice/machine-web\\x2d1.scope/payload/init.scope\n", "", "");
	check("0::/machine.slice/systemd-nspawn@web.service/payload/system.slice/docker-" ID
	      ".scope\n",
	      ID, "");
}

/* The same containers on hosts with version 1 only and with both versions (Docker, CRI-O: version 1
 * paths).
 */
static void test_hybrid(void **state)
{
	(void)state;
	check("12:pids:/docker/" ID "\n1:name=systemd:/docker/" ID
	      "\n0::/system.slice/containerd.service\n",
	      ID, "");
	check("5:cpu,cpuacct:/kubepods/burstable/pod" UID "/" ID
	      "\n2:rdma:/\n0::/system.slice/kubelet.service\n",
	      ID, UID);
	check("3:memory:/kubepods.slice/kubepods-pod" UID_SYSTEMD ".slice/crio-" ID
	      ".scope\n1:name=systemd:/kubepods.slice/kubepods-pod" UID_SYSTEMD ".slice/crio-" ID
	      ".scope\n0::/\n",
	      ID, UID);
	check("2:net_cls:/\n0::/system.slice/docker-" ID ".scope\n", ID, "");
	check("7:devices:/machine.slice/libpod-" ID ".scope\n0::/machine.slice\n", ID, "");
	/* some hierarchies show only the outer container */
	check("9:rdma:/docker/" OTHER_ID "\n3:pids:/docker/" OTHER_ID "/docker/" ID
	      "\n0::/system.slice/docker-" OTHER_ID ".scope\n",
	      ID, "");
	check("9:pids:/kubepods/pod" UID "\n3:cpu:/kubepods/pod" UID "/" ID "\n", ID, UID);
}

static void check_unified(const char *text, bool sole, const char *container_id)
{
	struct cgroup_identity got;

	memset(&got, 'x', sizeof(got));
	if (cgroup_unified_identity(text, &got) != sole || strcmp(got.container_id, container_id))
		fail_msg("%s: container '%s'", text, got.container_id);
}

static void test_unified(void **state)
{
	(void)state;
	check_unified("0::/docker/" ID "\n", true, ID);
	check_unified("0::/", true, "");
	check_unified("0::/docker/" ID "\n1:name=systemd:/docker/" OTHER_ID "\n", false, ID);
	check_unified("1:net_cls:/\n0::/docker/" ID "\n", false, ID);
	check_unified("4:memory:/docker/" ID "\n0::/system.slice/containerd.service\n", false, "");
	check_unified("4:memory:/docker/" ID "\n", false, "");
}

static void test_ecs(void **state)
{
	(void)state;
	check("9:perf_event:/ecs/0123456789abcdef0123456789abcdef/" ID "\n", ID, "");
	check("9:perf_event:/ecs/my-cluster/0123456789abcdef0123456789abcdef/" ID "\n", ID, "");
	check("0::/ecs/0123456789abcdef0123456789abcdef/" FARGATE_ID "\n", FARGATE_ID, "");
	check("0::/ecstasks.slice/ecstasks-0123456789abcdef0123456789abcdef.slice/docker-" ID
	      ".scope\n",
	      ID, "");
	/* an id-like name at another position is not a container */
	check("0::/app/" FARGATE_ID "\n", "", "");
}

static void test_garbage(void **state)
{
	(void)state;
	check("", "", "");
	check("\n\n\n", "", "");
	check("::", "", "");
	check("0::", "", "");
	check("0::/docker/", "", "");
	check(ID, "", "");
	check("0::/docker/" ID "0\n", "", "");
	check("0::/docker/4D2F" ID "\n", "", "");
	check("0::/docker-.scope\n0::/pod\n0::/kubepods-pod.slice\n", "", "");
	check("0::/kubepods/pod1f6a3c2e-9b47-4d05-8e21+0a7b6c5d4e3f/" ID "\n", ID, "");
	check("0::/kubepods/pod" UID UID "/" ID "\n", ID, "");
	check("0::/docker/" ID, ID, "");
}

/* Every truncation and single-byte change of a real line: no access out of bounds. */
static void test_mutations(void **state)
{
	static const char line[] = "0::/kubepods.slice/kubepods-burstable-pod" UID_SYSTEMD
				   ".slice/cri-containerd-" ID ".scope\n";
	static const char bytes[] = { '/', ':', '-', '.', '\n', '0', 'a', '\x01', '\xff' };
	struct cgroup_identity got;

	(void)state;
	for (size_t cut = 0; cut < sizeof(line); cut++) {
		char *text = strndup(line, cut); /* on the heap, for the sanitizer */

		cgroup_identity(text, &got);
		for (size_t i = 0; i < cut; i++) {
			for (size_t k = 0; k < sizeof(bytes); k++) {
				char kept = text[i];

				text[i] = bytes[k];
				cgroup_identity(text, &got);
				assert_true(strlen(got.container_id) <= CONTAINER_ID_MAX);
				assert_true(strlen(got.pod_uid) <= POD_UID_MAX);
				text[i] = kept;
			}
		}
		free(text);
	}
}

static void test_tenants(void **state)
{
	static const char *const same[][2] = {
		{ "0::/docker/" ID "\n", "4:memory:/docker/" ID "\n0::/\n" },
		{ "0::/docker/" ID "\n", "0::/docker/" ID "/docker/" OTHER_ID "\n" },
		{ "0::/user.slice/user-1000.slice/session-3.scope\n",
		  "0::/user.slice/user-1000.slice/user@1000.service/libpod-" ID ".scope\n" },
		{ "0::/kubepods.slice/kubepods-pod" UID_SYSTEMD ".slice/cri-containerd-" ID
		  ".scope\n",
		  "0::/kubepods.slice/kubepods-pod" UID_SYSTEMD ".slice/cri-containerd-" OTHER_ID
		  ".scope\n" },
		{ "0::/system.slice/cron.service\n", "0::/system.slice/cron.service/a/b\n" },
	};
	static const char *const own[] = {
		"0::/docker/" ID "\n",
		"0::/docker/" OTHER_ID "\n",
		"0::/user.slice/user-1000.slice\n",
		"0::/user.slice/user-1001.slice\n",
		"0::/system.slice/cron.service\n",
		"0::/a\n",
		"0::/a/b\n",
		"0::/kubepods.slice/kubepods-pod" UID_SYSTEMD ".slice\n",
	};

	(void)state;
	assert_int_equal(cgroup_tenant("0::/\n"), 0);
	assert_int_equal(cgroup_tenant("9:name=systemd:/\n8:pids:/\n"), 0);
	assert_int_equal(cgroup_tenant(""), 0);
	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		assert_int_equal(cgroup_tenant(same[i][0]), cgroup_tenant(same[i][1]));
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		assert_int_not_equal(cgroup_tenant(own[i]), 0);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(cgroup_tenant(own[i]), cgroup_tenant(own[j]));
	}
}

static void test_units(void **state)
{
	static const char *const of[][2] = {
		{ "0::/system.slice/shop.service\n", "shop" },
		{ "0::/system.slice/shop.service/inner.service\n", "shop" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/app.slice/shop.service\n",
		  "shop" },
		{ "9:cpu:/\n1:name=systemd:/system.slice/system-web.slice/web@3.service\n",
		  "web@3" },
		{ "0::/user.slice/user-1000.slice/session-3.scope\n", "" },
		{ "0::/user.slice/user-1000.slice/user@1000.service\n", "" },
		{ "0::/system.slice/.service\n", "" },
		{ "0::/\n", "" },
		{ "shop.service", "" },
		{ "", "" },
	};
	char unit[CGROUP_UNIT_MAX + 1], text[400];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		assert_string_equal(cgroup_unit(of[i][0], unit), of[i][1]);
	snprintf(text, sizeof(text), "0::/%0300d.service\n", 1);
	assert_int_equal(strlen(cgroup_unit(text, unit)), CGROUP_UNIT_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units),	     cmocka_unit_test(test_tenants),
		cmocka_unit_test(test_no_container), cmocka_unit_test(test_docker),
		cmocka_unit_test(test_podman),	     cmocka_unit_test(test_kubernetes),
		cmocka_unit_test(test_nerdctl),	     cmocka_unit_test(test_nspawn),
		cmocka_unit_test(test_hybrid),	     cmocka_unit_test(test_unified),
		cmocka_unit_test(test_ecs),	     cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_mutations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
