// SPDX-License-Identifier: Apache-2.0
/* The file of --diff: parsed, drawn and printed. */
#include "fuzz.h"

#include "commands/offcpu/flamegraph.h"
#include "commands/offcpu/table.h"
#include "base/text.h"

/* The SVG contains no injected markup and no byte invalid in XML or harmful to a terminal. */
static void check(const char *svg, size_t size)
{
	for (size_t i = 0; i < size;) {
		size_t n = utf8_sequence((const unsigned char *)svg + i, size - i);

		MUST(n && (svg[i] == '\n' || (unsigned char)svg[i] >= 0x20));
		if (svg[i] == '<')
			MUST(strchr("?s/tgr", svg[i + 1]));
		if (svg[i] == '&')
			MUST(strchr("algq", svg[i + 1]));
		i += n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct folded folded = { 0 };
	struct why why = { { 0 } };
	uint64_t before;
	char *svg = NULL;
	size_t svg_size, n = 0;
	FILE *out = open_memstream(&svg, &svg_size);

	MUST(out);
	if (folded_parse(&folded, (const char *)data, size, "input", &why))
		MUST(why.text[0]);
	before = folded_total_before(&folded);
	for (struct folded_stack *s = folded.stacks; s; s = s->hh.next)
		s->ns = s->before % 1000000 * 1000;
	folded_round(&folded);
	MUST(folded_total_before(&folded) == before);
	MUST(!flamegraph_write(&folded, true, "t", "s", out));
	fflush(out);
	check(svg, svg_size);
	offcpu_table(&folded, out);
	offcpu_table_changes(&folded, out);
	for (struct folded_stack *s = folded.stacks; s; s = s->hh.next, n++)
		MUST(!s->hh.next ||
		     strcmp(s->text, ((struct folded_stack *)s->hh.next)->text) != 0);
	MUST(n == HASH_COUNT(folded.stacks));
	fclose(out);
	free(svg);
	folded_free(&folded);
	return 0;
}
