// SPDX-License-Identifier: Apache-2.0
/* Command lines of agents. See agent_line.h. */
#include "agent/agent_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "host/proc.h"

/* ---- words ---- */

struct words {
	const char *at, *end;
};

/* NULL: no further word that is whole. */
static const char *next_word(struct words *w)
{
	const char *word = w->at, *nul = memchr(w->at, '\0', (size_t)(w->end - w->at));

	if (!nul)
		return NULL;
	w->at = nul + 1;
	return word;
}

/* The value of --KEY=VALUE and --KEY VALUE, where '-' is as good as '_'; NULL: another word. */
static const char *value_of(struct words *w, const char *word, const char *key)
{
	size_t len = strlen(key);

	if (strncmp(word, "--", 2) != 0)
		return NULL;
	word += 2;
	for (size_t i = 0; i < len; i++) {
		if (word[i] != key[i] && (word[i] != '-' || key[i] != '_'))
			return NULL;
	}
	if (word[len] == '=')
		return word + len + 1;
	return word[len] ? NULL : next_word(w) ?: "";
}

static bool is_set(const char *word, const char *flag)
{
	size_t len = strlen(flag);

	if (strncmp(word, flag, len) != 0)
		return false;
	return !word[len] || (word[len] == '=' && strcmp(word + len, "=false") != 0 &&
			      strcmp(word + len, "=0") != 0);
}

/* ---- values ---- */

static void keep(char *to, size_t size, const char *value)
{
	snprintf(to, size, "%s", strlen(value) < size ? value : "");
}

static void add_trackers(struct agent_line *line, const char *value)
{
	size_t n = strlen(line->trackers);

	if (n + strlen(value) + 2 < sizeof(line->trackers))
		snprintf(line->trackers + n, sizeof(line->trackers) - n, "%s%s", n ? "," : "",
			 value);
}

/* More pids than there is room for: any process may be among them. */
static void add_pids(struct agent_line *line, const char *value, bool *many)
{
	char *end;

	for (; *value; value = *end ? end + 1 : end) {
		unsigned long pid = strtoul(value, &end, 10);

		if (end == value)
			return;
		if (line->n_pids == AGENT_LINE_PIDS)
			*many = true;
		else
			line->pids[line->n_pids++] = (uint32_t)pid;
	}
}

static const char *pids_of(struct words *w, const char *word)
{
	const char *value = value_of(w, word, "pid");

	if (value || strncmp(word, "-p", 2) != 0)
		return value;
	return word[2] ? word + 2 + (word[2] == '=') : next_word(w) ?: "";
}

static void take(struct agent_line *line, struct words *w, const char *word, bool *many)
{
	const char *value;

	if ((value = pids_of(w, word)))
		add_pids(line, value, many);
	else if ((value = value_of(w, word, "trackers")))
		add_trackers(line, value);
	else if ((value = value_of(w, word, "clickhouse_database")))
		keep(line->database, sizeof(line->database), value);
	else if ((value = value_of(w, word, "clickhouse")))
		keep(line->clickhouse, sizeof(line->clickhouse), value);
	else if ((value = value_of(w, word, "store")))
		keep(line->store, sizeof(line->store), value);
}

bool agent_line_parse(const char *words, size_t n, struct agent_line *ret)
{
	struct words w = { words, words + n };
	const char *program = next_word(&w), *word = next_word(&w);
	bool many = false;

	*ret = (struct agent_line){ 0 };
	if (!program || !word || strcmp(word, "run") != 0)
		return false;
	while ((word = next_word(&w))) {
		if (is_set(word, "--stdout") || is_set(word, "--check") || is_set(word, "--list") ||
		    !strcmp(word, "--help"))
			return false;
		take(ret, &w, word, &many);
	}
	if (many)
		ret->n_pids = 0;
	return true;
}

/* ---- comparison ---- */

static bool same_url(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);

	n -= n && a[n - 1] == '/';
	m -= m && b[m - 1] == '/';
	return n == m && !memcmp(a, b, n);
}

static bool one_database(const struct agent_line *a, const struct agent_line *b)
{
	if (*a->store && *b->store)
		return *a->store != '/' || *b->store != '/' || same_url(a->store, b->store);
	if (*a->clickhouse && *b->clickhouse)
		return same_url(a->clickhouse, b->clickhouse) &&
		       !strcmp(*a->database ? a->database : "default",
			       *b->database ? b->database : "default");
	return !(*a->store || *a->clickhouse) || !(*b->store || *b->clickhouse);
}

static bool in_list(const char *list, const char *name, size_t len)
{
	while (*list) {
		size_t n = strcspn(list, ",");

		if (n == len && !memcmp(list, name, n))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

static bool same_trackers(const struct agent_line *a, const struct agent_line *b)
{
	const char *list = a->trackers;

	if (!*list || !*b->trackers)
		return true;
	while (*list) {
		size_t n = strcspn(list, ",");

		if (in_list(b->trackers, list, n))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

/* --pid includes the descendants. */
static bool same_processes(const struct agent_line *a, const struct agent_line *b)
{
	for (size_t i = 0; i < a->n_pids; i++) {
		for (size_t k = 0; k < b->n_pids; k++) {
			if (proc_descends_from(a->pids[i], b->pids[k]) ||
			    proc_descends_from(b->pids[k], a->pids[i]))
				return true;
		}
	}
	return !a->n_pids || !b->n_pids;
}

bool agent_lines_meet(const struct agent_line *a, const struct agent_line *b)
{
	return one_database(a, b) && same_trackers(a, b) && same_processes(a, b);
}
