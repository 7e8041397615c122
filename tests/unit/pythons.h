/* SPDX-License-Identifier: Apache-2.0 */
/* Real Python binaries of this machine: Debian's, and every CPython of pyenv. */
#ifndef UNDERSPAN_TESTS_PYTHONS_H
#define UNDERSPAN_TESTS_PYTHONS_H

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEBIAN_PYTHON "/usr/bin/python3.11"

enum { PYTHONS_MAX = 64 };

struct pythons {
	char path[PYTHONS_MAX][PATH_MAX];
	size_t n;
};

/* Adds files matching the shell pattern, not links. */
static inline void pythons_glob(struct pythons *pythons, const char *pattern)
{
	glob_t found;

	if (glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc && pythons->n < PYTHONS_MAX; i++)
		snprintf(pythons->path[pythons->n++], PATH_MAX, "%s", found.gl_pathv[i]);
	globfree(&found);
}

/* pyenv's root; "": no pyenv. */
static inline void pyenv_root(char *ret, size_t size)
{
	FILE *out = popen("pyenv root 2>/dev/null", "r");

	ret[0] = '\0';
	if (out && fgets(ret, (int)size, out))
		ret[strcspn(ret, "\n")] = '\0';
	if (out)
		pclose(out);
}

/* Files with an interpreter: shared libraries and static executables. */
static inline void pythons_find(struct pythons *ret)
{
	static const char *const patterns[] = { "lib/libpython3.[0-9].so.1.0",
						"lib/libpython3.[0-9][0-9].so.1.0",
						"bin/python3.[0-9]", "bin/python3.[0-9][0-9]" };
	char root[PATH_MAX - 64], pattern[PATH_MAX];

	ret->n = 0;
	pythons_glob(ret, DEBIAN_PYTHON);
	pyenv_root(root, sizeof(root));
	for (size_t i = 0; root[0] && i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		snprintf(pattern, sizeof(pattern), "%s/versions/3.*/%s", root, patterns[i]);
		pythons_glob(ret, pattern);
	}
}

#endif
