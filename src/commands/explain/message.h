/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that have a lock as their means and are for a message of another thread: no thread has that
 * lock, so words about its holder would mislead. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_MESSAGE_H
#define UNDERSPAN_COMMANDS_EXPLAIN_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>

struct message {
	const char *library; /* of a wait: sql/explain/library.inc */
	const char *words;   /* "the thread waited for ..." */
	const char *fix;
	bool fix_if_gave_up; /* also if no thread ended the wait */
};

/* NULL: the frames of the wait do not prove one of these. */
const struct message *message_of(const char *library);

/* Adds "waited_for", the words, to those of some waits that are for a message. */
void message_name_waits(json_t *waits);

#endif
