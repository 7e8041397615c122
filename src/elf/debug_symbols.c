// SPDX-License-Identifier: Apache-2.0
/* Symbols of a stripped file. See debug_symbols.h. */
#include "elf/debug_symbols.h"

#include <limits.h>
#include <lzma.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "base/budget.h"
#include "host/proc.h"

enum {
	BUILD_ID_MAX = 64,
	MINI_MAX_BYTES = 8 << 20,
	MINI_MEMORY_BYTES = 9 << 20,
	CRC_MAX_BYTES = ELF_MAX_SEARCHED_BYTES
};

const char *debug_source_text(enum debug_source source)
{
	static const char *const texts[] = {
		[DEBUG_OWN] = "its symbol table",
		[DEBUG_BUILD_ID] = "the debug file of the build id",
		[DEBUG_LINK] = "the debug file named in the binary",
		[DEBUG_MINI] = "its compressed symbols",
	};

	return texts[source];
}

/* Takes ownership of `fd`. */
static int load_from(int fd, bool (*matches)(const struct elf_file *debug, void *context),
		     void *context, struct elf_symbols *ret)
{
	struct elf_symbols symbols;
	struct elf_file debug;
	int err = elf_file_open(fd, &debug, NULL);

	if (!err) {
		err = matches(&debug, context) ? elf_symbols_load(&debug, SHT_SYMTAB, &symbols)
					       : -ENOENT;
		elf_file_close(&debug);
	}
	close(fd);
	if (!err && !symbols.n) {
		elf_symbols_free(&symbols);
		err = -ENOENT;
	}
	if (!err)
		*ret = symbols;
	return err ? -ENOENT : 0;
}

/* The host's files first: these are trusted. */
static int load_path(const struct elf_file *elf, const char *path,
		     bool (*matches)(const struct elf_file *debug, void *context), void *context,
		     struct elf_symbols *ret)
{
	int fd = proc_open_in_root(0, path);

	if (fd >= 0 && !load_from(fd, matches, context, ret))
		return 0;
	fd = elf->host_pid ? proc_open_in_root(elf->host_pid, path) : -1;
	return fd >= 0 ? load_from(fd, matches, context, ret) : -ENOENT;
}

/* ---- by build id ---- */

struct build_id {
	uint8_t bytes[BUILD_ID_MAX];
	size_t n;
};

static struct build_id build_id_of(const struct elf_file *elf)
{
	struct build_id id;

	id.n = elf_build_id(elf, id.bytes, sizeof(id.bytes));
	return id;
}

static bool has_build_id(const struct elf_file *debug, void *context)
{
	const struct build_id *wanted = context;
	struct build_id id = build_id_of(debug);

	return id.n == wanted->n && !memcmp(id.bytes, wanted->bytes, id.n);
}

static int load_by_build_id(const struct elf_file *elf, struct elf_symbols *ret)
{
	char path[64 + 2 * BUILD_ID_MAX] = "/usr/lib/debug/.build-id/";
	struct build_id id = build_id_of(elf);

	if (id.n < 2)
		return -ENOENT;
	for (size_t i = 0; i < id.n; i++)
		snprintf(path + strlen(path), sizeof(path) - strlen(path), i ? "%02x" : "%02x/",
			 id.bytes[i]);
	snprintf(path + strlen(path), sizeof(path) - strlen(path), ".debug");
	return load_path(elf, path, has_build_id, &id, ret);
}

/* ---- by name ---- */

struct debug_link {
	char name[256];
	uint32_t crc;
	struct build_id id; /* of the stripped file */
	bool read_once; /* a file was read completely for its checksum; limited to a single file */
};

static bool read_debug_link(const struct elf_file *elf, struct debug_link *ret)
{
	const Elf64_Shdr *section = elf_section(elf, ".gnu_debuglink");
	char text[sizeof(ret->name) + 8] = "";
	size_t length;

	if (!section || section->sh_size > sizeof(text) - 1 ||
	    elf_read(elf, section->sh_offset, text, section->sh_size))
		return false;
	/* the name with its NUL, padded to 4 bytes, and a CRC-32 */
	length = strlen(text);
	if (!length || length >= sizeof(ret->name) || strchr(text, '/') ||
	    (length + 4) / 4 * 4 + 4 > section->sh_size)
		return false;
	memcpy(ret->name, text, length + 1);
	memcpy(&ret->crc, text + (length + 4) / 4 * 4, sizeof(ret->crc));
	ret->id = build_id_of(elf);
	ret->read_once = false;
	return true;
}

static bool has_crc(const struct elf_file *debug, uint32_t wanted)
{
	uint8_t block[1 << 16];
	uLong crc = crc32(0, NULL, 0);

	if (debug->file_size > CRC_MAX_BYTES)
		return false;
	for (uint64_t at = 0; at < debug->file_size; at += sizeof(block)) {
		uint64_t left = debug->file_size - at;
		size_t n = left < sizeof(block) ? (size_t)left : sizeof(block);

		if (elf_read(debug, at, block, n))
			return false;
		crc = crc32(crc, block, (uInt)n);
	}
	return crc == wanted;
}

