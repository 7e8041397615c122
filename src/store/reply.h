/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a response: blocks from the engine and, for a streamed SELECT, the session that
 * produces further blocks while the client reads. Compressed on the fly if requested.
 */
#ifndef UNDERSPAN_STORE_REPLY_H
#define UNDERSPAN_STORE_REPLY_H

#include <microhttpd.h>
#include <stdbool.h>

#include "store/engine.h"

enum { EXCEPTION_TAG_LEN = 16 };

struct reply;

/* Takes ownership of the session. `connection` will carry the reply. */
struct reply *reply_new(struct session *session, const struct engine *engine,
			struct MHD_Connection *connection, unsigned int client_timeout_s);
void reply_free(struct reply *reply);

/* Takes ownership of the result. */
int reply_add(struct reply *reply, struct engine_result *result);
size_t reply_size(const struct reply *reply);

/* The session's stream follows the blocks added so far. */
void reply_stream_rest(struct reply *reply);

/*
 * Wraps the reply for microhttpd, which frees the reply after sending or abort. An error after the
 * first bytes is sent between exception marks with `tag`, as ClickHouse does, and the connection is
 * aborted: no client can mistake a truncated answer for a complete answer.
 */
struct MHD_Response *reply_response(struct reply *reply, bool gzip, const char *tag);

/* An exception in ClickHouse's form: "Code: ... (NAME) (version V)\n"; heap; NULL: out
 * of memory. */
char *exception_text(const char *error, const char *version);

#endif
