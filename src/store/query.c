// SPDX-License-Identifier: Apache-2.0
/* One HTTP query: parameters to session, statement to engine, result to reply. See query.h. */
#include "store/query.h"

#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "clickhouse/client.h"
#include "store/parameters.h"
#include "store/reply.h"
#include "clickhouse/statement.h"
#include "base/version.h"

enum {
	/* a reply is held back up to this size, so that an error can still set the status */
	HOLD_BACK_BYTES = 1 << 20,
};

struct query {
	struct request_context *context;
	struct MHD_Connection *connection;
	bool is_get;
	uint64_t start_ns;
	struct parameters parameters;
	struct statement statement;
	char *joined; /* query parameter and body concatenated, if parsed together */
	char format[64];
	struct engine_stats stats;
	struct failure failure;
};

struct MHD_Response *failure_response(const struct request_context *context, const char *error,
				      unsigned int *ret_status)
{
	char *text = exception_text(error, engine_version(context->engine));
	struct MHD_Response *response;
	char code[16];

	if (!text)
		return NULL;
	snprintf(code, sizeof(code), "%d", clickhouse_exception_code(text, strlen(text)));
	*ret_status = exception_http_status(clickhouse_exception_code(text, strlen(text)));
	response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
		return NULL;
	}
	MHD_add_response_header(response, "Content-Type", "text/plain; charset=UTF-8");
	MHD_add_response_header(response, "X-ClickHouse-Exception-Code", code);
	if (*ret_status == 401)
		MHD_add_response_header(response, "WWW-Authenticate",
					"Basic realm=\"ClickHouse server HTTP API\"");
	return response;
}

/* As ClickHouse does: the query parameter, a line break, the body. */
static int parse_statement(struct query *q, struct text body)
{
	struct text whole = q->parameters.sql.len ? q->parameters.sql : body;

	statement_parse(whole, &q->statement);
	/* an INSERT with FORMAT is complete: the body is data */
	if (!q->parameters.sql.len || !body.len ||
	    (q->statement.kind == STATEMENT_INSERT_DATA && q->statement.format.len))
		return 0;
	if (q->statement.kind == STATEMENT_INSERT_SELECT && q->statement.format.len) {
		q->statement.inline_select_data = true;
		return 0;
	}
	q->joined = malloc(q->parameters.sql.len + 1 + body.len);
	if (!q->joined)
		return -ENOMEM;
	memcpy(q->joined, q->parameters.sql.at, q->parameters.sql.len);
	q->joined[q->parameters.sql.len] = '\n';
	memcpy(q->joined + q->parameters.sql.len + 1, body.at, body.len);
	statement_parse((struct text){ q->joined, q->parameters.sql.len + 1 + body.len },
			&q->statement);
	return 0;
}

static const char *readonly_text(const struct query *q)
{
	return q->is_get ? "default: Cannot execute query in readonly mode. For queries over HTTP, "
			   "method GET implies readonly. You should use method POST for modifying "
			   "queries"
			 : "default: Cannot execute query in readonly mode";
}

static void check_statement(struct query *q)
{
	struct statement *s = &q->statement;
	struct text format = s->format.len ? s->format : q->parameters.default_format;

	if (s->kind == STATEMENT_INSERT_DATA && !s->format.len)
		format = (struct text){ "Values", 6 };
	if (s->kind == STATEMENT_EMPTY)
		set_failure(&q->failure, EXCEPTION_SYNTAX_ERROR, "Syntax error: Empty query");
	else if (s->many)
		set_failure(&q->failure, EXCEPTION_SYNTAX_ERROR,
			    "Syntax error (Multi-statements are not allowed)");
	else if (s->outfile)
		set_failure(&q->failure, EXCEPTION_INTO_OUTFILE_NOT_ALLOWED,
			    "INTO OUTFILE and FROM INFILE are not allowed");
	else if (s->kills)
		set_failure(&q->failure, EXCEPTION_ACCESS_DENIED,
			    "SYSTEM SHUTDOWN and SYSTEM KILL are not allowed; stop the store's "
			    "process instead");
	else if (s->inline_select_data)
		set_failure(
			&q->failure, EXCEPTION_NOT_IMPLEMENTED,
			"INSERT ... SELECT ... FROM input() with data is not supported by this store; "
			"insert the data as they are");
	else if (q->parameters.reads_only && !s->reads)
		set_failure(&q->failure, EXCEPTION_READONLY, "%s", readonly_text(q));
	else if (!is_plain_name(format) || format.len >= sizeof(q->format))
		set_failure(&q->failure, EXCEPTION_BAD_ARGUMENTS, "Bad format name '%.*s'",
			    (int)(format.len < 100 ? format.len : 100), format.at);
	else
		snprintf(q->format, sizeof(q->format), "%.*s", (int)format.len, format.at);
}

