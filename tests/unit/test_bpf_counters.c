// SPDX-License-Identifier: Apache-2.0
/*
 * Counters in compiled BPF objects: another program may interrupt on the same CPU, so each addition
 * to a counter map must be a single instruction that kernel 5.10 supports.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <gelf.h>
#include <glob.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { REGISTERS = 16, MAP_LOOKUP = 1 };

/* Known contents of registers during the scan of a section. */
struct walk {
	bool of_counters[REGISTERS]; /* address of a counter map */
	bool counter[REGISTERS];     /* address of a counter */
};

struct found {
	size_t atomic, torn, fetching;
};

static bool is_counters(const char *map)
{
	size_t n = strlen(map);

	return (n >= 5 && !strcmp(map + n - 5, "stats")) ||
	       (n >= 5 && !strcmp(map + n - 5, "_cost"));
}

static void forget(struct walk *w, unsigned int reg)
{
	w->of_counters[reg] = w->counter[reg] = false;
}

static void step_call(struct walk *w, const struct bpf_insn *insn)
{
	bool counter = insn->imm == MAP_LOOKUP && !insn->src_reg && w->of_counters[1];

	for (unsigned int reg = 0; reg < 6; reg++)
		forget(w, reg);
	w->counter[0] = counter;
}

static void step(struct walk *w, const struct bpf_insn *insn, bool map, struct found *ret)
{
	unsigned int class = BPF_CLASS(insn->code);

	if (insn->code == (BPF_JMP | BPF_CALL)) {
		step_call(w, insn);
	} else if (insn->code == (BPF_JMP | BPF_JA) || insn->code == (BPF_JMP | BPF_EXIT)) {
		*w = (struct walk){ 0 }; /* the next instruction is a jump target */
	} else if (insn->code == (BPF_ALU64 | BPF_MOV | BPF_X)) {
		w->of_counters[insn->dst_reg] = w->of_counters[insn->src_reg];
		w->counter[insn->dst_reg] = w->counter[insn->src_reg];
	} else if (class == BPF_STX && w->counter[insn->dst_reg]) {
		ret->atomic += BPF_MODE(insn->code) == BPF_ATOMIC;
		ret->fetching += BPF_MODE(insn->code) == BPF_ATOMIC && insn->imm & BPF_FETCH;
		ret->torn += BPF_MODE(insn->code) != BPF_ATOMIC;
	} else if (class == BPF_ST && w->counter[insn->dst_reg]) {
		ret->torn++;
	} else if (class == BPF_LD || class == BPF_LDX || class == BPF_ALU || class == BPF_ALU64) {
		forget(w, insn->dst_reg);
		w->of_counters[insn->dst_reg] = map;
	}
}

/* Whether the instruction has a relocation to a counter map. */
static bool refers_to_counters(Elf *elf, Elf_Data *relocations, size_t n, Elf_Data *symbols,
			       size_t names, uint64_t offset)
{
	for (size_t i = 0; i < n; i++) {
		GElf_Rel rel;
		GElf_Sym symbol;

		if (gelf_getrel(relocations, (int)i, &rel) && rel.r_offset == offset)
			return gelf_getsym(symbols, (int)GELF_R_SYM(rel.r_info), &symbol) &&
			       is_counters(elf_strptr(elf, names, symbol.st_name));
	}
	return false;
}

static void walk_section(Elf *elf, Elf_Scn *relocations, struct found *ret)
{
	Elf_Data *rels = elf_getdata(relocations, NULL), *code, *symbols;
	GElf_Shdr rel_header, code_header, symbol_header;
	Elf_Scn *code_section, *symbol_section;
	struct walk w = { 0 };
	size_t n;

	gelf_getshdr(relocations, &rel_header);
	code_section = elf_getscn(elf, rel_header.sh_info);
	symbol_section = elf_getscn(elf, rel_header.sh_link);
	if (!gelf_getshdr(code_section, &code_header) || !(code_header.sh_flags & SHF_EXECINSTR))
		return;
	gelf_getshdr(symbol_section, &symbol_header);
	code = elf_getdata(code_section, NULL);
	symbols = elf_getdata(symbol_section, NULL);
	n = rel_header.sh_size / rel_header.sh_entsize;
	for (size_t at = 0; at + sizeof(struct bpf_insn) <= code->d_size;) {
		struct bpf_insn insn;
		bool wide, map;

		memcpy(&insn, (char *)code->d_buf + at, sizeof(insn));
		wide = insn.code == (BPF_LD | BPF_IMM | BPF_DW);
		map = wide && refers_to_counters(elf, rels, n, symbols, symbol_header.sh_link, at);
		step(&w, &insn, map, ret);
		at += wide ? 2 * sizeof(insn) : sizeof(insn);
	}
}

static struct found walk_object(const char *path)
{
	struct found found = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);

	assert_non_null(elf);
	for (Elf_Scn *s = elf_nextscn(elf, NULL); s; s = elf_nextscn(elf, s)) {
		GElf_Shdr header;

		if (gelf_getshdr(s, &header) && header.sh_type == SHT_REL)
			walk_section(elf, s, &found);
	}
	elf_end(elf);
	close(fd);
	return found;
}

static void test_counters_are_added_to_in_one_instruction(void **state)
{
	glob_t objects;

	(void)state;
	elf_version(EV_CURRENT);
	assert_int_equal(glob("build/bpf/*.bpf.o", 0, NULL, &objects), 0);
	assert_true(objects.gl_pathc >= 9);
	for (size_t i = 0; i < objects.gl_pathc; i++) {
		struct found found = walk_object(objects.gl_pathv[i]);

		print_message("%s: %zu additions\n", objects.gl_pathv[i], found.atomic);
		assert_int_equal(found.torn, 0);
		assert_int_equal(found.fetching, 0);
		assert_true(found.atomic > 0);
	}
	globfree(&objects);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counters_are_added_to_in_one_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
