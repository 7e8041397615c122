// SPDX-License-Identifier: Apache-2.0
/*
 * `clickhouse local`, from the libchdb.so in the directory of --path: the same engine and the same
 * parser of arguments, with the result in memory. Stands for an installed clickhouse program, which
 * Debian does not have: it is copied to a directory of PATH as `clickhouse`. Its end is that of the
 * program: the message on stderr, and a status other than 0. "local" must be the first argument,
 * unless the name is clickhouse-local. With a file `endless` in the directory it writes until it is
 * ended.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* libchdb's older C interface */
struct local_result_v2 {
	char *buf;
	size_t len;
	void *vector;
	double elapsed;
	uint64_t rows_read, bytes_read;
	char *error_message;
};

typedef struct local_result_v2 *(*query_stable_v2)(int argc, char **argv);

/* A file of the directory of --path. */
static void find(int argc, char **argv, const char *name, char path[PATH_MAX])
{
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--path=", 7))
			snprintf(path, PATH_MAX, "%s/%s", argv[i] + 7, name);
	}
}

/* libchdb has a result in memory and writes nothing before its end; the program would. */
static void write_without_end(int argc, char **argv)
{
	static char text[1 << 20];
	char path[PATH_MAX] = "";

	find(argc, argv, "endless", path);
	memset(text, 'x', sizeof(text));
	while (access(path, F_OK) == 0 && write(STDOUT_FILENO, text, sizeof(text)) > 0)
		;
}

static query_stable_v2 load(int argc, char **argv)
{
	char path[PATH_MAX] = "";
	void *library;

	find(argc, argv, "libchdb.so", path);
	library = dlopen(path, RTLD_NOW);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	return library ? (query_stable_v2)dlsym(library, "query_stable_v2") : NULL;
}

/* What the engine wrote to stderr in between. */
static size_t take_messages(int fd, int back, char *buf, size_t size)
{
	ssize_t n;

	fflush(stderr);
	dup2(back, STDERR_FILENO);
	n = pread(fd, buf, size, 0);
	return n > 0 ? (size_t)n : 0;
}

int main(int argc, char **argv)
{
	static char messages[1 << 20];
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
	int fd = memfd_create("messages", MFD_CLOEXEC), back = dup(STDERR_FILENO);
	struct local_result_v2 *result;
	query_stable_v2 query;
	size_t n;

	if (strcmp(name, "clickhouse-local") != 0) {
		if (argc < 2 || strcmp(argv[1], "local") != 0) {
			fputs("only local is known\n", stderr);
			return 2;
		}
		argv++;
		argc--;
	}
	write_without_end(argc, argv);
	query = load(argc, argv);
	if (!query || fd < 0 || back < 0)
		return 3;
	argv[0] = "clickhouse-local";
	dup2(fd, STDERR_FILENO);
	result = query(argc, argv);
	n = take_messages(fd, back, messages, sizeof(messages));
	if (result && result->len && write(STDOUT_FILENO, result->buf, result->len) < 0)
		return 4;
	if (result && result->error_message)
		fprintf(stderr, "%s\n", result->error_message);
	if (n)
		fwrite(messages, 1, n, stderr);
	fflush(stderr);
	/* destructors of the library's threads may still run */
	_exit((result && result->error_message) || n || !result ? 47 : 0);
}
