/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reading of an untrusted 64-bit little-endian ELF file: segments, sections, symbols,
 * notes, needed libraries. Everything is copied with pread: a mapping would raise SIGBUS when the
 * file is truncated under us, and every count and size in it may be a lie.
 */
#ifndef UNDERSPAN_PROBE_ELF_FILE_H
#define UNDERSPAN_PROBE_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

#include "util.h"

enum {
	ELF_MAX_SEGMENTS = 64,
	ELF_MAX_SECTIONS = 1024,
	ELF_MAX_TABLE_BYTES = 64 << 20,	  /* symbol or string table, note section */
	ELF_MAX_SEGMENT_BYTES = 64 << 20, /* a segment that elf_load_readonly() copies */
};

struct elf_segment {
	uint64_t va, size, file_offset, file_size;
	uint32_t flags;
	uint8_t *data; /* file_size bytes once loaded */
};

struct elf_file {
	int fd;		   /* owned by the caller */
	uint32_t host_pid; /* a process that uses it, set by who knows one: for debug_symbols.h */
	uint64_t file_size;
	uint16_t machine; /* EM_X86_64, EM_AARCH64 */
	Elf64_Phdr phdrs[ELF_MAX_SEGMENTS];
	size_t n_phdrs;
	struct elf_segment loads[ELF_MAX_SEGMENTS]; /* PT_LOAD */
	size_t n_loads;
	Elf64_Shdr *sections;
	size_t n_sections;
	char *section_names; /* NUL-terminated */
	size_t section_names_size;
};

/* A symbol table in memory. */
struct elf_symbols {
	Elf64_Sym *items;
	size_t n;
	char *names; /* NUL-terminated */
	size_t names_size;
};

/*
 * 0; -EINVAL for what is no regular file or no sound ELF file; -ENOTSUP for one of another
 * machine (32-bit, big-endian, neither x86-64 nor arm64). `ret` needs elf_file_close() after 0.
 */
int elf_file_open(int fd, struct elf_file *ret, struct why *why);
void elf_file_close(struct elf_file *elf);

/* Exactly `len` bytes from the file, by offset or by virtual address; -EINVAL if not all there. */
int elf_read(const struct elf_file *elf, uint64_t offset, void *buf, size_t len);
int elf_read_va(const struct elf_file *elf, uint64_t va, void *buf, size_t len);

/* Heap copy of `size` bytes at `offset`, with a NUL after them; NULL if that cannot be. */
void *elf_copy(const struct elf_file *elf, uint64_t offset, uint64_t size);

/* The file offset of an address that the file holds bytes for (in .bss it holds none). */
bool elf_va_to_offset(const struct elf_file *elf, uint64_t va, uint64_t *ret_offset);

/* Copies all segments that a process cannot write (code and constants) into memory, once. */
int elf_load_readonly(struct elf_file *elf, struct why *why);
/* Loaded bytes at an address, or NULL when [va, va + len) is not within one loaded segment. */
const uint8_t *elf_at(const struct elf_file *elf, uint64_t va, uint64_t len);

const Elf64_Shdr *elf_section(const struct elf_file *elf, const char *name);

/* `type`: SHT_SYMTAB or SHT_DYNSYM. -ENOENT when the file has no such table. */
int elf_symbols_load(const struct elf_file *elf, uint32_t type, struct elf_symbols *ret);
void elf_symbols_free(struct elf_symbols *symbols);
const char *elf_symbol_name(const struct elf_symbols *symbols, const Elf64_Sym *sym);
/* The address of a defined symbol, by exact name. */
bool elf_symbol_find(const struct elf_symbols *symbols, const char *name, uint64_t *ret_va);

/* Returns the number of bytes copied to `ret`, 0 when there is no build id. */
size_t elf_build_id(const struct elf_file *elf, uint8_t *ret, size_t max);

/* Does a DT_NEEDED name start with `prefix`? */
bool elf_needs(const struct elf_file *elf, const char *prefix);

/*
 * Walks ELF notes in memory: returns false at the end or at the first unsound one. `*pos` starts
 * at 0; `ret_name` is not necessarily NUL-terminated, its size is in `ret->n_namesz`.
 */
bool elf_note_next(const uint8_t *data, size_t size, size_t align, size_t *pos, Elf64_Nhdr *ret,
		   const char **ret_name, const uint8_t **ret_desc);

#endif
