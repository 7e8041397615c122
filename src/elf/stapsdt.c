// SPDX-License-Identifier: Apache-2.0
/* Static probe notes. See stapsdt.h. */
#include "elf/stapsdt.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { NOTE_STAPSDT = 3, NOTE_MAX_BYTES = 1 << 20 };

/* ---- arguments ---- */

/* x86-64 registers in the order of struct pt_regs, by their 8-byte and 4-byte names. */
static const struct {
	const char *name8, *name4;
} x86_registers[] = {
	{ "r15", "r15d" }, { "r14", "r14d" }, { "r13", "r13d" }, { "r12", "r12d" },
	{ "rbp", "ebp" },  { "rbx", "ebx" },  { "r11", "r11d" }, { "r10", "r10d" },
	{ "r9", "r9d" },   { "r8", "r8d" },   { "rax", "eax" },	 { "rcx", "ecx" },
	{ "rdx", "edx" },  { "rsi", "esi" },  { "rdi", "edi" },
};
enum { X86_SP_INDEX = 19, ARM64_SP_INDEX = 31 };

/* `word`: register name without prefix. */
static bool find_register(uint16_t machine, const char *word, uint8_t *ret_index)
{
	if (machine == EM_AARCH64) {
		char *end;
		unsigned long n;

		if (strcmp(word, "sp") == 0) {
			*ret_index = ARM64_SP_INDEX;
			return true;
		}
		if ((word[0] != 'x' && word[0] != 'w') || !isdigit((unsigned char)word[1]))
			return false;
		n = strtoul(word + 1, &end, 10);
		if (*end || n > 30)
			return false;
		*ret_index = (uint8_t)n;
		return true;
	}
	if (strcmp(word, "rsp") == 0) {
		*ret_index = X86_SP_INDEX;
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(x86_registers); i++) {
		if (strcmp(word, x86_registers[i].name8) == 0 ||
		    strcmp(word, x86_registers[i].name4) == 0) {
			*ret_index = (uint8_t)i;
			return true;
		}
	}
	return false;
}

/* A decimal number; the whole text must match. */
static bool parse_number(const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoll(text, &end, 10);
	return !errno && end != text && !*end && !isspace((unsigned char)text[0]);
}

/* `228(%rbp)`, `(%rsp)`; not the forms with an index register. */
static bool parse_x86_memory(char *text, struct arg_spec *ret)
{
	char *open = strchr(text, '('), *close = strchr(text, ')');

	if (!open || !close || close[1] || open[1] != '%')
		return false;
	*open = *close = '\0';
	ret->place = ARG_MEMORY;
	if (open != text && !parse_number(text, &ret->value))
		return false;
	return find_register(EM_X86_64, open + 2, &ret->reg_index);
}

/* `[sp, 16]`, `[x29]`; not the forms with an index register or write-back. */
static bool parse_arm64_memory(char *text, struct arg_spec *ret)
{
	char *comma = strchr(text, ','), *close = strchr(text, ']');

	if (!close || close[1])
		return false;
	*close = '\0';
	ret->place = ARG_MEMORY;
	if (comma) {
		*comma = '\0';
		for (comma++; *comma == ' '; comma++)
			;
		if (!parse_number(comma + (*comma == '#'), &ret->value))
			return false;
	}
	return find_register(EM_AARCH64, text + 1, &ret->reg_index);
}

/* Length of the first argument: arguments are separated by blanks, but `[sp, 16]` contains
 * a blank. */
static size_t first_length(const char *text)
{
	bool in_brackets = false;
	size_t n;

	for (n = 0; text[n] && (in_brackets || text[n] != ' '); n++) {
		if (text[n] == '[')
			in_brackets = true;
		else if (text[n] == ']')
			in_brackets = false;
	}
	return n;
}

