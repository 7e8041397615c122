/* SPDX-License-Identifier: Apache-2.0 */
/* Delivery options: batches, memory, spool. */
#ifndef UNDERSPAN_PIPELINE_OPTIONS_H
#define UNDERSPAN_PIPELINE_OPTIONS_H

#include "base/config.h"
#include "pipeline/pipeline.h"

/* Filled through pipeline_options, which a command adds to its array of option tables. */
extern struct pipeline_limits pipeline_limits;
extern bool pipeline_async_insert;
extern const struct option_table pipeline_options;

#endif
