/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of libchdb's C interface (26.7) used by the store. The library is loaded at run
 * time and the package has no header, so the declarations are repeated here under libchdb's names.
 */
#ifndef UNDERSPAN_STORE_CHDB_ABI_H
#define UNDERSPAN_STORE_CHDB_ABI_H

#include <stddef.h>
#include <stdint.h>

/* A connection is a handle to a handle: chdb_connect() returns the argument of chdb_close_conn().
 */
typedef struct chdb_connection_handle *chdb_connection;
typedef struct chdb_result_handle chdb_result;
typedef struct chdb_insert_handle *chdb_insert;

/* result of chdb_classify_query_n(); the caller sets struct_size */
struct chdb_query_analysis {
	uint32_t struct_size;
	uint32_t statement_count; /* 0: empty or not parsed */
	uint32_t flags;
	uint32_t query_class;
};

/* return type, name, arguments: the store resolves only these functions */
#define CHDB_FUNCTIONS(X)                                                                          \
	X(const char *, chdb_version, (void))                                                      \
	X(void, chdb_set_signal_handlers_enabled, (int enabled))                                   \
	X(chdb_connection *, chdb_connect, (int argc, char **argv))                                \
	X(void, chdb_close_conn, (chdb_connection * connection))                                   \
	X(int, chdb_shutdown, (void))                                                              \
	X(chdb_result *, chdb_query_with_params_n,                                                 \
	  (chdb_connection, const char *query, size_t query_len, const char *format,               \
	   size_t format_len, const char *const *names, const size_t *name_lens,                   \
	   const char *const *values, const size_t *value_lens, size_t n_params))                  \
	X(chdb_result *, chdb_stream_query_with_params_n,                                          \
	  (chdb_connection, const char *query, size_t query_len, const char *format,               \
	   size_t format_len, const char *const *names, const size_t *name_lens,                   \
	   const char *const *values, const size_t *value_lens, size_t n_params))                  \
	X(chdb_result *, chdb_stream_fetch_result, (chdb_connection, chdb_result * stream))        \
	X(void, chdb_stream_cancel_query, (chdb_connection, chdb_result * stream))                 \
	X(chdb_insert, chdb_stream_insert_with_params_n,                                           \
	  (chdb_connection, const char *query, size_t query_len, const char *format,               \
	   size_t format_len, const char *const *names, const size_t *name_lens,                   \
	   const char *const *values, const size_t *value_lens, size_t n_params))                  \
	X(int, chdb_classify_query_n,                                                              \
	  (chdb_connection, const char *query, size_t query_len, const char *database,             \
	   size_t database_len, struct chdb_query_analysis *analysis))                             \
	X(const char *, chdb_stream_insert_error, (chdb_insert))                                   \
	X(int, chdb_stream_append, (chdb_insert, const void *bytes, size_t len))                   \
	X(chdb_result *, chdb_stream_done, (chdb_insert))                                          \
	X(void, chdb_destroy_insert_stream, (chdb_insert))                                         \
	X(char *, chdb_result_buffer, (chdb_result *))                                             \
	X(size_t, chdb_result_length, (chdb_result *))                                             \
	X(const char *, chdb_result_error, (chdb_result *))                                        \
	X(uint64_t, chdb_result_rows_read, (chdb_result *))                                        \
	X(uint64_t, chdb_result_storage_rows_read, (chdb_result *))                                \
	X(uint64_t, chdb_result_storage_bytes_read, (chdb_result *))                               \
	X(uint64_t, chdb_result_rows_written, (chdb_result *))                                     \
	X(uint64_t, chdb_result_bytes_written, (chdb_result *))                                    \
	X(void, chdb_destroy_query_result, (chdb_result *))

#endif