bool stapsdt_parse_argument(uint16_t machine, const char *text, struct arg_spec *ret)
{
	struct arg_spec arg = {};
	char word[64], *place;
	size_t length = first_length(text);
	bool ok;

	if (length >= sizeof(word))
		return false;
	memcpy(word, text, length);
	word[length] = '\0';

	place = word;
	if (*place == '-') {
		arg.is_signed = 1;
		place++;
	}
	if ((place[0] != '4' && place[0] != '8') || place[1] != '@')
		return false;
	arg.size = (uint8_t)(place[0] - '0');
	place += 2;

	if (machine == EM_X86_64 && *place == '%') {
		arg.place = ARG_REGISTER;
		ok = find_register(machine, place + 1, &arg.reg_index);
	} else if (machine == EM_X86_64 && *place == '$') {
		arg.place = ARG_CONSTANT;
		ok = parse_number(place + 1, &arg.value);
	} else if (machine == EM_X86_64) {
		ok = parse_x86_memory(place, &arg);
	} else if (*place == '[') {
		ok = parse_arm64_memory(place, &arg);
	} else if (*place == '-' || isdigit((unsigned char)*place)) {
		arg.place = ARG_CONSTANT;
		ok = parse_number(place, &arg.value);
	} else {
		arg.place = ARG_REGISTER;
		ok = find_register(machine, place, &arg.reg_index);
	}
	if (ok)
		*ret = arg;
	return ok;
}

/* ---- notes ---- */

struct note {
	uint64_t pc, base, semaphore;
	const char *provider, *name, *arguments;
};

/* Three addresses, then three NUL-terminated strings. */
static bool read_note(const uint8_t *desc, size_t size, struct note *ret)
{
	const char **strings[] = { &ret->provider, &ret->name, &ret->arguments };
	uint64_t words[3];
	const char *p = (const char *)desc + sizeof(words);
	const char *end = (const char *)desc + size;

	if (size < sizeof(words))
		return false;
	memcpy(words, desc, sizeof(words));
	ret->pc = words[0];
	ret->base = words[1];
	ret->semaphore = words[2];
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		const char *nul = memchr(p, '\0', (size_t)(end - p));

		if (!nul)
			return false;
		*strings[i] = p;
		p = nul + 1;
	}
	return true;
}

/*
 * Tools that move a program (prelink) do not relocate addresses in notes, but move section
 * .stapsdt.base. The note records the old base: the difference corrects the addresses.
 */
static bool read_site(const struct elf_file *elf, const struct note *note, struct probe_site *ret)
{
	const Elf64_Shdr *base = elf_section(elf, ".stapsdt.base");
	uint64_t moved = base && note->base ? base->sh_addr - note->base : 0;
	struct probe_site site = { .va = note->pc + moved };

	if (!elf_va_to_offset(elf, site.va, &site.file_offset))
		return false;
	if (note->semaphore &&
	    (!elf_va_to_offset(elf, note->semaphore + moved, &site.ref_ctr_offset) ||
	     !site.ref_ctr_offset))
		return false;
	if (!stapsdt_parse_argument(elf->machine, note->arguments, &site.arg))
		site.arg = (struct arg_spec){ .place = ARG_NONE };
	*ret = site;
	return true;
}

size_t stapsdt_find(const struct elf_file *elf, const char *provider, const char *name,
		    struct probe_site *ret, size_t max)
{
	const Elf64_Shdr *section = elf_section(elf, ".note.stapsdt");
	AUTO_FREE uint8_t *notes = NULL;
	const uint8_t *desc;
	const char *owner;
	Elf64_Nhdr head;
	size_t pos = 0, n = 0;

	if (!section || section->sh_size > NOTE_MAX_BYTES)
		return 0;
	notes = elf_copy(elf, section->sh_offset, section->sh_size);
	if (!notes)
		return 0;
	while (elf_note_next(notes, section->sh_size, 4, &pos, &head, &owner, &desc)) {
		struct probe_site site;
		struct note note;

		if (head.n_type != NOTE_STAPSDT || head.n_namesz != sizeof("stapsdt") ||
		    memcmp(owner, "stapsdt", sizeof("stapsdt")) != 0 ||
		    !read_note(desc, head.n_descsz, &note) ||
		    strcmp(note.provider, provider) != 0 || strcmp(note.name, name) != 0)
			continue;
		if (!read_site(elf, &note, &site))
			return 0;
		if (n < max)
			ret[n] = site;
		n++;
	}
	return n;
}
