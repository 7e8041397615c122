// SPDX-License-Identifier: Apache-2.0
/* `underspan sql`: sends a statement to ClickHouse or a store, prints the answer to stdout. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clickhouse/client.h"
#include "clickhouse/exceptions.h"
#include "clickhouse/proof.h"
#include "clickhouse/sql_files.h"
#include "commands/database.h"
#include "commands/commands.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/util.h"

enum { MAX_QUERY_BYTES = 64 << 20 };

static char *format;

static const struct option options[] = {
	{ .key = "format",
	  .type = OPTION_STRING,
	  .target = &format,
	  .arg = "FORMAT",
	  .help = "of the answer",
	  .otherwise = "PrettyCompact on a terminal, else TabSeparatedWithNames" },
};
const struct option_table sql_options = { options, ARRAY_SIZE(options) };

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

/* ---- progress and cancellation ---- */

static volatile sig_atomic_t ended_by; /* the signal received */

static void end_question(int signal)
{
	ended_by = signal;
}

/* Cancels the query in the server, too; a second signal ends the process at once. */
static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = end_question, .sa_flags = (int)SA_RESETHAND };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		struct sigaction old;

		/* keeps nohup in effect */
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	}
}

static bool has_no_reader(void)
{
	struct pollfd p = { .fd = STDOUT_FILENO };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
}

static struct {
	struct clickhouse_client *client, *asker; /* for the query; for its progress */
	uint64_t begin_ns;
	time_t last_s;
	bool shown;
} progress;

static double elapsed(void)
{
	return (double)(clock_monotonic_ns() - progress.begin_ns) / 1e9;
}

static void clear_progress(void)
{
	if (progress.shown)
		fputs("\r\033[K", stderr);
	progress.shown = false;
}

static void show_progress(void)
{
	static const char sql[] = "SELECT sum(read_rows), formatReadableSize(sum(read_bytes)) FROM "
				  "system.processes WHERE " CLICKHOUSE_IS_QUERY;
	const struct clickhouse_param params[] = {
		{ "param_id", clickhouse_client_query_id(progress.client) }, { 0 }
	};
	AUTO_FREE char *text = NULL;
	char *tab, bytes[64];
	struct clickhouse_reply reply;

	if (clickhouse_query_text(progress.asker, sql, "TabSeparated", params, &text, NULL, &reply,
				  NULL) < 0)
		return;
	tab = strchr(text, '\t');
	if (!tab)
		return;
	*tab++ = '\0';
	tab[strcspn(tab, "\n")] = '\0';
	fprintf(stderr, "\r\033[K%.0f s, %.1f million rows read, %s; stop with Ctrl-C", elapsed(),
		strtod(text, NULL) / 1e6, text_printable(bytes, sizeof(bytes), tab));
	fflush(stderr);
	progress.shown = true;
}

/* Called about every second during the query; true cancels the query. */
static bool look_around(void)
{
	if (ended_by || has_no_reader())
		return true;
	if (progress.asker && elapsed() >= (double)progress.last_s + 1) {
		progress.last_s = (time_t)elapsed();
		show_progress();
	}
	return false;
}

static int begin_progress(const struct clickhouse_endpoint *endpoint, struct why *why)
{
	struct clickhouse_endpoint brief = *endpoint;

	progress.begin_ns = clock_monotonic_ns();
	if (!terminal_obeys(STDERR_FILENO))
		return 0;
	brief.patient = false;
	brief.give_up = NULL;
	brief.connect_timeout_ns = brief.stall_timeout_ns = brief.timeout_ns = NSEC_PER_SEC;
	return clickhouse_client_new(&brief, &progress.asker, why);
}

/* ---- output ---- */

struct output {
	struct terminal_text *text; /* NULL: unchanged, into a pipe */
	const struct clickhouse_endpoint *endpoint;
	struct clickhouse_reply reply;
	bool proven;	       /* the answer is ClickHouse's */
	struct why not_proven; /* "": not so far */
};

/* Before anything is printed, and after an answer without a byte. */
static int prove(struct output *output)
{
	int err = 0;

	if (!output->proven && !output->reply.from_clickhouse)
		err = clickhouse_prove(output->endpoint, &output->not_proven);
	output->proven = true;
	return err;
}