/* A new session with the request's database and settings. NULL: see `failure`. */
static struct session *open_session(struct query *q)
{
	struct session *session = session_new(q->context->engine);
	struct engine_result result = { 0 };
	AUTO_FREE char *use = NULL;
	size_t len = 0, size = 0;

	if (!session) {
		set_failure(&q->failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED,
			    "The engine takes no session");
		return NULL;
	}
	session_name(session, q->parameters.id);
	if (q->parameters.database.len && !text_is(q->parameters.database, "default")) {
		AUTO_FREE char *sql = NULL;

		if (append_quoted(&use, &len, &size, q->parameters.database, '`') &&
		    asprintf(&sql, "USE %s", use) > 0)
			session_set(session, (struct text){ sql, strlen(sql) }, &result);
	}
	if (!result.error && q->parameters.settings) {
		engine_result_free(&result);
		session_set(session,
			    (struct text){ q->parameters.settings, q->parameters.settings_len },
			    &result);
	}
	if (result.error) {
		q->failure.code = clickhouse_exception_code(result.error, strlen(result.error))
					  ?: EXCEPTION_UNKNOWN_EXCEPTION;
		snprintf(q->failure.text, sizeof(q->failure.text), "%s", result.error);
		session_free(session);
		session = NULL;
	}
	engine_result_free(&result);
	return session;
}

static void add_stats(struct engine_stats *sum, const struct engine_stats *s)
{
	sum->read_rows += s->read_rows;
	sum->read_bytes += s->read_bytes;
	sum->written_rows += s->written_rows;
	sum->written_bytes += s->written_bytes;
	sum->result_rows += s->result_rows;
}

/* Adds a block to the reply, or stores its error in `failure`. False: empty block. */
static bool keep_result(struct query *q, struct reply *reply, struct engine_result *result)
{
	bool any = result->bytes.len > 0 && !result->error;

	if (result->error) {
		q->failure.code = clickhouse_exception_code(result->error, strlen(result->error))
					  ?: EXCEPTION_UNKNOWN_EXCEPTION;
		snprintf(q->failure.text, sizeof(q->failure.text), "%s", result->error);
		if (q->failure.code == EXCEPTION_READONLY && q->is_get)
			set_failure(&q->failure, EXCEPTION_READONLY, "%s", readonly_text(q));
	} else {
		add_stats(&q->stats, &result->stats);
		if (reply_add(reply, result) < 0)
			set_failure(&q->failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED, "Out of memory");
	}
	engine_result_free(result);
	return any;
}

static void run_insert(struct query *q, struct session *session, struct reply *reply,
		       struct text body)
{
	struct statement *s = &q->statement;
	struct text parts[3];
	struct engine_result result;
	size_t n = 0;

	if (s->data.len)
		parts[n++] = s->data;
	/* a concatenated or body-only statement already contains its data */
	if (q->parameters.sql.len && !q->joined && body.len) {
		if (n)
			parts[n++] = (struct text){ "\n", 1 };
		parts[n++] = body;
	}
	session_insert(session, s->sql, q->format, &q->parameters.values, parts, n, &result);
	keep_result(q, reply, &result);
}

/* False: the statement cannot be streamed; nothing was executed. */
static bool run_stream(struct query *q, struct session *session, struct reply *reply)
{
	struct engine_result result;
	bool unsupported, going = true;

	session_stream_begin(session, q->statement.sql, q->format, &q->parameters.values, &result,
			     &unsupported);
	if (unsupported) {
		engine_result_free(&result);
		return false;
	}
	if (result.error) {
		keep_result(q, reply, &result);
		return true;
	}
	while (going && !q->failure.code &&
	       (q->parameters.wait_end || reply_size(reply) < HOLD_BACK_BYTES)) {
		session_stream_next(session, &result);
		going = keep_result(q, reply, &result);
	}
	if (going && !q->failure.code)
		reply_stream_rest(reply);
	return true;
}

/* Returns the reply, or NULL with `failure` set. */
static struct reply *run(struct query *q, struct text body)
{
	struct text format = { q->format, strlen(q->format) };
	bool stream = q->statement.kind == STATEMENT_SELECT && format_can_stream(format);

