/* SPDX-License-Identifier: Apache-2.0 */
/* Forms in which `underspan offcpu` writes all stacks of a measurement. */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_FORMS_H
#define UNDERSPAN_COMMANDS_OFFCPU_FORMS_H

#include <jansson.h>
#include <stdio.h>

#include "commands/offcpu/folded.h"

enum offcpu_form {
	FORM_TABLE, /* none of these forms */
	FORM_SVG,
	FORM_FOLDED,
	FORM_JSON,
	FORM_HTML,
	FORM_PPROF,
	FORM_SPEEDSCOPE,
};

/* Names of files by form, for help and errors. */
#define FORM_FILES                                                                                 \
	"FILE.html or FILE.svg for a flame graph, FILE.folded or FILE.json for stacks, "           \
	"FILE.pb.gz for pprof, FILE.speedscope.json"

/* The form for a file's suffix. */
enum offcpu_form offcpu_form_of(const char *path);

struct offcpu_result {
	struct folded *folded; /* is sorted anew */
	int64_t from_us;       /* wall clock */
	uint64_t duration_ns;
	const json_t *window;  /* of a database (stored.h); NULL: measured live, see watched.h */
	const json_t *by_lock; /* see locks.h; NULL: not known */
	bool compared;	       /* `before` of the stacks is set */
	bool with_cpu;	       /* stacks of time on a CPU are among them: the leaf is [cpu] */
	const char *subtitle;  /* one line, may contain untrusted names */
};

/* 0, -ENOMEM or -EIO. */
int offcpu_write(enum offcpu_form form, const struct offcpu_result *result, FILE *out);

#endif
