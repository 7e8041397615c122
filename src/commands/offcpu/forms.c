// SPDX-License-Identifier: Apache-2.0
/* Forms of the result of `underspan offcpu`. See forms.h. */
#include "commands/offcpu/forms.h"

#include <jansson.h>
#include <string.h>

#include "commands/offcpu/flamegraph.h"
#include "commands/offcpu/html.h"
#include "commands/offcpu/pprof.h"
#include "commands/offcpu/speedscope.h"
#include "commands/watched.h"
#include "html/page.h"

enum offcpu_form offcpu_form_of(const char *path)
{
	static const struct {
		const char *suffix;
		enum offcpu_form form;
	} forms[] = {
		{ ".speedscope.json", FORM_SPEEDSCOPE },
		{ ".pb.gz", FORM_PPROF },
		{ ".html", FORM_HTML },
		{ ".svg", FORM_SVG },
		{ ".folded", FORM_FOLDED },
		{ ".json", FORM_JSON },
	};
	size_t len = strlen(path);

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		size_t n = strlen(forms[i].suffix);

		if (len > n && !strcmp(path + len - n, forms[i].suffix))
			return forms[i].form;
	}
	return FORM_TABLE;
}

static const char *title_of(const struct offcpu_result *r)
{
	if (r->with_cpu)
		return r->compared ? "Time on and off the CPU, compared"
				   : "Time on and off the CPU";
	return r->compared ? "Off-CPU time, compared" : "Off-CPU time";
}

/* ---- JSON ---- */

/* Root first; before_us only with a comparison. */
static json_t *json_of_stack(const struct folded_stack *s, bool compared)
{
	json_t *frames = json_array(), *stack;

	for (const char *frame = s->text; frame; frame = strchr(frame, ';')) {
		frame += *frame == ';';
		json_array_append_new(frames, json_stringn(frame, strcspn(frame, ";")));
	}
	stack = json_pack("{s:I, s:o}", "us", (json_int_t)s->value, "frames", frames);
	if (compared)
		json_object_set_new(stack, "before_us", json_integer((json_int_t)s->before));
	return stack;
}

static json_t *json_of_named(void)
{
	json_t *processes = json_array();

	for (const struct watched *w = watched_first(); w; w = w->next) {
		if (w->named)
			json_array_append_new(processes,
					      json_pack("{s:I, s:s, s:b, s:s}", "host_pid",
							(json_int_t)w->host_pid, "comm", w->comm,
							"measured", w->there, "reason",
							w->there ? "" : w->reason.text));
	}
	return processes;
}

static int write_json(const struct offcpu_result *r, FILE *out)
{
	const struct watched *first = watched_first();
	json_t *stacks = json_array(), *root;
	uint64_t cpu_us = 0;
	int err;

	folded_sort_values(r->folded);
	for (const struct folded_stack *s = r->folded->stacks; s; s = s->hh.next) {
		if (s->value || s->before)
			json_array_append_new(stacks, json_of_stack(s, r->compared));
		if (folded_is_of(s, "cpu"))
			cpu_us += s->value;
	}
	root = json_pack("{s:f, s:I, s:o}", "duration_s", (double)r->duration_ns / 1e9,
			 "off_cpu_us", (json_int_t)(folded_total(r->folded) - cpu_us), "stacks",
			 stacks);
	if (!root)
		return -ENOMEM;
	if (r->with_cpu)
		json_object_set_new(root, "cpu_us", json_integer((json_int_t)cpu_us));
	if (r->window)
		json_object_update(root, (json_t *)r->window);
	else
		json_object_update_new(root, json_pack("{s:I, s:s, s:o}", "host_pid",
						       (json_int_t)first->host_pid, "comm",
						       first->comm, "processes", json_of_named()));
	if (r->by_lock)
		json_object_set(root, "by_lock", (json_t *)r->by_lock);
	err = json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) ? -EIO : 0;
	fputc('\n', out);
	json_decref(root);
	return err || fflush(out) || ferror(out) ? -EIO : 0;
}

static int write_html(const struct offcpu_result *r, FILE *out)
{
	json_t *body = offcpu_html_body(r->folded, r->compared);
	int err;

	if (!body)
		return -ENOMEM;
	json_object_set_new(body, "subtitle", json_string(r->subtitle));
	json_object_set_new(body, "processes", json_of_named());
	if (r->by_lock)
		json_object_set(body, "by_lock", (json_t *)r->by_lock);
	err = html_page_write(out, "offcpu", title_of(r), body, NULL);
	json_decref(body);
	return err;
}

int offcpu_write(enum offcpu_form form, const struct offcpu_result *r, FILE *out)
{
	switch (form) {
	case FORM_SVG:
		return flamegraph_write(r->folded, r->compared, title_of(r), r->subtitle, out);
	case FORM_FOLDED:
		folded_sort_texts(r->folded);
		return folded_write(r->folded, r->compared, out);
	case FORM_JSON:
		return write_json(r, out);
	case FORM_HTML:
		return write_html(r, out);
	case FORM_PPROF:
		return pprof_write(r->folded, r->with_cpu, r->from_us, r->duration_ns, out);
	case FORM_SPEEDSCOPE:
		return speedscope_write(r->folded, r->subtitle, out);
	case FORM_TABLE:
		break;
	}
	return 0;
}
