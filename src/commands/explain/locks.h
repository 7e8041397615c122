/* SPDX-License-Identifier: Apache-2.0 */
/* Who had the lock that a request's thread waited for, and what that thread did meanwhile. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_LOCKS_H
#define UNDERSPAN_COMMANDS_EXPLAIN_LOCKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The longest wait for a lock among "waits" of a request; NULL: none has a row. */
const json_t *lock_longest_wait(const json_t *request);

/* A wait in Condition.wait(), Queue.get() and the like: for a message of another thread, nobody
 * holds it. */
bool lock_is_message(const json_t *wait);

/*
 * Of the longest wait for a lock among "waits" of a request, by "lock_waits", rows of
 * explain/lock_waits.sql: [{tid, thread_name, held_ms, did, did_ms, place}], longest first. A
 * holder is the thread that ended the wait; before that, the thread that ended the holder's own
 * wait for the same lock, and so on. `did`: the holder's longest wait meanwhile, "" if none. NULL:
 * out of memory.
 */
json_t *lock_holders(const json_t *request);

/*
 * {lock: address, waits: during the longest wait, the request's own included, at_once: threads in
 * these waits at the same moment, at most}; null: the address is not known.
 */
json_t *lock_queue(const json_t *request);

#endif
