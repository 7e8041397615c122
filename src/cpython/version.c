// SPDX-License-Identifier: Apache-2.0
/* The CPython version of a file. See version.h. */
#include "cpython/version.h"

#include <string.h>

enum { FIRST_MINOR = 8, LAST_MINOR = 15, LAST_MINOR_WITHOUT_CONSTANT = 10 };

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* PY_VERSION_HEX: major, minor, micro, one byte each, then release level and serial. */
static bool set_version(struct python_image *image, uint64_t hex)
{
	if (hex >> 24 != 3)
		return false;
	image->major = 3;
	image->minor = (uint8_t)(hex >> 16);
	image->micro = (uint8_t)(hex >> 8);
	return true;
}

/* 3.13 and later: _PyRuntime starts with a cookie, the version and the kind of build. */
static bool from_debug_offsets(const struct elf_file *elf, struct python_image *image)
{
	uint64_t words[3];

	if (elf_read_va(elf, image->runtime_va, words, sizeof(words)) ||
	    memcmp(words, "xdebugpy", sizeof(words[0])) != 0 || !set_version(image, words[1]))
		return false;
	image->free_threaded = words[2] != 0;
	return true;
}

/* 3.11 and later export the constant Py_Version. */
static bool from_constant(const struct elf_file *elf, const struct elf_symbols *symbols,
			  struct python_image *image)
{
	uint64_t va, hex;

	return elf_symbol_find(symbols, "Py_Version", &va) &&
	       !elf_read_va(elf, va, &hex, sizeof(hex)) && set_version(image, hex);
}

/* ---- up to 3.10: from texts in every interpreter ---- */

/* Reads at most two digits at `p`; returns the position after them. */
static const uint8_t *parse_part(const uint8_t *p, const uint8_t *end, unsigned int *ret)
{
	const uint8_t *start = p;

	for (*ret = 0; p < end && is_digit(*p); p++) {
		if (p - start == 2)
			return start;
		*ret = *ret * 10 + (unsigned int)(*p - '0');
	}
	return p;
}

/* Minor versions found in a file's texts, as bit sets. */
struct version_texts {
	uint32_t released;   /* texts ending with "3.N.M": the version, or a path */
	uint32_t named;	     /* texts ending with "python3.N": directory of the standard library */
	uint8_t micro[32];   /* micro of the last such text */
	uint32_t two_micros; /* texts disagree about M */
};

/*
 * `p` is after "3.". Compilers merge a text into another with the same ending, so the preceding
 * byte is ignored, except that it must not be part of the number.
 */
static void note_version(const uint8_t *data, const uint8_t *p, const uint8_t *end,
			 struct version_texts *texts)
{
	const uint8_t *text = p - 2, *rest;
	unsigned int minor, micro;

	rest = parse_part(p, end, &minor);
	if (rest == p || rest == end || minor >= 32)
		return;
	if (*rest == '\0') {
		if (text - data >= 6 && memcmp(text - 6, "python", 6) == 0)
			texts->named |= 1u << minor;
		return;
	}
	if (*rest != '.' || (text > data && (is_digit(text[-1]) || text[-1] == '.')))
		return;
	p = rest + 1;
	rest = parse_part(p, end, &micro);
	if (rest == p || rest == end || (*rest != '\0' && *rest != '+'))
		return;
	if ((texts->released & (1u << minor)) && texts->micro[minor] != micro)
		texts->two_micros |= 1u << minor;
	texts->released |= 1u << minor;
	texts->micro[minor] = (uint8_t)micro;
}

static void collect_texts(const struct elf_file *elf, struct version_texts *ret)
{
	for (size_t i = 0; i < elf->n_loads; i++) {
		const struct elf_segment *s = &elf->loads[i];
		const uint8_t *p = s->data, *end = p ? p + s->file_size : NULL;

		if (s->flags & PF_X)
			continue;
		while (p && (p = memmem(p, (size_t)(end - p), "3.", 2))) {
			p += 2;
			note_version(s->data, p, end, ret);
		}
	}
}

/* The minor version named by a path such as "libpython3.8.so.1.0" or "/usr/bin/python3.8";
 * 0: none. */
static unsigned int minor_of_path(const char *path)
{
	const char *name = path ? strrchr(path, '/') : NULL;
	unsigned int minor = 0;

	name = name ? name + 1 : path;
	name = name ? strstr(name, "python3.") : NULL;
	if (name) {
		name += strlen("python3.");
		parse_part((const uint8_t *)name, (const uint8_t *)name + strlen(name), &minor);
	}
	return minor;
}

/*
 * A text is weak evidence (libraries have versions, too): two kinds of text must agree and no text
 * may contradict: the library directory, and the full version or the file's own name.
 */
static bool from_texts(struct elf_file *elf, const char *path_hint, struct python_image *image)
{
	struct version_texts texts = {};
	uint32_t agreed, hinted;

	collect_texts(elf, &texts);
	hinted = 1u << (minor_of_path(path_hint) & 31);
	agreed = texts.named & (texts.released | hinted);
	if (!agreed || (agreed & (agreed - 1)) || (texts.named & (texts.named - 1)))
		return false;
	image->major = 3;
	image->minor = (uint8_t)__builtin_ctz(agreed);
	image->micro = (texts.released & ~texts.two_micros & agreed) ? texts.micro[image->minor]
								     : PYTHON_MICRO_UNKNOWN;
	/* later versions export a constant */
	return image->minor <= LAST_MINOR_WITHOUT_CONSTANT;
}

int python_version_find(struct elf_file *elf, const struct elf_symbols *symbols,
			const char *path_hint, struct python_image *image, struct why *why)
{
	bool found = from_debug_offsets(elf, image) || from_constant(elf, symbols, image);
	struct why reason;

	if (!found && elf_load_readonly(elf, &reason))
		return why_fail(why, ENOTSUP, "%s: a Python, but the file cannot be searched: %s",
				path_hint ? path_hint : "a file", reason.text);
	if (!found && !from_texts(elf, path_hint, image))
		return why_fail(why, ENOTSUP, "%s: a Python of unknown version",
				path_hint ? path_hint : "a file");
	if (image->minor < FIRST_MINOR || image->minor > LAST_MINOR)
		return why_fail(
			why, ENOTSUP, "%s: Python 3.%u is not supported, only 3.%d to 3.%d are",
			path_hint ? path_hint : "a file", image->minor, FIRST_MINOR, LAST_MINOR);
	return 0;
}