static int print_bytes(const char *bytes, size_t n, void *context)
{
	struct output *output = context;
	int err = prove(output);

	if (err)
		return err;
	clear_progress();
	if (output->text)
		return terminal_text_print(output->text, bytes, n, stdout);
	return fwrite(bytes, 1, n, stdout) == n ? 0 : -(errno ?: EIO);
}

static int ask_and_print(const char *query, struct output *output, struct why *why)
{
	const struct clickhouse_param params[] = { { "wait_end_of_query", "1" }, { 0 } };
	const char *default_format = output->text ? "PrettyCompact" : "TabSeparatedWithNames";
	int err = clickhouse_query(progress.client, query, format ?: default_format, params,
				   print_bytes, output, &output->reply, why);

	if (!err)
		err = prove(output);
	if (*output->not_proven.text)
		*why = output->not_proven;
	return err;
}

static int ask(const char *query, int *ret_code, struct why *why)
{
	struct terminal_text text = { { 0 } };
	struct clickhouse_target target;
	struct output output = { .text = isatty(STDOUT_FILENO) ? &text : NULL };
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	output.endpoint = &target.endpoints[0];
	target.endpoints[0].give_up = look_around;
	err = clickhouse_client_new(&target.endpoints[0], &progress.client, why);
	if (!err)
		err = begin_progress(&target.endpoints[0], why);
	if (!err) {
		catch_signals();
		err = ask_and_print(query, &output, why);
		*ret_code = output.reply.exception_code;
	}
	clear_progress();
	/* success only after the output is written */
	if (!err && fflush(stdout) != 0)
		err = why_fail(why, errno, "cannot write the answer: %s", strerror(errno));
	clickhouse_client_free(progress.client);
	clickhouse_client_free(progress.asker);
	clickhouse_release(&target);
	return err;
}

/* ---- what somebody meant ---- */

/* Names of files in these folders of sql/, in turn; NULL: end. */
static const char *next_name(const struct sql_file **at, const char *const folders[], char name[64])
{
	const struct sql_file *f = *at;

	for (; f->path; f++) {
		for (size_t i = 0; folders[i]; i++) {
			size_t len = strlen(folders[i]);

			if (strncmp(f->path, folders[i], len) != 0)
				continue;
			snprintf(name, 64, "%.*s", (int)strcspn(f->path + len, "."), f->path + len);
			*at = f + 1;
			return name;
		}
	}
	return NULL;
}

static const char *const own_tables[] = { "tables/", "views/", NULL };
static const char *const own_queries[] = { "queries/", NULL };

static bool is_query_file(const char *word)
{
	const struct sql_file *at = sql_files;
	char name[64];

	while (next_name(&at, own_queries, name)) {
		if (!strcmp(name, word))
			return true;
	}
	return false;
}

static int check_query(const char *query, struct why *why)
{
	size_t len = strlen(query);
	char clean[256];

	if (!query[strspn(query, " \t\r\n;")])
		return why_fail(why, EINVAL, "the query is empty: underspan sql 'SELECT 1'");
	if (!strpbrk(query, " \t\n(") &&
	    ((len > 4 && !strcmp(query + len - 4, ".sql")) || access(query, F_OK) == 0))
		return why_fail(why, EINVAL,
				"'%s' is a file's name, no query: `underspan sql - < FILE` reads "
				"the query from a file",
				text_printable(clean, sizeof(clean), query));
	return is_query_file(query)
		       ? why_fail(why, EINVAL,
				  "'%s' is a file of underspan's queries: `underspan sql - < "
				  "sql/queries/%s.sql` (packages: /usr/share/underspan/sql)",
				  query, query)
		       : 0;
}

static bool is_own_table(const char *name, size_t len)
{
	const struct sql_file *at = sql_files;
	char own[64];

	while (next_name(&at, own_tables, own)) {
		if (strlen(own) == len && !strncmp(own, name, len))
			return true;
	}
	return false;
}

/* "; did you mean ebpf_handoff?" */
static const char *similar_table(const char *name, size_t len, char *buf, size_t size)
{
	const struct sql_file *at = sql_files;
	char names[64][64];
	struct nearest nearest;

	nearest_begin(&nearest, name, len);
	for (size_t i = 0; i < ARRAY_SIZE(names) && next_name(&at, own_tables, names[i]); i++)
		nearest_try(&nearest, names[i]);
	return nearest_hint(&nearest, "", "", buf, size);
}

