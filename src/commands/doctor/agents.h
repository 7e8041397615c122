/* SPDX-License-Identifier: Apache-2.0 */
/* Agents of the host that write the same rows, as findings of doctor. */
#ifndef UNDERSPAN_COMMANDS_DOCTOR_AGENTS_H
#define UNDERSPAN_COMMANDS_DOCTOR_AGENTS_H

#include "clickhouse/client.h"

/* Adds a finding per pair of such agents; none if there is no such pair. */
void doctor_check_agents(void);

/*
 * After doctor_check_agents(), as this host's agents may be known to watch different processes:
 * adds a finding if reports of the last hour are of two agents at a time. Not fatal: an error of
 * the question is no finding.
 */
void doctor_check_reports(struct clickhouse_client *client, const char *host);

#endif
