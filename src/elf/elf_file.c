// SPDX-License-Identifier: Apache-2.0
/* Bounded reading of an untrusted ELF file. See elf_file.h. */
#include "elf/elf_file.h"

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int elf_read(const struct elf_file *elf, uint64_t offset, void *buf, size_t len)
{
	size_t done = 0;

	if (offset > elf->file_size || len > elf->file_size - offset)
		return -EINVAL;
	while (done < len) {
		ssize_t n = pread(elf->fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) /* truncated since fstat(), or unreadable */
			return n < 0 ? -errno : -EINVAL;
		done += (size_t)n;
	}
	return 0;
}

void *elf_copy(const struct elf_file *elf, uint64_t offset, uint64_t size)
{
	char *copy;

	if (size > ELF_MAX_COPY_BYTES || offset > elf->file_size || size > elf->file_size - offset)
		return NULL;
	copy = malloc(size + 1);
	if (!copy)
		return NULL;
	if (elf_read(elf, offset, copy, size)) {
		free(copy);
		return NULL;
	}
	copy[size] = '\0';
	return copy;
}

static uint64_t page_offset(uint64_t at)
{
	return at & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
}

/* Marks bytes after the requested range for sanitizers. */
static void *end_of(const void *mapped, uint64_t size)
{
	return (void *)(((uintptr_t)mapped + size + 7) & ~(uintptr_t)7);
}

static size_t rest_of_page(const void *end)
{
	uint64_t at = page_offset((uintptr_t)end);

	return at ? (size_t)sysconf(_SC_PAGESIZE) - at : 0;
}

const void *elf_map(const struct elf_file *elf, uint64_t offset, uint64_t size)
{
	uint64_t before = page_offset(offset);
	void *mapped;

	if (!size || offset > elf->file_size || size > elf->file_size - offset)
		return NULL;
	/* shared: the kernel inserts uprobe breakpoints into private mappings */
	mapped = mmap(NULL, size + before, PROT_READ, MAP_SHARED, elf->fd,
		      (off_t)(offset - before));
	if (mapped == MAP_FAILED)
		return NULL;
	mapped = (char *)mapped + before;
	ASAN_POISON_MEMORY_REGION(end_of(mapped, size), rest_of_page(end_of(mapped, size)));
	return mapped;
}

void elf_unmap(const void *mapped, uint64_t size)
{
	uint64_t before = page_offset((uintptr_t)mapped);

	if (!mapped)
		return;
	ASAN_UNPOISON_MEMORY_REGION(end_of(mapped, size), rest_of_page(end_of(mapped, size)));
	munmap((char *)mapped - before, size + before);
}

/* The segment with file bytes for [va, va + len). */
static const struct elf_segment *segment_at(const struct elf_file *elf, uint64_t va, uint64_t len)
{
	for (size_t i = 0; i < elf->n_loads; i++) {
		const struct elf_segment *s = &elf->loads[i];

		if (va >= s->va && va - s->va < s->file_size && len <= s->file_size - (va - s->va))
			return s;
	}
	return NULL;
}

bool elf_va_to_offset(const struct elf_file *elf, uint64_t va, uint64_t *ret_offset)
{
	const struct elf_segment *s = segment_at(elf, va, 1);

	if (!s)
		return false;
	*ret_offset = va - s->va + s->file_offset;
	return true;
}

int elf_read_va(const struct elf_file *elf, uint64_t va, void *buf, size_t len)
{
	const struct elf_segment *s = segment_at(elf, va, len);

	return s ? elf_read(elf, va - s->va + s->file_offset, buf, len) : -EINVAL;
}

const uint8_t *elf_at(const struct elf_file *elf, uint64_t va, uint64_t len)
{
	const struct elf_segment *s = segment_at(elf, va, len);

	return s && s->data ? s->data + (va - s->va) : NULL;
}

static bool is_readonly(const struct elf_segment *s)
{
	return !(s->flags & PF_W) && s->file_size;
}