	/* second attempt without streaming if unsupported */
	while (true) {
		struct session *session = open_session(q);
		struct engine_result result;
		struct reply *reply;
		bool done = true;

		if (!session)
			return NULL;
		reply = reply_new(session, q->context->engine, q->connection,
				  q->context->client_timeout_s);
		if (!reply) {
			session_free(session);
			set_failure(&q->failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED, "Out of memory");
			return NULL;
		}
		if (q->statement.kind == STATEMENT_INSERT_DATA) {
			run_insert(q, session, reply, body);
		} else if (stream) {
			done = run_stream(q, session, reply);
		} else {
			session_run(session, q->statement.sql, q->format, &q->parameters.values,
				    &result);
			keep_result(q, reply, &result);
			if (!reply_size(reply) && !q->failure.code &&
			    !session_parses(session, q->statement.sql))
				set_failure(&q->failure, EXCEPTION_SYNTAX_ERROR,
					    "Syntax error: this is no statement");
		}
		if (done && !q->failure.code)
			return reply;
		reply_free(reply);
		if (done)
			return NULL;
		stream = false;
	}
}

static void add_headers(const struct query *q, struct MHD_Response *response)
{
	char summary[512];

	snprintf(summary, sizeof(summary),
		 "{\"read_rows\":\"%llu\",\"read_bytes\":\"%llu\",\"written_rows\":\"%llu\","
		 "\"written_bytes\":\"%llu\",\"total_rows_to_read\":\"0\",\"result_rows\":\"%llu\","
		 "\"result_bytes\":\"0\",\"elapsed_ns\":\"%llu\"}",
		 (unsigned long long)q->stats.read_rows, (unsigned long long)q->stats.read_bytes,
		 (unsigned long long)q->stats.written_rows,
		 (unsigned long long)q->stats.written_bytes,
		 (unsigned long long)q->stats.result_rows,
		 (unsigned long long)(clock_monotonic_ns() - q->start_ns));
	MHD_add_response_header(response, "X-ClickHouse-Query-Id", q->parameters.id);
	if (engine_counts(q->context->engine))
		MHD_add_response_header(response, "X-ClickHouse-Summary", summary);
	MHD_add_response_header(response, "X-ClickHouse-Timezone",
				engine_timezone(q->context->engine));
	MHD_add_response_header(response, "X-ClickHouse-Server-Display-Name", q->context->hostname);
	MHD_add_response_header(response, "X-Underspan-Store", UNDERSPAN_VERSION);
}

static struct MHD_Response *respond(struct query *q, struct reply *reply, unsigned int *ret_status)
{
	struct text format = { q->format, strlen(q->format) };
	bool output = q->statement.kind != STATEMENT_INSERT_DATA &&
		      q->statement.kind != STATEMENT_INSERT_SELECT;
	char tag[EXCEPTION_TAG_LEN + 1];
	struct MHD_Response *response;

	random_hex(tag, EXCEPTION_TAG_LEN);
	response = reply_response(reply, q->parameters.gzip, tag);
	if (!response) {
		reply_free(reply);
		return NULL;
	}
	*ret_status = MHD_HTTP_OK;
	MHD_add_response_header(response, "Content-Type",
				output ? format_content_type(format) : "text/plain; charset=UTF-8");
	if (output) {
		MHD_add_response_header(response, "X-ClickHouse-Format", q->format);
		MHD_add_response_header(response, "X-ClickHouse-Exception-Tag", tag);
	}
	if (q->parameters.gzip)
		MHD_add_response_header(response, "Content-Encoding", "gzip");
	return response;
}

struct MHD_Response *query_respond(struct request_context *context,
				   struct MHD_Connection *connection, bool is_get, struct text body,
				   unsigned int *ret_status)
{
	struct query q = { .context = context,
			   .connection = connection,
			   .is_get = is_get,
			   .start_ns = clock_monotonic_ns() };
	struct MHD_Response *response = NULL;
	struct reply *reply = NULL;

	parameters_read(&q.parameters, connection, is_get);
	q.failure = q.parameters.failure;
	if (!q.failure.code && parse_statement(&q, body) < 0)
		set_failure(&q.failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED, "Out of memory");
	if (!q.failure.code)
		check_statement(&q);
	/* writes and DDL are completed even if the client has disconnected */
	if (!q.failure.code && (q.statement.reads || q.statement.kind == STATEMENT_INSERT_SELECT))
		client_asks(client_of(connection), q.parameters.id);
	if (!q.failure.code)
		reply = run(&q, body);
	if (reply)
		response = respond(&q, reply, ret_status);
	else
		response = failure_response(context, q.failure.text, ret_status);
	if (response)
		add_headers(&q, response);
	parameters_free(&q.parameters);
	free(q.joined);
	return response;
}
