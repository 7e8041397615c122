// SPDX-License-Identifier: Apache-2.0
/* DDL for a single server and for clusters. See ddl.h. */
#include "clickhouse/ddl.h"
#include "clickhouse/ddl_places.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Replaces comments by spaces for word searches; quoted text is kept. */
static char *without_comments(const char *text)
{
	char *copy = strdup(text);
	char quote = 0;

	for (char *p = copy; p && *p; p++) {
		if (quote) {
			if (*p == '\\' && p[1])
				p++;
			else if (*p == quote)
				quote = 0;
		} else if (*p == '\'' || *p == '`' || *p == '"') {
			quote = *p;
		} else if (p[0] == '-' && p[1] == '-') {
			for (; *p && *p != '\n'; p++)
				*p = ' ';
			if (!*p)
				break;
		}
	}
	return copy;
}

/* Next occurrence of `word` as a whole word. */
static char *find_word(char *text, const char *word)
{
	size_t n = strlen(word);

	for (char *p = strstr(text, word); p; p = strstr(p + 1, word)) {
		if ((p == text || !is_word(p[-1])) && !is_word(p[n]))
			return p;
	}
	return NULL;
}

bool ddl_mentions(const char *text, const char *table)
{
	AUTO_FREE char *plain = without_comments(text);

	return plain && find_word(plain, table) != NULL;
}

