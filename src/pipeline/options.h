/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the delivery: batches, memory, spool. */
#ifndef UNDERSPAN_PIPELINE_OPTIONS_H
#define UNDERSPAN_PIPELINE_OPTIONS_H

#include "config.h"
#include "pipeline/pipeline.h"

/* Filled through pipeline_options; put the table into the command's array of tables. */
extern struct pipeline_limits pipeline_limits;
extern bool pipeline_async_insert;
extern const struct option_table pipeline_options;

#endif