/* With build ids in both files the checksum is not needed. */
static bool is_linked(const struct elf_file *debug, void *context)
{
	struct debug_link *link = context;

	if (link->id.n && build_id_of(debug).n)
		return has_build_id(debug, &link->id);
	if (link->read_once)
		return false;
	link->read_once = true;
	return has_crc(debug, link->crc);
}

/* The directory of the file in the process's mount namespace. */
static bool folder_of(const struct elf_file *elf, char ret[PATH_MAX])
{
	char link[64], *slash;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", elf->fd);
	n = readlink(link, ret, PATH_MAX - 1);
	if (n <= 0 || ret[0] != '/')
		return false;
	ret[n] = '\0';
	slash = strrchr(ret, '/');
	*slash = '\0';
	return true;
}

static int load_by_link(const struct elf_file *elf, struct elf_symbols *ret)
{
	static const char *const forms[] = { "%s/%s", "%s/.debug/%s", "/usr/lib/debug%s/%s" };
	char folder[PATH_MAX], path[PATH_MAX + 300];
	struct debug_link link;

	if (!read_debug_link(elf, &link) || !folder_of(elf, folder))
		return -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
		snprintf(path, sizeof(path), forms[i], folder, link.name);
#pragma clang diagnostic pop
		if (!load_path(elf, path, is_linked, &link, ret))
			return 0;
	}
	return -ENOENT;
}

/* ---- compressed ---- */

static bool write_all(int fd, const uint8_t *data, size_t size)
{
	while (size) {
		ssize_t n = write(fd, data, size);

		if (n <= 0)
			return false;
		data += n;
		size -= (size_t)n;
	}
	return true;
}

/*
 * Decompresses at most MINI_MAX_BYTES using at most MINI_MEMORY_BYTES. Both are charged during
 * decompression; the output file until its symbols are read.
 */
static bool unpack_charged(const uint8_t *data, size_t size, int to_fd)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	uint8_t block[1 << 16];
	uint64_t total = 0;
	lzma_ret state = lzma_stream_decoder(&stream, MINI_MEMORY_BYTES, 0);

	stream.next_in = data;
	stream.avail_in = size;
	while (state == LZMA_OK) {
		size_t n;

		stream.next_out = block;
		stream.avail_out = sizeof(block);
		state = lzma_code(&stream, LZMA_FINISH);
		n = sizeof(block) - stream.avail_out;
		total += n;
		if ((state != LZMA_OK && state != LZMA_STREAM_END) || total > MINI_MAX_BYTES ||
		    !write_all(to_fd, block, n))
			state = LZMA_PROG_ERROR;
	}
	lzma_end(&stream);
	return state == LZMA_STREAM_END;
}

static bool unpack(const uint8_t *data, size_t size, int to_fd)
{
	size_t half = budget_of_file() / 2;
	size_t bytes = half < MINI_MAX_BYTES ? half : MINI_MAX_BYTES;
	bool unpacked = budget_take(bytes);

	if (unpacked) {
		unpacked = unpack_charged(data, size, to_fd);
		budget_give(bytes);
	}
	return unpacked;
}

static bool any(const struct elf_file *debug, void *context)
{
	(void)debug;
	(void)context;
	return true;
}

static int load_mini(const struct elf_file *elf, struct elf_symbols *ret)
{
	const Elf64_Shdr *section = elf_section(elf, ".gnu_debugdata");
	const uint8_t *packed = section ? elf_map(elf, section->sh_offset, section->sh_size) : NULL;
	bool unpacked = false;
	int fd = packed ? memfd_create("underspan-symbols", MFD_CLOEXEC) : -1;

	if (fd >= 0)
		unpacked = unpack(packed, section->sh_size, fd);
	if (packed)
		elf_unmap(packed, section->sh_size);
	if (fd >= 0 && !unpacked)
		close(fd);
	return unpacked ? load_from(fd, any, NULL, ret) : -ENOENT;
}

/* ---- */

int debug_symbols_load(const struct elf_file *elf, enum debug_source source,
		       struct elf_symbols *ret)
{
	switch (source) {
	case DEBUG_OWN:
		return elf_symbols_load(elf, SHT_SYMTAB, ret) ? -ENOENT : 0;
	case DEBUG_BUILD_ID:
		return load_by_build_id(elf, ret);
	case DEBUG_LINK:
		return load_by_link(elf, ret);
	case DEBUG_MINI:
		return load_mini(elf, ret);
	case N_DEBUG_SOURCES:
		break;
	}
	return -ENOENT;
}
