// SPDX-License-Identifier: Apache-2.0
/* `underspan sql`: one statement to ClickHouse or a store, the answer to stdout. */
#include <stdio.h>
#include <string.h>

#include "clickhouse/client.h"
#include "clickhouse/target.h"
#include "commands/commands.h"
#include "config.h"
#include "log.h"
#include "util.h"

enum { MAX_QUERY_BYTES = 64 << 20 };

static char *format;

static const struct option options[] = {
	{ .key = "format",
	  .type = OPTION_STRING,
	  .target = &format,
	  .arg = "FORMAT",
	  .help = "of the answer (PrettyCompact on a terminal, else TabSeparatedWithNames)" },
};

static int read_stdin(char **ret_text, struct why *why)
{
	size_t len = 0, size = 64 * 1024;
	char *text = malloc(size), *grown;

	while (text) {
		size_t n = fread(text + len, 1, size - len - 1, stdin);

		len += n;
		if (!n) {
			if (ferror(stdin) || memchr(text, '\0', len)) {
				free(text);
				return why_fail(why, EINVAL,
						"cannot read a query from standard input");
			}
			text[len] = '\0';
			*ret_text = text;
			return 0;
		}
		if (size - len > 1)
			continue;
		size *= 2;
		grown = size > MAX_QUERY_BYTES ? NULL : realloc(text, size);
		if (!grown)
			free(text);
		text = grown;
	}
	return why_fail(why, EFBIG, "the query on standard input is too large");
}

static int print_bytes(const char *bytes, size_t n, void *context)
{
	(void)context;
	return fwrite(bytes, 1, n, stdout) == n ? 0 : -(errno ?: EIO);
}

static int ask(const char *query, struct why *why)
{
	const struct clickhouse_param params[] = { { "wait_end_of_query", "1" }, { 0 } };
	const char *default_format = isatty(STDOUT_FILENO) ? "PrettyCompact"
							   : "TabSeparatedWithNames";
	struct clickhouse_client *client = NULL;
	struct clickhouse_target target;
	struct clickhouse_reply reply;
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = clickhouse_client_new(&target.endpoints[0], &client, why);
	if (!err)
		err = clickhouse_query(client, query, format ?: default_format, params, print_bytes,
				       NULL, &reply, why);
	/* the answer is only there when it is written */
	if (!err && fflush(stdout) != 0)
		err = why_fail(why, errno, "cannot write the answer: %s", strerror(errno));
	clickhouse_client_free(client);
	clickhouse_release(&target);
	return err;
}

int command_sql(int argc, char **argv)
{
	const struct option_table tables[] = { { options, ARRAY_SIZE(options) },
					       clickhouse_options,
					       { 0 } };
	AUTO_FREE char *from_stdin = NULL;
	struct why why = { { 0 } };
	char *word = NULL;
	size_t n = 1;
	int err = config_parse(tables, argc, argv, &word, &n, &why);

	if (err == 1) {
		puts("usage: underspan sql (--clickhouse=URL | --store=DIR) [OPTIONS] QUERY\n\n"
		     "Asks one question; QUERY - reads it from standard input.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err && n == 0)
		err = why_fail(&why, EINVAL, "which query? underspan sql --store=DIR 'SELECT 1'");
	if (!err && !strcmp(word, "-")) {
		err = read_stdin(&from_stdin, &why);
		word = from_stdin;
	}
	if (!err)
		err = ask(word, &why);
	if (err)
		log_error("%s", why.text);
	config_free(tables);
	return err == -EINVAL ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_DONE;
}
