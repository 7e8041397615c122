// SPDX-License-Identifier: Apache-2.0
/* Pids in a command's words. See pids.h. */
#include "commands/pids.h"

#include <ctype.h>
#include <stdlib.h>

static int add(struct pid_list *pids, uint32_t pid, struct why *why)
{
	uint32_t *items = realloc(pids->items, (pids->n + 1) * sizeof(*items));

	if (!items)
		return why_fail(why, ENOMEM, "out of memory");
	pids->items = items;
	pids->items[pids->n++] = pid;
	return 0;
}

static int add_word(struct pid_list *pids, const char *word, struct why *why)
{
	const char *at = word;
	int err = 0;

	do {
		char *end;
		unsigned long pid = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;

		if (!pid || pid > INT32_MAX || (*end && *end != ','))
			return why_fail(why, EINVAL, "'%s' is no option and no pid", word);
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
