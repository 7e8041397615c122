// SPDX-License-Identifier: Apache-2.0
/* Findings of doctor. See report.h. */
#include "commands/doctor/report.h"

#include <jansson.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

enum { NAME_BYTES = 64, DETAIL_BYTES = 1024, MAX_FEATURES = 64 };

struct finding {
	char section[NAME_BYTES], name[NAME_BYTES], detail[DETAIL_BYTES];
	bool ok;
};

static struct finding *findings;
static size_t n_findings;
static bool out_of_memory;
static char section[NAME_BYTES];

static struct {
	const char *name, *without;
	bool there;
} features[MAX_FEATURES];
static size_t n_features;

void doctor_section(const char *fmt, ...)
{
	char name[NAME_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	text_printable(section, sizeof(section), name);
}

bool doctor_say(bool ok, const char *what, const char *detail)
{
	struct finding *grown = realloc(findings, (n_findings + 1) * sizeof(*grown)), *f;

	if (!grown) {
		out_of_memory = true;
		return ok;
	}
	findings = grown;
	f = &findings[n_findings++];
	f->ok = ok;
	memcpy(f->section, section, sizeof(section));
	text_printable(f->name, sizeof(f->name), what);
	text_printable(f->detail, sizeof(f->detail), detail);
	return ok;
}

void doctor_feature(const char *name, bool there, const char *without)
{
	if (n_features < MAX_FEATURES) {
		features[n_features].name = name;
		features[n_features].there = there;
		features[n_features++].without = without;
	}
}

static size_t count_bad(void)
{
	size_t n = 0;

	for (size_t i = 0; i < n_findings; i++)
		n += !findings[i].ok;
	return n;
}

bool doctor_all_ok(void)
{
	return !out_of_memory && count_bad() == 0;
}

void doctor_forget(void)
{
	free(findings);
	findings = NULL;
	n_findings = n_features = 0;
}

static int written(struct why *why)
{
	if (out_of_memory)
		return why_fail(why, ENOMEM, "out of memory");
	if (fflush(stdout) || ferror(stdout))
		return why_fail(why, EIO, "cannot write to stdout: %s", strerror(errno));
	return 0;
}

/* ---- as text ---- */

static void print_answer(void)
{
	size_t bad = count_bad(), n = 0;

	if (!bad) {
		printf("ok: %s%zu check%s passed\n", counted(n_findings, "", "all "), n_findings,
		       plural(n_findings));
		return;
	}
	printf("NO: %zu of %zu check%s failed: ", bad, n_findings, plural(n_findings));
	for (size_t i = 0; i < n_findings; i++) {
		if (!findings[i].ok)
			printf("%s%s (%s)", n++ ? ", " : "", findings[i].name, findings[i].section);
	}
	puts("");
}

static void print_features(void)
{
	for (size_t i = 0; i < n_features; i++) {
		if (features[i].there)
			printf("  yes  %s\n", features[i].name);
		else
			printf("  no   %-22s fallback: %s\n", features[i].name,
			       features[i].without);
	}
}

static void sum_up_features(void)
{
	size_t lacking = 0;

	for (size_t i = 0; i < n_features; i++)
		lacking += !features[i].there;
	printf("  %zu of %zu features", n_features - lacking, n_features);
	for (size_t i = 0, n = 0; i < n_features; i++) {
		if (!features[i].there)
			printf("%s%s", n++ ? ", " : "; fallbacks for ", features[i].name);
	}
	puts(" (-v lists them)");
}

int doctor_print(bool verbose, struct why *why)
{
	const char *last = "";

	print_answer();
	for (size_t i = 0; i < n_findings; i++) {
		const struct finding *f = &findings[i];

		if (strcmp(f->section, last) != 0)
			printf("\n%s\n", f->section);
		last = f->section;
		text_print_line(stdout, "  %-4s %-14s %s", f->ok ? "ok" : "NO", f->name, f->detail);
	}
	if (n_features)
		puts("\n"
		     "kernel features (run --degrade=NAME acts as if a feature were missing)");
	if (verbose)
		print_features();
	else if (n_features)
		sum_up_features();
	return written(why);
}

/* ---- as JSON ---- */

int doctor_print_json(struct why *why)
{
	json_t *checks = json_array(), *kernel = json_array(), *root;

	for (size_t i = 0; i < n_findings; i++)
		json_array_append_new(checks,
				      json_pack("{s:s, s:s, s:b, s:s}", "section",
						findings[i].section, "name", findings[i].name, "ok",
						(int)findings[i].ok, "detail", findings[i].detail));
	for (size_t i = 0; i < n_features; i++)
		json_array_append_new(kernel, json_pack("{s:s, s:b, s:s}", "name", features[i].name,
							"there", (int)features[i].there, "without",
							features[i].without));
	root = json_pack("{s:b, s:o, s:o}", "ok", (int)doctor_all_ok(), "checks", checks,
			 "kernel_features", kernel);
	if (!root || json_dumpf(root, stdout, JSON_INDENT(2)))
		out_of_memory = true;
	puts("");
	json_decref(root);
	return written(why);
}