/* A valid file maps each byte once; a small hostile file may map the same bytes many times. */
static int check_searched_size(const struct elf_file *elf, struct why *why)
{
	uint64_t total = 0;

	for (size_t i = 0; i < elf->n_loads; i++) {
		const struct elf_segment *s = &elf->loads[i];

		if (!is_readonly(s))
			continue;
		if (s->file_offset > elf->file_size ||
		    s->file_size > elf->file_size - s->file_offset)
			return why_fail(why, EINVAL, "a segment lies outside of the file");
		total += s->file_size;
		if (total > ELF_MAX_SEARCHED_BYTES)
			return why_fail(why, EFBIG,
					"the segments are larger than the limit of %d MiB",
					ELF_MAX_SEARCHED_BYTES >> 20);
	}
	/* neighbouring segments share boundary pages */
	if (total > elf->file_size + ELF_MAX_SEGMENTS * 65536ULL)
		return why_fail(why, EINVAL, "the segments overlap in the file");
	return 0;
}

int elf_load_readonly(struct elf_file *elf, struct why *why)
{
	int err = check_searched_size(elf, why);

	if (err)
		return err;
	for (size_t i = 0; i < elf->n_loads; i++) {
		struct elf_segment *s = &elf->loads[i];

		if (!is_readonly(s) || s->data)
			continue;
		s->data = elf_map(elf, s->file_offset, s->file_size);
		if (!s->data)
			return why_fail(why, EINVAL, "the segment at offset %#llx cannot be read",
					(unsigned long long)s->file_offset);
	}
	return 0;
}

static int read_ident(struct elf_file *elf, Elf64_Ehdr *eh, struct why *why)
{
	if (elf_read(elf, 0, eh, sizeof(*eh)) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0)
		return why_fail(why, EINVAL, "not an ELF file");
	if (eh->e_ident[EI_CLASS] != ELFCLASS64)
		return why_fail(why, ENOTSUP,
				"a 32-bit program; only 64-bit programs are supported");
	if (eh->e_ident[EI_DATA] != ELFDATA2LSB ||
	    (eh->e_machine != EM_X86_64 && eh->e_machine != EM_AARCH64))
		return why_fail(why, ENOTSUP,
				"made for ELF machine %u; only x86-64 and arm64 are supported",
				eh->e_machine);
	if (eh->e_type != ET_EXEC && eh->e_type != ET_DYN)
		return why_fail(why, EINVAL, "neither an executable nor a shared library");
	elf->machine = eh->e_machine;
	return 0;
}

