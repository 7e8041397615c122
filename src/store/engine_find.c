// SPDX-License-Identifier: Apache-2.0
/* The usual places of libchdb and of a clickhouse program. See engine_find.h. */
#include "store/engine_find.h"

#include <string.h>
#include <sys/stat.h>

static int program_directory(char *buf, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);
	char *slash;

	if (n <= 0)
		return -ENOENT;
	buf[n] = '\0';
	slash = strrchr(buf, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/*
 * The script that fetches the library, as installed with this program: the message has a path that
 * can be typed.
 */
static const char *script(char buf[PATH_MAX])
{
	static const char *const beside[] = { "../share/underspan", "../deploy", "../../deploy" };
	char directory[PATH_MAX], path[PATH_MAX + 32];
	bool known = !program_directory(directory, sizeof(directory));

	for (size_t i = 0; known && i < ARRAY_SIZE(beside); i++) {
		snprintf(path, sizeof(path), "%s/%s/libchdb.sh", directory, beside[i]);
		if (is_file(path) && realpath(path, buf))
			return buf;
	}
	return "deploy/libchdb.sh of the source tree (/usr/share/underspan/libchdb.sh of a package)";
}

static bool is_program(const char *path)
{
	return is_file(path) && access(path, X_OK) == 0;
}

static int refuse_path(const char *asked, struct why *why)
{
	char buf[PATH_MAX];
	struct stat st;

	if (stat(asked, &st))
		return why_fail(why, ENOENT,
				"no ClickHouse engine at %s: %s: leave --libchdb out for the usual "
				"places, or fetch the library by %s",
				asked, strerror(errno), script(buf));
	return why_fail(why, EINVAL,
			"no ClickHouse engine at %s: %s: name the library, as in "
			"--libchdb=DIR/libchdb.so",
			asked, S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
}

static int refuse_program(const char *asked, struct why *why)
{
	struct stat st;

	if (stat(asked, &st))
		return why_fail(why, ENOENT,
				"no clickhouse program at %s: %s: name the file, as in "
				"--store_program=/usr/bin/clickhouse, or leave the option out: the "
				"program of PATH is found",
				asked, strerror(errno));
	return why_fail(why, EINVAL,
			"no clickhouse program at %s: %s: name the program, as in "
			"--store_program=/usr/bin/clickhouse",
			asked,
			S_ISDIR(st.st_mode)    ? "a directory"
			: !S_ISREG(st.st_mode) ? "not a regular file"
					       : "not executable");
}

/* Is there an executable clickhouse program in the directory? */
static bool has_program(const char *directory, size_t len, char *ret_path)
{
	static const char *const names[] = { "clickhouse", "clickhouse-local" };

	/* a relative directory of PATH depends on the working directory */
	for (size_t i = 0; len && *directory == '/' && i < ARRAY_SIZE(names); i++) {
		if (snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)len, directory, names[i]) <
			    PATH_MAX &&
		    is_program(ret_path))
			return true;
	}
	return false;
}

static bool find_program(char *ret_path)
{
	static const char *const usual[] = { "/usr/bin", "/usr/local/bin", "/opt/clickhouse" };
	const char *path = getenv("PATH") ?: "";

	for (size_t len; *path; path += len + (path[len] == ':')) {
		len = strcspn(path, ":");
		if (has_program(path, len, ret_path))
			return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++) {
		if (has_program(usual[i], strlen(usual[i]), ret_path))
			return true;
	}
	return false;
}

static bool find_library(char *ret_path)
{
	static const char *const beside[] = { "../lib/underspan", "cache/libchdb",
					      "../cache/libchdb" };
	static const char *const system[] = { "/usr/lib/underspan", "/usr/local/lib/underspan" };
	char directory[PATH_MAX];

	if (program_directory(directory, sizeof(directory)) == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
			if (snprintf(ret_path, PATH_MAX, "%s/%s/libchdb.so", directory, beside[i]) <
				    PATH_MAX &&
			    is_file(ret_path))
				return true;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(system); i++) {
		if (snprintf(ret_path, PATH_MAX, "%s/libchdb.so", system[i]) < PATH_MAX &&
		    is_file(ret_path))
			return true;
	}
	return false;
}

static int take(const char *asked, bool program, struct engine_place *ret, struct why *why)
{
	if (program ? !is_program(asked) : !is_file(asked))
		return program ? refuse_program(asked, why) : refuse_path(asked, why);
	/* the store's process starts the program from / */
	if (program ? !realpath(asked, ret->path)
		    : snprintf(ret->path, sizeof(ret->path), "%s", asked) >= (int)sizeof(ret->path))
		return why_fail(why, ENAMETOOLONG, "the path %s is too long", asked);
	ret->is_program = program;
	return 0;
}

int engine_find(const struct engine_choice *choice, struct engine_place *ret, struct why *why)
{
	const char *env = getenv("UNDERSPAN_LIBCHDB");
	const char *library = choice->libchdb ?: env && *env ? env : NULL;
	char buf[PATH_MAX];

	if (library && choice->program)
		return why_fail(
			why, EINVAL,
			"libchdb (%.150s) and store_program (%.150s) exclude each other: give "
			"only one",
			library, choice->program);
	if (library || choice->program)
		return take(library ?: choice->program, !library, ret, why);
	ret->is_program = false;
	if (find_library(ret->path))
		return 0;
	ret->is_program = true;
	if (find_program(ret->path))
		return 0;
	return why_fail(
		why, ENOENT,
		"no ClickHouse engine for a store: libchdb.so is missing: run %s, or give its "
		"path with --libchdb=FILE; nor is a clickhouse program in PATH, /usr/bin, "
		"/usr/local/bin or /opt/clickhouse: install one, or give its path with "
		"--store_program=FILE",
		script(buf));
}
