// SPDX-License-Identifier: Apache-2.0
/* Names of services from environments, of Kubernetes containers from the kubelet's file names;
 * hostile ones, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/container_names.h"
#include "process/service_name.h"
#include "workers/readers.h"

#define ID "4d2f0c3a9be1786655aa0f1c2d3e4b5a69788796a5b4c3d2e1f00112233445ef"

/* `environment`: a string literal with its NULs. */
#define CHECK_SERVICE(environment, expected)                                                       \
	check_service(environment, sizeof(environment) - 1, expected)
static void check_service(const char *environment, size_t size, const char *expected)
{
	char got[SERVICE_NAME_MAX + 1];

	memset(got, 'x', sizeof(got));
	service_name_parse(environment, size, got);
	assert_string_equal(got, expected);
}

static void test_service(void **state)
{
	char longest[400] = "OTEL_SERVICE_NAME=";

	(void)state;
	CHECK_SERVICE("", "");
	CHECK_SERVICE("PATH=/bin\0", "");
	CHECK_SERVICE("PATH=/bin\0OTEL_SERVICE_NAME=shop\0LANG=C\0", "shop");
	CHECK_SERVICE("OTEL_SERVICE_NAME_=no\0XOTEL_SERVICE_NAME=no\0OTEL_SERVICE_NAME\0", "");
	CHECK_SERVICE("OTEL_RESOURCE_ATTRIBUTES=service.name=attribute\0OTEL_SERVICE_NAME=shop\0",
		      "shop");
	CHECK_SERVICE(
		"OTEL_RESOURCE_ATTRIBUTES=a=1, service.name=web%20shop%2C1 ,b=2\0OTEL_SERVICE_NAME=\0",
		"web shop,1");
	CHECK_SERVICE("OTEL_RESOURCE_ATTRIBUTES=xservice.name=no,service.names=no\0", "");
	CHECK_SERVICE("OTEL_RESOURCE_ATTRIBUTES=service.name=50%\0", "50%");
	CHECK_SERVICE("OTEL_RESOURCE_ATTRIBUTES=service.name=%zz%4\0", "%zz%4");
	/* cut off: what is not terminated may be half a name */
	CHECK_SERVICE("OTEL_SERVICE_NAME=sh", "");
	CHECK_SERVICE("OTEL_SERVICE_NAME=\033[2J\xff\0", "?[2J?");
	memset(longest + strlen(longest), 'n', 300);
	check_service(longest, strlen(longest) + 1, longest + strlen(longest) - SERVICE_NAME_MAX);
}

static void check_container(const char *name, const char *pod, const char *namespace,
			    const char *container)
{
	struct container_names got;
	char id[CONTAINER_ID_MAX + 1];

	if (!container_names_parse(name, &got, id))
		fail_msg("%s is not taken for a container's log", name);
	assert_string_equal(got.pod, pod);
	assert_string_equal(got.namespace, namespace);
	assert_string_equal(got.container, container);
	assert_string_equal(id, ID);
}

static void test_container(void **state)
{
	static const char *const others[] = {
		"",
		".",
		"..",
		".log",
		ID ".log",
		"-" ID ".log",
		"web_default-" ID ".log",
		"__-" ID ".log",
		"web__shop-" ID ".log",
		"web_default_-" ID ".log",
		"_default_shop-" ID ".log",
		"web_default_shop-" ID,
		"web_default_shop-" ID ".txt",
		"web_default_shop-x" ID ".log",
		"web_default_shop" ID ".log",
		"web_default_Shop-" ID ".log",
		"web_default_s\033[2J-" ID ".log",
		"web_de/fault_shop-" ID ".log",
		"web_default_a_b-" ID ".log",
	};
	char name[600];
	struct container_names got;
	char id[CONTAINER_ID_MAX + 1];

	(void)state;
	check_container("web-5d4f_default_shop-" ID ".log", "web-5d4f", "default", "shop");
	check_container("web.example-0_kube-system_a-b-c-" ID ".log", "web.example-0",
			"kube-system", "a-b-c");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (container_names_parse(others[i], &got, id))
			fail_msg("%s is taken for a container's log", others[i]);
	}
	/* longer than Kubernetes allows */
	snprintf(name, sizeof(name), "%0253d_%063d_%063d-" ID ".log", 0, 0, 0);
	assert_true(container_names_parse(name, &got, id));
	snprintf(name, sizeof(name), "%0254d_%063d_%063d-" ID ".log", 0, 0, 0);
	assert_false(container_names_parse(name, &got, id));
	snprintf(name, sizeof(name), "%0253d_%064d_%063d-" ID ".log", 0, 0, 0);
	assert_false(container_names_parse(name, &got, id));
	snprintf(name, sizeof(name), "%0253d_%063d_%064d-" ID ".log", 0, 0, 0);
	assert_false(container_names_parse(name, &got, id));
}

/* A row of the process: 1 if its name was asked for, and not found. */
static size_t row(struct process *process, uint64_t now_ns)
{
	size_t held = process->holds, asked;

	service_name_read(process, now_ns);
	asked = process->holds - held;
	while (process->holds) {
		struct pollfd fd = { .fd = readers_fd(), .events = POLLIN };

		poll(&fd, 1, 10);
		readers_complete(NULL, NULL);
	}
	return asked;
}

static void test_an_unreadable_environment_is_read_each_30_s(void **state)
{
	pid_t child = fork();
	struct process process = { 0 };
	size_t asked = 0;

	(void)state;
	if (!child)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	process.host_pid = (uint32_t)child; /* without /proc/PID/environ */
	for (uint64_t ms = 0; ms < 90000; ms += 10)
		asked += row(&process, NSEC_PER_SEC + ms * NSEC_PER_MSEC);
	assert_int_equal(asked, 3); /* 9,000 rows in 90 s */
	assert_int_equal(process.service_state, SERVICE_UNREAD);
	assert_true(readers_stop());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_service),
		cmocka_unit_test(test_container),
		cmocka_unit_test(test_an_unreadable_environment_is_read_each_30_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
