/* SPDX-License-Identifier: Apache-2.0 */
/* Where, in the code, a request's thread waited or computed, for the sentences of causes.c. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_PLACE_H
#define UNDERSPAN_COMMANDS_EXPLAIN_PLACE_H

#include <jansson.h>
#include <stdbool.h>

#include "commands/explain/cause.h"

/* With this share of a part, a place or a wait is said to be all of it. */
enum { PLACE_SHARE_PERCENT = 85 };

/*
 * ", in PLACE"; where its rows have less than that share of the cause's part, ", 120.1 ms of it in
 * PLACE": the rest was elsewhere, or was too short for rows. Without rows, where the thread waited
 * most in the seconds around, by the sums of off_cpu. "": not known.
 */
struct place {
	char text[370];
};

/* Of the waits of a request with a cause, where they took longest together. */
struct place place_of(const json_t *request, const struct cause *c, const char *cause);

/* Does a wait of a millisecond or longer with that cause have a known place? */
bool place_has_row(const json_t *request, const char *cause);

/* Is it code that runs while a module is imported? Functions that it calls are not known as such.
 */
bool place_imports(const char *place);

/* How many waits of a millisecond and longer the thread had there. */
size_t place_waits(const json_t *request, const char *cause);

/*
 * Where a request's thread computed: ", 12 of 14 samples in PLACE", by the samples of on_cpu. "":
 * there was none with known code.
 */
struct place place_of_computation(const json_t *request);

/* Of one wait for a lock, with the other waits for locks at the same place; NULL: not known. */
struct place place_of_wait(const json_t *request, const struct cause *c, const json_t *wait);

#endif
