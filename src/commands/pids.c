// SPDX-License-Identifier: Apache-2.0
/* Pids in a command's words. See pids.h. */
#include "commands/pids.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "host/cgroup.h"
#include "host/proc.h"

static int add(struct pid_list *pids, uint32_t pid, struct why *why)
{
	uint32_t *items;

	for (size_t i = 0; i < pids->n; i++) {
		if (pids->items[i] == pid) /* given twice, or of two names */
			return 0;
	}
	items = realloc(pids->items, (pids->n + 1) * sizeof(*items));
	if (!items)
		return why_fail(why, ENOMEM, "out of memory");
	pids->items = items;
	pids->items[pids->n++] = pid;
	return 0;
}

/* ---- words that are no pids ---- */

struct search {
	struct pid_list *pids;
	const char *word;
	size_t found;
	int err;
	struct why *why;
};

/* The path of any hierarchy, or a path above. `lines`: /proc/PID/cgroup. */
static bool is_in_cgroup(const char *lines, const char *path)
{
	size_t len = strlen(path);

	for (const char *line = lines; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *at = strchr(line, '/');

		if (at && at < line + strcspn(line, "\n") && !strncmp(at, path, len) &&
		    (!at[len] || at[len] == '\n' || at[len] == '/'))
			return true;
	}
	return false;
}

static bool is_in_unit(const char *lines, const char *word)
{
	char unit[CGROUP_UNIT_MAX + 1];
	size_t len = strlen(cgroup_unit(lines, unit));

	return len && !strncmp(unit, word, len) && (!word[len] || !strcmp(word + len, ".service"));
}

/* A program's name, a unit, or a cgroup's path. */
static bool fits(uint32_t pid, const char *word)
{
	char text[4096];
	ssize_t len = proc_read(pid, "comm", text, sizeof(text));

	if (len > 0 && text[len - 1] == '\n')
		text[len - 1] = 0;
	if (len > 0 && !strcmp(text, word))
		return true;
	if (proc_read(pid, "cgroup", text, sizeof(text)) <= 0)
		return false;
	return *word == '/' ? is_in_cgroup(text, word) : is_in_unit(text, word);
}

static void add_if_fits(uint32_t pid, void *context)
{
	struct search *s = context;

	if (s->err || pid == (uint32_t)getpid() || !fits(pid, s->word))
		return;
	s->err = add(s->pids, pid, s->why);
	s->found++;
}

static bool is_trace_id(const char *word)
{
	return strlen(word) == 32 && strspn(word, "0123456789abcdefABCDEF") == 32;
}

static int add_named(struct pid_list *pids, const char *word, struct why *why)
{
	struct search search = { .pids = pids, .word = word, .why = why };
	char clean[256];

	proc_for_each(add_if_fits, &search);
	if (search.err || search.found)
		return search.err;
	return why_fail(
		why, EINVAL,
		"'%s' is no option and no pid, and no process has that name, unit or cgroup: %s",
		text_printable(clean, sizeof(clean), word),
		is_trace_id(word) ? "`underspan explain TRACE_ID` tells of one request"
				  : "`underspan doctor` lists the Python processes");
}

static int add_word(struct pid_list *pids, const char *word, struct why *why)
{
	const char *at = word;
	int err = 0;

	if (word[strspn(word, "0123456789,")])
		return add_named(pids, word, why);
	do {
		char *end;
		unsigned long pid = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;

		if (!pid || pid > INT32_MAX || (*end && *end != ','))
			return why_fail(why, EINVAL, "'%s' is no option and no pid%s", word,
					strlen(word) > 10 ? ": `underspan explain REQUEST_ID` "
							    "tells of one request"
							  : "");
		err = add(pids, (uint32_t)pid, why);
		at = *end ? end + 1 : NULL;
	} while (!err && at);
	return err;
}

int pids_parse(const struct option_table *tables, int argc, char **argv, struct pid_list *pids,
	       struct why *why)
{
	AUTO_FREE char **words = calloc((size_t)argc + 1, sizeof(*words));
	size_t n_words = (size_t)argc;
	int err = words ? config_parse(tables, argc, argv, words, &n_words, why)
			: why_fail(why, ENOMEM, "out of memory");

	for (size_t i = 0; !err && i < n_words; i++)
		err = add_word(pids, words[i], why);
	return err;
}
