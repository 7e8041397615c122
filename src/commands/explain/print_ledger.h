/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the ledger as text: waterfall, surroundings, causes, parts not measured. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_PRINT_LEDGER_H
#define UNDERSPAN_COMMANDS_EXPLAIN_PRINT_LEDGER_H

#include <jansson.h>

/* `requests`: of ledger.h, with "causes" of causes.h. All texts are made printable. */
void print_ledger(const json_t *requests);

#endif
