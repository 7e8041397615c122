/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of Kubernetes containers by container id, from the file names in /var/log/containers, which
 * the kubelet makes: "<pod>_<namespace>_<container>-<container id>.log". No API server is asked.
 * Collector thread only.
 */
#ifndef UNDERSPAN_HOST_CONTAINER_NAMES_H
#define UNDERSPAN_HOST_CONTAINER_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "host/cgroup.h"

enum { K8S_LABEL_MAX = 63, K8S_POD_MAX = 253 }; /* RFC 1123: a label, a subdomain */

struct container_names {
	char pod[K8S_POD_MAX + 1];
	char namespace[K8S_LABEL_MAX + 1];
	char container[K8S_LABEL_MAX + 1];
};

/*
 * The names; NULL: unknown. An unknown id reads the directory again, at most every two seconds.
 * Borrowed until the next call. `now_ns`: CLOCK_MONOTONIC.
 */
const struct container_names *container_names_find(const char *container_id, uint64_t now_ns);

/* False: not the name of a container's log. `ret_id`: the container's id. */
bool container_names_parse(const char *file_name, struct container_names *ret,
			   char ret_id[CONTAINER_ID_MAX + 1]);

void container_names_free(void);

#endif
