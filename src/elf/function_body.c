// SPDX-License-Identifier: Apache-2.0
/* A function, moved parts and exits. See function_body.h. */
#include "elf/function_body.h"

/* Limits for hostile code. Real GC functions have few exits by jump. */
enum { MAX_LEAVING_JUMPS = 32, MAX_PART_BYTES = 16 << 10 };

static const struct function *part_at(const struct function_body *body, uint64_t va)
{
	for (size_t i = 0; i < body->n_parts; i++) {
		if (va >= body->parts[i].start && va < body->parts[i].end)
			return &body->parts[i];
	}
	return NULL;
}

bool function_body_contains(const struct function_body *body, uint64_t va)
{
	return part_at(body, va) != NULL;
}

bool function_body_refers_to(const struct function_body *body, uint64_t va)
{
	for (size_t i = 0; i < body->insns.n; i++) {
		if (body->insns.items[i].kind == INSN_REFERENCE &&
		    body->insns.items[i].target == va)
			return true;
	}
	return false;
}

void function_body_free(struct function_body *body)
{
	insns_free(&body->insns);
	body->n_parts = 0;
}

static bool is_direct_jump(const struct insn *insn)
{
	return insn->kind == INSN_JUMP || insn->kind == INSN_JUMP_IF;
}

/* Whether `other` jumps into the middle of the body; a tail-called function does not. */
static bool jumps_back(const struct elf_file *elf, const struct function_body *body,
		       const struct function *other)
{
	struct insns insns = {};
	bool back = false;

	if (other->end - other->start <= MAX_PART_BYTES &&
	    disassemble(elf, other->start, other->end, &insns, NULL) == 0) {
		for (size_t i = 0; i < insns.n && !back; i++) {
			const struct insn *insn = &insns.items[i];
			const struct function *part = is_direct_jump(insn)
							      ? part_at(body, insn->target)
							      : NULL;

			back = part && insn->target != part->start;
		}
	}
	insns_free(&insns);
	return back;
}

static int add_part(const struct elf_file *elf, struct function_body *body,
		    const struct function *part, struct why *why)
{
	if (body->n_parts == FUNCTION_MAX_PARTS)
		return why_fail(why, ENOTSUP, "the function at %#llx has more than %d parts",
				(unsigned long long)body->parts[0].start, FUNCTION_MAX_PARTS);
	body->parts[body->n_parts++] = *part;
	return disassemble(elf, part->start, part->end, &body->insns, why);
}

/* The instruction list grows during the loop: parts found are followed, too. */
static int find_parts(const struct elf_file *elf, const struct functions *functions,
		      struct function_body *body, struct why *why)
{
	size_t leaving = 0;

	for (size_t i = 0; i < body->insns.n; i++) {
		struct insn insn = body->insns.items[i];
		const struct function *other;
		int err;

		if (!is_direct_jump(&insn) || part_at(body, insn.target))
			continue;
		if (++leaving > MAX_LEAVING_JUMPS)
			return why_fail(why, ENOTSUP, "the function at %#llx cannot be followed",
					(unsigned long long)body->parts[0].start);
		other = functions_find(functions, insn.target);
		if (!other || (insn.target == other->start && !other->is_part &&
			       !jumps_back(elf, body, other)))
			continue; /* a tail call */
		err = add_part(elf, body, other, why);
		if (err)
			return err;
	}
	return 0;
}

int function_body_read(const struct elf_file *elf, const struct functions *functions,
		       const struct function *entry, struct function_body *ret, struct why *why)
{
	struct function_body body = {};
	int err;

	err = add_part(elf, &body, entry, why);
	if (!err)
		err = find_parts(elf, functions, &body, why);
	if (err) {
		function_body_free(&body);
		return err;
	}
	*ret = body;
	return 0;
}

int function_body_exits(const struct function_body *body, uint64_t *ret, size_t max,
			struct why *why)
{
	size_t n = 0;

	for (size_t i = 0; i < body->insns.n; i++) {
		const struct insn *insn = &body->insns.items[i];

		if (insn->kind == INSN_REFERENCE ||
		    (is_direct_jump(insn) && part_at(body, insn->target)))
			continue;
		if (insn->kind == INSN_JUMP_IF)
			return why_fail(why, ENOTSUP,
					"the function at %#llx ends in a conditional tail call",
					(unsigned long long)body->parts[0].start);
		if (n < max)
			ret[n] = insn->va;
		n++;
	}
	return (int)n;
}
