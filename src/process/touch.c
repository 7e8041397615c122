// SPDX-License-Identifier: Apache-2.0
/* Reads pages before the kernel does. See touch.h. */
#include "process/touch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/uprobe.h"
#include "workers/file_reading.h"

enum { INSTRUCTION_BYTES = 16 };

struct touching {
	struct reading reading;
	uint64_t offsets[2 * UPROBE_MAX_PLACES];
	size_t n;
};

/* Through a mapping: read() may bypass the page cache, probes do not. */
static int touch(int fd, uint64_t offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = offset / page * page;
	size_t size = (size_t)(offset - begin) + INSTRUCTION_BYTES;
	const volatile char *code = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, (off_t)begin);
	struct stat st;

	if (code == MAP_FAILED)
		return -errno;
	(void)code[offset - begin];
	if (!fstat(fd, &st) && begin + size <= (uint64_t)st.st_size)
		(void)code[size - 1];
	munmap((void *)code, size);
	return 0;
}

static void touch_in_process(void *argument, struct read_extra *extra)
{
	struct touching *t = argument;
	AUTO_CLOSE int fd = -1;

	reading_begin(&t->reading, extra);
	fd = open(t->reading.path, O_RDONLY | O_CLOEXEC);
	t->reading.err = fd < 0 ? -errno : 0;
	for (size_t i = 0; !t->reading.err && i < t->n; i++)
		t->reading.err = touch(fd, t->offsets[i]);
	if (t->reading.err)
		why_fail(&t->reading.why, -t->reading.err, "the program file cannot be read: %s",
			 strerror(-t->reading.err));
}

int binary_touch(const struct python_binary *binary, const uint64_t *offsets, size_t n,
		 struct why *why)
{
	const struct readable_file file = binary_readable(binary);
	struct touching t = { .n = n };

	if (!binary->unsure)
		return 0;
	if (n > ARRAY_SIZE(t.offsets))
		return why_fail(why, E2BIG, "too many places to probe");
	memcpy(t.offsets, offsets, n * sizeof(*offsets));
	return file_read(&file, touch_in_process, &t.reading, sizeof(t), why);
}
