// SPDX-License-Identifier: Apache-2.0
/*
 * Readers of another process's memory. The input is the memory: all addresses map into the input,
 * so that the fuzzer forms dicts, strings, frames and line tables.
 */
#include "fuzz.h"

#include <elf.h>

#include "cpython/offsets.h"
#include "cpython/code.h"
#include "cpython/live.h"
#include "cpython/threads.h"

enum { READS = 2000, LARGEST = 1 << 20, BASE = 0x10000 };

struct memory {
	const uint8_t *data;
	size_t size, reads;
};

/* Addresses wrap at the end of the input; addresses with a high bit are unmapped.
 */
static int read_input(void *context, uint64_t address, void *buf, size_t size)
{
	struct memory *memory = context;
	uint8_t *to = buf;

	MUST(++memory->reads <= READS && size <= LARGEST);
	if (address >> 47)
		return -EFAULT;
	for (size_t i = 0; i < size; i++)
		to[i] = memory->data[(address - BASE + i) % memory->size];
	return 0;
}

/* Offsets described by files of 3.13 to 3.15. */
static struct python_offsets described_offsets(uint8_t minor)
{
	struct python_image image = { .machine = EM_X86_64, .major = 3, .minor = 12 };
	struct python_offsets offsets;

	MUST(!python_offsets_for(&image, -1, &offsets, NULL));
	offsets.minor = minor;
	offsets.frame_code_tags = minor >= 14 ? 3 : 0;
	offsets.code_version = minor == 13 ? offsets.code_version : 0;
	return offsets;
}

static struct python_offsets offsets_of(uint8_t minor)
{
	struct python_image image = { .machine = EM_X86_64, .major = 3, .minor = minor };
	struct python_offsets offsets;

	if (minor > 12)
		return described_offsets(minor);
	MUST(!python_offsets_for(&image, -1, &offsets, NULL));
	return offsets;
}

static void read_lines(const struct python_offsets *offsets, const uint8_t *data, size_t size)
{
	int line;

	for (uint32_t ip = 0; ip < 64; ip += 7) {
		line = python_line(offsets, data, size, 10, ip);
		MUST(line >= -1);
	}
}

static bool always(struct remote *r, uint64_t native_id, uint64_t ident, void *context)
{
	(void)r;
	(void)native_id;
	(void)ident;
	(void)context;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory memory = { data + 1, size - 1, 0 };
	struct python_frame frame = { .code = BASE, .ip = 40 };
	struct python_key keys[] = { { .name = "_name" }, { .name = "_native_id" } };
	char name[PYTHON_THREAD_NAME_MAX], text[PYTHON_FRAME_TEXT_MAX];
	struct python_threads threads = { 0 };
	struct python_offsets offsets;
	struct python_live live;
	struct why why;
	struct remote r;
	uint64_t value;

	if (size < 9)
		return 0;
	offsets = offsets_of((uint8_t)(8 + data[0] % 8));
	r = (struct remote){ read_input, &memory, &offsets, 0, READS };
	if (!python_live_read(&r, BASE, always, NULL, &live, &why))
		MUST(live.threads && live.interpreters && live.known_threads);
	if (!python_threads_find(&r, BASE, &threads))
		python_thread_name(&r, &threads, 0, 1, true, name);
	threads.active = BASE + 64;
	threads.name.name = "_name";
	threads.native_id.name = "_native_id";
	if (!python_thread_name(&r, &threads, 0x1234, 1, false, name))
		MUST(memchr(name, '\0', sizeof(name)));
	python_attributes(&r, BASE + 128, keys, 2);
	python_dict_get_int(&r, BASE, 77, &value);
	if (!python_frame_text(&r, &frame, text))
		MUST(memchr(text, '\0', sizeof(text)));
	if (!python_text(&r, BASE, text, sizeof(text), NULL))
		MUST(memchr(text, '\0', sizeof(text)));
	read_lines(&offsets, data + 1, size - 1);
	return 0;
}
