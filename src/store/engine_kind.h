/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is for the store: libchdb.c, program.c. See engine.h for the meaning of each. */
#ifndef UNDERSPAN_STORE_ENGINE_KIND_H
#define UNDERSPAN_STORE_ENGINE_KIND_H

#include "store/engine.h"

struct engine_kind {
	int (*open)(const struct engine_options *options, struct engine **ret_engine,
		    struct why *why);
	void (*close)(struct engine *engine);
	void (*cancel)(struct engine *engine, const char *id); /* NULL: all */
	void (*free_result)(struct engine_result *result);     /* what `handle` holds */
	struct session *(*new_session)(struct engine *engine);
	void (*free_session)(struct session *session);
	void (*set)(struct session *session, struct text sql, struct engine_result *ret_result);
	void (*run)(struct session *session, struct text sql, const char *format,
		    const struct engine_params *params, struct engine_result *ret_result);
	bool (*parses)(struct session *session, struct text sql);
	void (*stream_begin)(struct session *session, struct text sql, const char *format,
			     const struct engine_params *params, struct engine_result *ret_result,
			     bool *ret_unsupported);
	void (*stream_next)(struct session *session, struct engine_result *ret_result);
	void (*insert)(struct session *session, struct text sql, const char *format,
		       const struct engine_params *params, const struct text *parts, size_t n_parts,
		       struct engine_result *ret_result);
	bool counts; /* rows and bytes read and written */
};

/* The first member of each kind's own. */
struct engine {
	const struct engine_kind *kind;
	char version[64], timezone[64];
};

struct session {
	struct engine *engine;
	char id[256]; /* for engine_cancel() */
};

extern const struct engine_kind engine_libchdb, engine_program;

#endif