static char *skip_space(char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

/* Skips "  WORD..." with any white space between words; NULL: no match */
static char *skip_words(char *p, const char *words)
{
	while (*words) {
		size_t n = strcspn(words, " ");

		p = skip_space(p);
		if (strncmp(p, words, n) != 0 || is_word(p[n]))
			return NULL;
		p += n;
		words += n;
		words += *words == ' ';
	}
	return skip_space(p);
}

/* Removes the closing semicolon; false: missing, or several. */
static bool cut_semicolon(char *text)
{
	char *found = NULL;
	char quote = 0;

	for (char *p = text; *p; p++) {
		if (found && !isspace((unsigned char)*p))
			return false;
		if (quote && *p == '\\' && p[1])
			p++;
		else if (quote)
			quote = *p == quote ? 0 : quote;
		else if (*p == '\'' || *p == '`' || *p == '"')
			quote = *p;
		else if (*p == ';')
			found = p;
	}
	if (found)
		*found = '\0';
	return found != NULL;
}

static int bad_file(const char *name, const char *what, struct why *why)
{
	return why_fail(why, EINVAL, "sql/%s: %s", name, what);
}

/*
 * ENGINE = [Any]MergeTree[(args)] -> ENGINE = Replicated[Any]MergeTree(path, replica[, args]), or
 * of another kind (ddl_places.engine), which has no path.
 */
static char *on_cluster(char *after_name, const char *prefix, const char *cluster)
{
	static const char where[] = "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'";
	const char *family = ddl_engine_prefix(cluster);
	bool has_path = !strcmp(family, "Replicated");
	char *engine = find_word(after_name, "ENGINE");
	char *kind, *rest, *out = NULL;
	char args[256] = "";
	size_t kind_len = 0;

	if (!engine)
		return NULL;
	kind = skip_space(engine + strlen("ENGINE"));
	if (*kind != '=')
		return NULL;
	kind = skip_space(kind + 1);
	while (is_word(kind[kind_len]))
		kind_len++;
	if (kind_len < 9 || strncmp(kind + kind_len - 9, "MergeTree", 9) != 0)
		return NULL;
	rest = kind + kind_len;
	if (*rest == '(') {
		size_t n = strcspn(rest, ")");

		if (!rest[n] || n > sizeof(args) - 4)
			return NULL;
		if (n > 1)
			snprintf(args, sizeof(args), "%s%.*s", has_path ? ", " : "", (int)n - 1,
				 rest + 1);
		rest += n + 1;
	}
	if (asprintf(&out, "%s_local ON CLUSTER '%s' %.*sENGINE = %s%.*s%s%s%s%s%s", prefix,
		     cluster, (int)(engine - after_name), after_name, family, (int)kind_len, kind,
		     has_path || *args ? "(" : "", has_path ? where : "", args,
		     has_path || *args ? ")" : "", rest) < 0)
		return NULL;
	return out;
}

/* Each server would have its own current database. NULL: no memory. */
static char *database_literal(void)
{
	const char *name = ddl_places.database;
	char *out = NULL;
	size_t size;
	FILE *f;

	if (!name)
		return strdup("currentDatabase()");
	f = open_memstream(&out, &size);
	if (!f)
		return NULL;
	fputc('\'', f);
	for (; *name; name++)
		fprintf(f, "%s%c", strchr("'\\", *name) ? "\\" : "", *name);
	fputc('\'', f);
	if (!fclose(f))
		return out;
	free(out);
	return NULL;
}

static int cluster_table(const char *name, char *after, const char *cluster, struct ddl *ddl,
			 struct why *why)
{
	/* all rows of a host on a single shard: joins by (host, pid, tid) are local */
	const char *key = find_word(after, "host") ? "cityHash64(host)" : "rand()";
	AUTO_FREE char *database = NULL;
	char table[128], prefix[256];
	size_t n = 0;

	while (is_word(after[n]))
		n++;
	if (!n || n >= sizeof(table))
		return bad_file(name, "no table name behind CREATE TABLE IF NOT EXISTS", why);
	snprintf(table, sizeof(table), "%.*s", (int)n, after);
	snprintf(prefix, sizeof(prefix), "CREATE TABLE IF NOT EXISTS %s", table);
	ddl->statements[0] = on_cluster(skip_space(after + n), prefix, cluster);
	if (!ddl->statements[0])
		return bad_file(name, "ENGINE is not of the MergeTree family", why);
	database = database_literal();
	if (!database ||
	    asprintf(
		    &ddl->statements[1],
		    "%s ON CLUSTER '%s' AS %s_local\nENGINE = Distributed('%s', %s, '%s_local', %s)",
		    prefix, cluster, table, cluster, database, table, key) < 0) {
		ddl->statements[1] = NULL;
		return why_fail(why, ENOMEM, "out of memory");
	}
	return 0;
}

static int cluster_view(const char *name, char *plain, char *after, const char *cluster,
			struct ddl *ddl, struct why *why)
{
	size_t n = 0;

	while (is_word(after[n]))
		n++;
	if (!n)
		return bad_file(name, "no name behind CREATE VIEW", why);
	if (asprintf(&ddl->statements[0], "%.*s ON CLUSTER '%s'%s", (int)(after + n - plain), plain,
		     cluster, after + n) < 0) {
		ddl->statements[0] = NULL;
		return why_fail(why, ENOMEM, "out of memory");
	}
	return 0;
}

/* Statements contain the cluster's name in quotes. */
static bool is_cluster_name(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-{}");

	return n > 0 && n < 128 && !s[n];
}

int ddl_check_cluster(const char *cluster, struct why *why)
{
	if (!cluster || is_cluster_name(cluster))
		return 0;
	return why_fail(why, EINVAL,
			"cluster: '%.100s' is no cluster's name: `underspan sql 'SELECT DISTINCT "
			"cluster FROM system.clusters'` lists those of the server",
			cluster);
}

int ddl_make(const char *name, const char *text, const char *cluster, struct ddl *ret_ddl,
	     struct why *why)
{
	AUTO_FREE char *plain = without_comments(text);
	struct ddl ddl = { 0 };
	char *table, *view;
	int err;

	if (!plain)
		return why_fail(why, ENOMEM, "out of memory");
	err = ddl_check_cluster(cluster, why);
	if (err)
		return err;
	if (!cut_semicolon(plain))
		return bad_file(name, "must hold one statement, with a semicolon at the end", why);
	table = skip_words(plain, "CREATE TABLE IF NOT EXISTS");
	view = skip_words(plain, "CREATE VIEW IF NOT EXISTS");
	if (!view)
		view = skip_words(plain, "CREATE OR REPLACE VIEW");
	if (!table && !view)
		return bad_file(name,
				"must begin with CREATE TABLE IF NOT EXISTS, CREATE VIEW IF NOT "
				"EXISTS or CREATE OR REPLACE VIEW",
				why);
	if (!cluster) {
		/* printed for people: with comments */
		size_t n = strlen(text);

		while (n && (isspace((unsigned char)text[n - 1]) || text[n - 1] == ';'))
			n--;
		ddl.statements[0] = strndup(text, n);
		err = ddl.statements[0] ? 0 : why_fail(why, ENOMEM, "out of memory");
	} else if (table) {
		err = cluster_table(name, table, cluster, &ddl, why);
	} else {
		err = cluster_view(name, plain, view, cluster, &ddl, why);
	}
	if (!err && table)
		err = ddl_places_put(&ddl.statements[0], cluster, why);
	if (err)
		ddl_free(&ddl);
	else
		*ret_ddl = ddl;
	return err;
}

void ddl_free(struct ddl *ddl)
{
	for (size_t i = 0; i < ARRAY_SIZE(ddl->statements); i++)
		free(ddl->statements[i]);
	*ddl = (struct ddl){ 0 };
}
