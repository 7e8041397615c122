// SPDX-License-Identifier: Apache-2.0
/* Options for --help: in groups, in 80 columns, with the effective defaults. */
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/config_value.h"
#include "base/text.h"

enum { HELP_COLUMNS = 79, TEXT_BEGINS = 30 };

/* Prints text wrapped at spaces; the cursor is at column `at`. */
static void print_wrapped(size_t at, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, " "), width;
		char word[128];

		snprintf(word, sizeof(word), "%.*s", (int)len, text);
		width = text_width(word);
		if (at > TEXT_BEGINS && at + 1 + width > HELP_COLUMNS) {
			printf("\n%*s", TEXT_BEGINS, "");
			at = TEXT_BEGINS;
		}
		at += (size_t)printf("%s%s", at > TEXT_BEGINS ? " " : "", word);
		text += len + strspn(text + len, " ");
	}
	putchar('\n');
}

static void describe(const struct option *o, char *buf, size_t size)
{
	char value[256];

	config_show(o, value, sizeof(value));
	if (o->otherwise && (!*value || !strcmp(value, "0")))
		snprintf(buf, size, "%s (default: %s)", o->help, o->otherwise);
	else if (*value)
		snprintf(buf, size, "%s (default: %s)", o->help, value);
	else
		snprintf(buf, size, "%s", o->help);
}

static void print_option(const struct option *o)
{
	char flag[128], text[1024];
	size_t at;

	snprintf(flag, sizeof(flag), "  %.*s--%s%s%s", o->letter ? 4 : 0,
		 (char[]){ '-', o->letter, ',', ' ', 0 }, o->key, o->arg ? "=" : "",
		 o->arg ? o->arg : "");
	at = (size_t)printf("%-*s", TEXT_BEGINS, flag);
	if (strlen(flag) >= TEXT_BEGINS) {
		printf("\n%*s", TEXT_BEGINS, "");
		at = TEXT_BEGINS;
	}
	describe(o, text, sizeof(text));
	print_wrapped(at, text);
}

void config_print_given(const struct option_table *tables)
{
	const char *head = "given";

	for (; tables->options; tables++) {
		for (size_t i = 0; i < tables->n; i++) {
			const struct option *o = &tables->options[i];
			const char *where = config_where(o->key);
			char value[256];

			if (!where || !strcmp(o->key, "check"))
				continue;
			config_show(o, value, sizeof(value));
			if (o->type == OPTION_BOOL && !*value)
				snprintf(value, sizeof(value), "false");
			if (!*value) /* replaced by an option of the same group */
				continue;
			printf("%-11s %s = %s (%s)\n", head, o->key, value, where);
			head = "";
		}
	}
}

void config_print_help(const struct option_table *tables)
{
	bool titled = false;

	for (; tables->options; tables++) {
		if (tables->title || !titled)
			printf("%s%s:\n", titled ? "\n" : "", tables->title ?: "Options");
		titled = true;
		for (size_t i = 0; i < tables->n; i++) {
			if (tables->options[i].help)
				print_option(&tables->options[i]);
		}
	}
	puts("\n"
	     "Configuration:\n"
	     "  -c, --config=FILE           read options from a JSON file; 'none': from none\n\n"
	     "`underspan help config` explains the precedence, `underspan help units`\n"
	     "how to write durations and sizes.");
}