static int read_segments(struct elf_file *elf, const Elf64_Ehdr *eh, struct why *why)
{
	if (eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phnum > ELF_MAX_SEGMENTS)
		return why_fail(why, EINVAL, "%u program headers of %u bytes are not plausible",
				eh->e_phnum, eh->e_phentsize);
	if (elf_read(elf, eh->e_phoff, elf->phdrs, eh->e_phnum * sizeof(Elf64_Phdr)))
		return why_fail(why, EINVAL, "the program headers lie outside the file");
	elf->n_phdrs = eh->e_phnum;

	for (size_t i = 0; i < elf->n_phdrs; i++) {
		const Elf64_Phdr *p = &elf->phdrs[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (p->p_vaddr + p->p_memsz < p->p_vaddr || p->p_filesz > p->p_memsz)
			return why_fail(why, EINVAL, "program header %zu is unsound", i);
		elf->loads[elf->n_loads++] = (struct elf_segment){
			.va = p->p_vaddr,
			.size = p->p_memsz,
			.file_offset = p->p_offset,
			.file_size = p->p_filesz,
			.flags = p->p_flags,
		};
	}
	return 0;
}

/*
 * Section headers are optional and may be damaged in a working program: treated as absent then.
 */
static void read_sections(struct elf_file *elf, const Elf64_Ehdr *eh)
{
	const Elf64_Shdr *names;

	if (!eh->e_shoff || eh->e_shentsize != sizeof(Elf64_Shdr) || !eh->e_shnum ||
	    eh->e_shnum > ELF_MAX_SECTIONS || eh->e_shstrndx >= eh->e_shnum)
		return;
	elf->sections = elf_copy(elf, eh->e_shoff, eh->e_shnum * sizeof(Elf64_Shdr));
	if (!elf->sections)
		return;
	names = &elf->sections[eh->e_shstrndx];
	elf->section_names = elf_copy(elf, names->sh_offset, names->sh_size);
	if (!elf->section_names)
		return;
	elf->section_names_size = names->sh_size;
	elf->n_sections = eh->e_shnum;
}

int elf_file_open(int fd, struct elf_file *ret, struct why *why)
{
	struct elf_file elf = { .fd = fd };
	struct stat st;
	Elf64_Ehdr eh;
	int err;

	if (fstat(fd, &st))
		return why_fail(why, errno, "cannot look at the file: %m");
	/* reading a FIFO or a terminal would block forever */
	if (!S_ISREG(st.st_mode))
		return why_fail(why, EINVAL, "not a regular file");
	elf.file_size = (uint64_t)st.st_size;

	err = read_ident(&elf, &eh, why);
	if (err)
		return err;
	err = read_segments(&elf, &eh, why);
	if (err)
		return err;
	read_sections(&elf, &eh);
	*ret = elf;
	return 0;
}

void elf_file_close(struct elf_file *elf)
{
	for (size_t i = 0; i < elf->n_loads; i++)
		elf_unmap(elf->loads[i].data, elf->loads[i].file_size);
	free(elf->sections);
	free(elf->section_names);
	*elf = (struct elf_file){ .fd = -1 };
}

const Elf64_Shdr *elf_section(const struct elf_file *elf, const char *name)
{
	for (size_t i = 0; i < elf->n_sections; i++) {
		const Elf64_Shdr *s = &elf->sections[i];

		if (s->sh_name < elf->section_names_size &&
		    strcmp(elf->section_names + s->sh_name, name) == 0)
			return s;
	}
	return NULL;
}

int elf_symbols_load(const struct elf_file *elf, uint32_t type, struct elf_symbols *ret)
{
	for (size_t i = 0; i < elf->n_sections; i++) {
		const Elf64_Shdr *s = &elf->sections[i], *strings;
		struct elf_symbols symbols = {};

		if (s->sh_type != type || s->sh_link >= elf->n_sections)
			continue;
		strings = &elf->sections[s->sh_link];
		if (s->sh_size > ELF_MAX_TABLE_BYTES || strings->sh_size > ELF_MAX_TABLE_BYTES)
			return -EFBIG;
		if (s->sh_offset % _Alignof(Elf64_Sym))
			return -EINVAL;
		symbols.n = s->sh_size / sizeof(Elf64_Sym);
		symbols.names_size = strings->sh_size;
		symbols.items = elf_map(elf, s->sh_offset, symbols.n * sizeof(Elf64_Sym));
		symbols.names = elf_map(elf, strings->sh_offset, strings->sh_size);
		if (!symbols.items || !symbols.names) {
			elf_symbols_free(&symbols);
			return -EINVAL;
		}
		*ret = symbols;
		return 0;
	}
	return -ENOENT;
}

void elf_symbols_free(struct elf_symbols *symbols)
{
	elf_unmap(symbols->items, symbols->n * sizeof(*symbols->items));
	elf_unmap(symbols->names, symbols->names_size);
	*symbols = (struct elf_symbols){};
}

struct elf_name elf_symbol_name(const struct elf_symbols *symbols, const Elf64_Sym *sym)
{
	struct elf_name name = { "", 0 };

	if (sym->st_name < symbols->names_size) {
		size_t left = symbols->names_size - sym->st_name;

		name.text = symbols->names + sym->st_name;
		name.length = strnlen(name.text,
				      left < ELF_MAX_SYMBOL_NAME ? left : ELF_MAX_SYMBOL_NAME);
	}
	return name;
}

bool elf_name_is(struct elf_name name, const char *wanted)
{
	return name.length == strlen(wanted) && !memcmp(name.text, wanted, name.length);
}

bool elf_name_begins(struct elf_name name, const char *prefix)
{
	size_t length = strlen(prefix);

	return name.length >= length && !memcmp(name.text, prefix, length);
}

bool elf_name_has(struct elf_name name, const char *part)
{
	return memmem(name.text, name.length, part, strlen(part)) != NULL;
}

bool elf_symbol_find(const struct elf_symbols *symbols, const char *name, uint64_t *ret_va)
{
	for (size_t i = 0; i < symbols->n; i++) {
		const Elf64_Sym *sym = &symbols->items[i];

		if (sym->st_shndx != SHN_UNDEF &&
		    elf_name_is(elf_symbol_name(symbols, sym), name)) {
			*ret_va = sym->st_value;
			return true;
		}
	}
	return false;
}

static size_t align_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

bool elf_note_next(const uint8_t *data, size_t size, size_t align, size_t *pos, Elf64_Nhdr *ret,
		   const char **ret_name, const uint8_t **ret_desc)
{
	size_t at = *pos, name_size, desc_size;

	if (at > size || size - at < sizeof(*ret))
		return false;
	memcpy(ret, data + at, sizeof(*ret));
	at += sizeof(*ret);
	name_size = align_up(ret->n_namesz, align);
	if (name_size > size - at)
		return false;
	*ret_name = (const char *)data + at;
	at += name_size;
	desc_size = align_up(ret->n_descsz, align);
	if (ret->n_descsz > size - at)
		return false;
	*ret_desc = data + at;
	*pos = desc_size > size - at ? size : at + desc_size;
	return true;
}

size_t elf_build_id(const struct elf_file *elf, uint8_t *ret, size_t max)
{
	for (size_t i = 0; i < elf->n_phdrs; i++) {
		const Elf64_Phdr *p = &elf->phdrs[i];
		AUTO_FREE uint8_t *notes = NULL;
		const uint8_t *desc;
		const char *name;
		Elf64_Nhdr note;
		size_t pos = 0;

		if (p->p_type != PT_NOTE || p->p_filesz > (64 << 10))
			continue;
		notes = elf_copy(elf, p->p_offset, p->p_filesz);
		while (notes && elf_note_next(notes, p->p_filesz, p->p_align == 8 ? 8 : 4, &pos,
					      &note, &name, &desc)) {
			if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
			    memcmp(name, "GNU", 4) != 0 || !note.n_descsz || note.n_descsz > max)
				continue;
			memcpy(ret, desc, note.n_descsz);
			return note.n_descsz;
		}
	}
	return 0;
}

