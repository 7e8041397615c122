/* SPDX-License-Identifier: Apache-2.0 */
/* Option values: conversion between text and target. Private to config*.c. */
#ifndef UNDERSPAN_BASE_CONFIG_VALUE_H
#define UNDERSPAN_BASE_CONFIG_VALUE_H

#include "base/option.h"
#include "base/util.h"

/* `text` is NULL for a flag without a value. 0, -EINVAL or -ENOMEM with why. */
int config_set(const struct option *o, const char *text, struct why *why);

/* Appends an item to an OPTION_LIST or OPTION_PIDS. */
int config_add_item(const struct option *o, const char *text, size_t len, struct why *why);

/* Empties lists, frees strings, sets a bool to false; numbers are unchanged. */
void config_clear(const struct option *o);

/* The target's value in the user's notation; '' for no value. Returns `buf`. */
char *config_show(const struct option *o, char *buf, size_t size);

/* The key's environment variable: UNDERSPAN_HANDOFF_MIN_DURATION_US. Returns `buf`. */
char *config_variable(const char *key, char *buf, size_t size);

#endif
