/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the fuzz targets. A target is a file fuzz_NAME.c; see README.md. */
#ifndef UNDERSPAN_TESTS_FUZZ_H
#define UNDERSPAN_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Property that must hold for every input. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

/* The input as a memory file, always the same descriptor. */
static inline int fuzz_file(const uint8_t *data, size_t size)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	MUST(fd >= 0 && !ftruncate(fd, 0));
	MUST(pwrite(fd, data, size, 0) == (ssize_t)size);
	return fd;
}

/* The input as a string, freed by the caller. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	MUST(text);
	memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

#endif