/* Heap copy of the dynamic section with `*ret_n` entries. */
static Elf64_Dyn *copy_dynamic(const struct elf_file *elf, size_t *ret_n)
{
	for (size_t i = 0; i < elf->n_phdrs; i++) {
		const Elf64_Phdr *p = &elf->phdrs[i];

		if (p->p_type == PT_DYNAMIC && p->p_filesz <= (64 << 10)) {
			*ret_n = p->p_filesz / sizeof(Elf64_Dyn);
			return elf_copy(elf, p->p_offset, p->p_filesz);
		}
	}
	return NULL;
}

bool elf_needs(const struct elf_file *elf, const char *prefix)
{
	AUTO_FREE Elf64_Dyn *dynamic = NULL;
	uint64_t names_va = 0, names_size = 0, offset;
	size_t n = 0, length = strlen(prefix);
	char name[64];

	dynamic = copy_dynamic(elf, &n);
	if (!dynamic)
		return false;
	for (size_t i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++) {
		if (dynamic[i].d_tag == DT_STRTAB)
			names_va = dynamic[i].d_un.d_ptr;
		else if (dynamic[i].d_tag == DT_STRSZ)
			names_size = dynamic[i].d_un.d_val;
	}
	if (!elf_va_to_offset(elf, names_va, &offset))
		return false;
	for (size_t i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++) {
		uint64_t at = dynamic[i].d_un.d_val;

		if (dynamic[i].d_tag == DT_NEEDED && length <= sizeof(name) && at < names_size &&
		    !elf_read(elf, offset + at, name, length) && !memcmp(name, prefix, length))
			return true;
	}
	return false;
}
