/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The query of a view, cut up at its common table expressions, so that `underspan explain` can ask
 * for some of these by themselves and hand their rows on as literals.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_VIEW_TEXT_H
#define UNDERSPAN_COMMANDS_EXPLAIN_VIEW_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum { VIEW_PIECES = 64 };

/* `NAME AS (...),`, or a different entry of the list (an alias of an expression): `name` is NULL.
 */
struct view_piece {
	char *name, *body;
	bool step; /* marked by `--explain-step`: asked by itself */
};

/* Zero-initialized. */
struct view_text {
	char *text;
	struct view_piece pieces[VIEW_PIECES];
	size_t n;
	char *final;	/* the SELECT after the list */
	char *settings; /* its clause SETTINGS */
};

/* Of a file of sql/views/, with the conditions for explain. -ENOMEM. */
int view_text_read(struct view_text *v, const char *path);
void view_text_free(struct view_text *v);

/* False: no memory. */
bool view_text_set_body(struct view_piece *piece, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* A question with the pieces that `final` needs. Heap; NULL: out of memory. */
char *view_text_question(const struct view_text *v, const char *final);

#endif
