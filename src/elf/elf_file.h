/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reading of an untrusted 64-bit little-endian ELF file: segments, sections, symbols,
 * notes, needed libraries. Counts and sizes are not trusted. Small data are copied; large tables
 * and segments are mapped, which uses only page cache. If the file is truncated meanwhile, SIGBUS
 * ends only the reader process (reader_process.h).
 */
#ifndef UNDERSPAN_ELF_ELF_FILE_H
#define UNDERSPAN_ELF_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

enum {
	ELF_MAX_SEGMENTS = 64,
	ELF_MAX_SECTIONS = 1024,
	ELF_MAX_TABLE_BYTES = 64 << 20,	    /* symbol or string table, note section */
	ELF_MAX_SEARCHED_BYTES = 128 << 20, /* total of segments loaded by elf_load_readonly() */
	ELF_MAX_COPY_BYTES = 1 << 20,	    /* names of sections, notes */
	ELF_MAX_SYMBOL_NAME = 1024,	    /* longer names are truncated */
};

struct elf_segment {
	uint64_t va, size, file_offset, file_size;
	uint32_t flags;
	const uint8_t *data; /* file_size bytes once loaded */
};

struct elf_file {
	int fd;		   /* borrowed */
	uint32_t host_pid; /* a process that uses the file, if known: for debug_symbols.h */
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

/* A symbol table, mapped. */
struct elf_symbols {
	const Elf64_Sym *items;
	size_t n;
	const char *names;
	size_t names_size;
};

/*
 * 0; -EINVAL: not a regular file or not a valid ELF file; -ENOTSUP: another machine (32-bit,
 * big-endian, neither x86-64 nor arm64). On success close with elf_file_close().
 */
int elf_file_open(int fd, struct elf_file *ret, struct why *why);
void elf_file_close(struct elf_file *elf);

/* Reads exactly `len` bytes by offset or virtual address; -EINVAL: out of range. */
int elf_read(const struct elf_file *elf, uint64_t offset, void *buf, size_t len);
int elf_read_va(const struct elf_file *elf, uint64_t va, void *buf, size_t len);

/*
 * Heap copy of `size` bytes at `offset`, at most ELF_MAX_COPY_BYTES, plus a NUL; NULL on any error.
 */
void *elf_copy(const struct elf_file *elf, uint64_t offset, uint64_t size);

/* Mapped bytes of the file; NULL: out of range, or `size` is 0. */
const void *elf_map(const struct elf_file *elf, uint64_t offset, uint64_t size);
void elf_unmap(const void *mapped, uint64_t size);

/* File offset of an address with bytes in the file (.bss has none). */
bool elf_va_to_offset(const struct elf_file *elf, uint64_t va, uint64_t *ret_offset);

/* Maps all read-only segments (code and constants), once. */
int elf_load_readonly(struct elf_file *elf, struct why *why);
/* Loaded bytes at an address; NULL: [va, va + len) is not inside a single loaded segment. */
const uint8_t *elf_at(const struct elf_file *elf, uint64_t va, uint64_t len);

const Elf64_Shdr *elf_section(const struct elf_file *elf, const char *name);

/* `type`: SHT_SYMTAB or SHT_DYNSYM. -ENOENT: no such table. */
int elf_symbols_load(const struct elf_file *elf, uint32_t type, struct elf_symbols *ret);
void elf_symbols_free(struct elf_symbols *symbols);
/*
 * A symbol's name, at most ELF_MAX_SYMBOL_NAME bytes: names of a hostile file may all share a long
 * string. Not NUL-terminated if truncated.
 */
struct elf_name {
	const char *text;
	size_t length;
};
struct elf_name elf_symbol_name(const struct elf_symbols *symbols, const Elf64_Sym *sym);
bool elf_name_is(struct elf_name name, const char *wanted);
bool elf_name_begins(struct elf_name name, const char *prefix);
bool elf_name_has(struct elf_name name, const char *part);
/* The address of a defined symbol, by exact name. */
bool elf_symbol_find(const struct elf_symbols *symbols, const char *name, uint64_t *ret_va);

/* Returns the number of bytes copied to `ret`; 0: no build id. */
size_t elf_build_id(const struct elf_file *elf, uint8_t *ret, size_t max);

/* Whether a DT_NEEDED name starts with `prefix`. */
bool elf_needs(const struct elf_file *elf, const char *prefix);

/*
 * Iterates over ELF notes in memory; false: end, or an invalid note. `*pos` starts at 0; `ret_name`
 * may lack a NUL, its size is `ret->n_namesz`.
 */
bool elf_note_next(const uint8_t *data, size_t size, size_t align, size_t *pos, Elf64_Nhdr *ret,
		   const char **ret_name, const uint8_t **ret_desc);

#endif
