/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of spans in the embedded engine: created, and written. */
#ifndef UNDERSPAN_STORE_OTLP_INSERT_H
#define UNDERSPAN_STORE_OTLP_INSERT_H

#include "base/text.h"
#include "base/util.h"
#include "store/engine.h"

/* Creates sql/otel/ where missing, and turns on the recognition of repeated blocks. */
int otlp_create_tables(struct engine *engine, struct why *why);

/* Appends rows (JSON lines) as one block. Returns 0 or ClickHouse's exception code, with why. */
int otlp_insert(struct engine *engine, struct text rows, struct why *why);

#endif
