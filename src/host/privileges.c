// SPDX-License-Identifier: Apache-2.0
/* Capabilities kept. See privileges.h; the same list is in deploy/README.md. */
#include "host/privileges.h"

#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "host/kernel.h"

enum { MAX_KEPT = 8 };

static bool has(cap_t caps, cap_value_t cap)
{
	cap_flag_value_t value = CAP_CLEAR;

	/* kernels without the capability return EINVAL */
	return !cap_get_flag(caps, cap, CAP_PERMITTED, &value) && value == CAP_SET;
}

static size_t list_kept(const struct privileges_needs *needs, cap_t now, cap_value_t *kept)
{
	bool without = has(now, CAP_BPF) && has(now, CAP_PERFMON);
	size_t n = 0;

	kept[n++] = CAP_BPF;		    /* maps, also through descriptors, before Linux 6.0 */
	kept[n++] = CAP_PERFMON;	    /* attach to tracepoints and uprobes */
	kept[n++] = CAP_SYS_PTRACE;	    /* other users' /proc/PID and memory */
	kept[n++] = CAP_DAC_READ_SEARCH;    /* their binaries */
	kept[n++] = CAP_CHECKPOINT_RESTORE; /* their /proc/PID/map_files */
	if (needs->uprobes || needs->stats || !without || kernel_perf_needs_admin())
		kept[n++] = CAP_SYS_ADMIN; /* uprobes since 6.16; run time of BPF programs */
	if (needs->child)
		kept[n++] = CAP_KILL;
	return n;
}

static bool is_in(cap_value_t cap, const cap_value_t *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (list[i] == cap)
			return true;
	}
	return false;
}

/* Not allowed without CAP_SETPCAP; the service manager is responsible then. */
static void shrink_bounding_set(const cap_value_t *kept, size_t n)
{
	for (cap_value_t cap = 0; cap <= CAP_LAST_CAP; cap++) {
		if (!is_in(cap, kept, n))
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	}
}

/* Reduces `kept` to the permitted capabilities. */
static size_t keep_what_there_is(cap_t now, cap_value_t *kept, size_t n)
{
	size_t left = 0;

	for (size_t i = 0; i < n; i++) {
		if (has(now, kept[i]))
			kept[left++] = kept[i];
	}
	return left;
}

static void log_kept(const cap_value_t *kept, size_t n)
{
	char names[256] = "";

	for (size_t i = 0; i < n; i++) {
		char *name = cap_to_name(kept[i]);

		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
			 i ? ", " : "", name ? name : "?");
		cap_free(name);
	}
	log_debug("privileges: keeps %s", names);
}

/* Permanently keeps only the permitted capabilities of `kept`. */
static void keep_only(cap_t now, cap_value_t *kept, size_t n)
{
	cap_t wanted = cap_init();

	shrink_bounding_set(kept, n);
	n = keep_what_there_is(now, kept, n);
	/* libcap refuses an empty list */
	if (!wanted ||
	    (n && (cap_set_flag(wanted, CAP_PERMITTED, (int)n, kept, CAP_SET) ||
		   cap_set_flag(wanted, CAP_EFFECTIVE, (int)n, kept, CAP_SET))) ||
	    cap_set_proc(wanted))
		log_warn("cannot give up capabilities: %s", strerror(errno));
	else
		log_kept(kept, n);
	cap_free(wanted);
}

void privileges_drop(const struct privileges_needs *needs)
{
	cap_t now = cap_get_proc();
	cap_value_t kept[MAX_KEPT];

	if (now)
		keep_only(now, kept, list_kept(needs, now, kept));
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	cap_free(now);
}

void privileges_drop_to_reading(void)
{
	cap_t now = cap_get_proc();
	cap_value_t kept[] = { CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE };

	if (now && !has(now, CAP_CHECKPOINT_RESTORE))
		kept[2] = CAP_SYS_ADMIN; /* also opens /proc/PID/map_files */
	if (now)
		keep_only(now, kept, ARRAY_SIZE(kept));
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	cap_free(now);
}