/* Up to the fourth of the words that the server would have expected: it lists all that exist. */
static size_t without_list(const char *text)
{
	static const char expected[] = "Expected one of: ";
	const char *at = strstr(text, expected);

	if (!at)
		return strlen(text);
	at += sizeof(expected) - 1;
	for (int words = 1; words < 4 && at[strcspn(at, ",")]; words++)
		at += strcspn(at, ",") + 1;
	return (size_t)(at - text) + strcspn(at, ",");
}

/* "... identifier 'otel.ebpf_request' ...", a table that the server does not have. */
static const char *fix_of(const char *text, int code, char *buf, size_t size)
{
	static const char identifier[] = "identifier '";
	const char *name = strstr(text, identifier), *dot;
	size_t len;

	if (code == EXCEPTION_SYNTAX_ERROR && strstr(text, "Multi-statements"))
		return ": give one statement, a second with a second `underspan sql`";
	if (code == EXCEPTION_EMPTY_LIST_OF_COLUMNS_QUERIED ||
	    code == EXCEPTION_EMPTY_LIST_OF_COLUMNS_PASSED)
		return ": request, request_time and request_time_parts take a window, as in "
		       "request_time(from = now() - INTERVAL 1 HOUR, to = now())";
	if (code == EXCEPTION_UNKNOWN_QUERY_PARAMETER)
		return ": write the value in the place of the parameter";
	if (code != EXCEPTION_UNKNOWN_TABLE || !name)
		return "";
	name += sizeof(identifier) - 1;
	len = strcspn(name, "'");
	dot = memchr(name, '.', len);
	if (dot) {
		len -= (size_t)(dot + 1 - name);
		name = dot + 1;
	}
	return is_own_table(name, len)
		       ? ": `underspan schema --apply` makes underspan's tables and views"
		       : similar_table(name, len, buf, size);
}

/* "Code: 73. DB::Exception: Code: 73. DB::Exception: ... (version V). (UNKNOWN_FORMAT) (version
 * V)": the innermost. */
static const char *innermost(const char *text, size_t *ret_len)
{
	static const char word[] = "DB::Exception: ";
	const char *end = strstr(text, word), *begin = text, *version;
	size_t prefix = end ? (size_t)(end - text) + sizeof(word) - 1 : 0;

	while (prefix && !strncmp(begin + prefix, text, prefix))
		begin += prefix;
	*ret_len = without_list(begin);
	version = begin > text ? strstr(begin, "(version ") : NULL;
	if (version && version[strcspn(version, ")")])
		*ret_len = (size_t)(version - begin) + strcspn(version, ")") + 1;
	return begin;
}

static void print_error(const char *text, int code)
{
	char hint[128];
	size_t len, more;
	const char *begin = innermost(text, &len);

	more = begin == text && begin[len];
	log_error("%.*s%s%s", (int)len, begin, more ? " ..." : "",
		  fix_of(text, code, hint, sizeof(hint)));
}

int command_sql(int argc, char **argv)
{
	const struct option_table tables[] = { sql_options, clickhouse_options, { 0 } };
	AUTO_FREE char *from_stdin = NULL;
	struct why why = { { 0 } };
	char *words[16], *word;
	size_t n = ARRAY_SIZE(words);
	int code = 0, err = config_parse(tables, argc, argv, words, &n, &why);

	if (err == 1) {
		puts("usage: underspan sql (--clickhouse=URL | --store=DIR) [OPTIONS] QUERY\n\n"
		     "Runs one query. QUERY '-' reads the query from standard input.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err && n == 0)
		err = why_fail(&why, EINVAL, "which query? underspan sql --store=DIR 'SELECT 1'");
	if (!err && n > 1)
		err = why_fail(
			&why, EINVAL,
			"unexpected argument '%.200s': the query is one argument, in quotes, "
			"as in underspan sql 'SELECT 1'",
			words[1]);
	word = err ? NULL : words[0];
	if (!err && !strcmp(word, "-")) {
		err = read_stdin(&from_stdin, &why);
		word = from_stdin;
	}
	if (!err)
		err = check_query(word, &why);
	if (!err)
		err = ask(word, &code, &why);
	if (ended_by) {
		/* ends by the signal, as shells expect */
		signal(ended_by, SIG_DFL);
		raise(ended_by);
	}
	if (err)
		print_error(why.text, code);
	config_free(tables);
	return err == -EINVAL ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_DONE;
}
