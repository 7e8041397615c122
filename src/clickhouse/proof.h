/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a server that sends no header of ClickHouse is one. */
#ifndef UNDERSPAN_CLICKHOUSE_PROOF_H
#define UNDERSPAN_CLICKHOUSE_PROOF_H

#include "clickhouse/endpoint.h"

/*
 * For an answer without a header of ClickHouse, which a proxy may have removed: asks a question
 * that only a database answers rightly. -EREMOTEIO: answered, and wrongly. 0 also in doubt: no
 * answer, an error.
 */
int clickhouse_prove(const struct clickhouse_endpoint *endpoint, struct why *why);

#endif
