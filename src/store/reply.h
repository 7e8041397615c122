/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes back: the pieces that the engine has given so far and, for a streamed SELECT, the
 * session that gives the rest while the client reads; packed on the way when the client asked so.
 */
#ifndef UNDERSPAN_STORE_REPLY_H
#define UNDERSPAN_STORE_REPLY_H

#include <microhttpd.h>
#include <stdbool.h>

#include "store/engine.h"

enum { EXCEPTION_TAG_LEN = 16 };

struct reply;

/* Takes the session over. `connection` is the one that will carry the reply. */
struct reply *reply_new(struct session *session, const struct engine *engine,
			struct MHD_Connection *connection, unsigned int client_timeout_s);
void reply_free(struct reply *reply);

/* Takes the result over. */
int reply_add(struct reply *reply, struct engine_result *result);
size_t reply_size(const struct reply *reply);

/* The session's stream goes on behind the pieces added so far. */
void reply_stream_rest(struct reply *reply);

/*
 * The reply as microhttpd wants it, which frees the reply when it is sent or broken off. An error
 * after the first bytes comes between exception marks that carry `tag`, as from a ClickHouse
 * server, and the connection breaks, so that no client takes half an answer for a whole one.
 */
struct MHD_Response *reply_response(struct reply *reply, bool gzip, const char *tag);

/* An exception as ClickHouse words it: "Code: ... (NAME) (version V)\n"; heap, NULL: no memory. */
char *exception_text(const char *error, const char *version);

#endif
