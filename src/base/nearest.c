// SPDX-License-Identifier: Apache-2.0
/* The nearest name. See nearest.h. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LEN = 63 }; /* longer words match no name */

static char plain(char c)
{
	return (char)(c == '-' ? '_' : tolower((unsigned char)c));
}

static size_t least(size_t a, size_t b, size_t c)
{
	size_t ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* Edit distance: insertion, deletion, substitution, swap of neighbours. */
static size_t distance_of(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t rows[3][MAX_LEN + 1], *above2 = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_len; j++)
		above[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t *oldest = above2;

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			bool same = plain(a[i - 1]) == plain(b[j - 1]);

			row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + !same);
			if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) &&
			    plain(a[i - 2]) == plain(b[j - 1]) && above2[j - 2] + 1 < row[j])
				row[j] = above2[j - 2] + 1;
		}
		above2 = above;
		above = row;
		row = oldest;
	}
	return above[b_len];
}

static bool begins_with(const char *name, const char *typed, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (plain(name[i]) != plain(typed[i]))
			return false;
	}
	return true;
}

void nearest_begin(struct nearest *n, const char *typed, size_t len)
{
	*n = (struct nearest){ .typed = typed, .len = len, .distance = SIZE_MAX };
}

void nearest_try(struct nearest *n, const char *name)
{
	size_t len = strlen(name), limit = n->len < 4 ? 1 : n->len < 8 ? 2 : 3, distance;
	size_t common = least(n->len, len, SIZE_MAX);

	if (!n->len || n->len > MAX_LEN || len > MAX_LEN)
		return;
	distance = distance_of(n->typed, n->len, name, len);
	/* a prefix of a name matches, and a name that is a prefix of the word; the longer one is
	 * nearer */
	if (distance > limit && common >= 3 && begins_with(name, n->typed, common))
		distance = limit;
	if (distance > limit || distance > n->distance ||
	    (distance == n->distance && common <= least(n->len, strlen(n->name), SIZE_MAX)))
		return;
	n->distance = distance;
	n->name = name;
}

char *nearest_hint(const struct nearest *n, const char *prefix, const char *otherwise, char *buf,
		   size_t size)
{
	if (n->name)
		snprintf(buf, size, "; did you mean %s%s?", prefix, n->name);
	else
		snprintf(buf, size, "%s", otherwise);
	return buf;
}
