// SPDX-License-Identifier: Apache-2.0
/* `underspan top --once --json`. See json.h. */
#include "commands/top/json.h"

#include <stdlib.h>

static json_t *shares_of(const struct top_sums *sums, const struct top_entry *e,
			 unsigned int of_process)
{
	json_t *shares = json_object();

	for (int part = 0; part < TOP_PARTS; part++) {
		bool known = top_part_is_known(sums, e, &e->all, (enum top_part)part,
					       sums->all_lacks, of_process);

		if (e->level != TOP_THREADS && part == TOP_HELD)
			continue;
		json_object_set_new(
			shares, top_part_names[part],
			known && sums->all_ns
				? json_real((double)top_part_ns(&e->all, (enum top_part)part) /
					    (double)sums->all_ns)
				: json_null());
	}
	return shares;
}

static json_t *thread_or_line(const struct top_sums *sums, const struct top_entry *e,
			      unsigned int of_process)
{
	json_t *entry = json_pack("{s:o}", "shares", shares_of(sums, e, of_process));

	if (e->level == TOP_THREADS)
		json_object_set_new(entry, "threads", json_integer(e->threads));
	return entry;
}

static json_t *json_of_level(struct top_sums *sums, const struct top_view *of, enum top_level level,
			     uint32_t host_pid)
{
	struct top_view view = *of;
	struct top_entry **list;
	json_t *array = json_array();
	size_t n;

	view.level = level;
	n = top_view_list(sums, &view, &list);
	for (size_t i = 0; i < n; i++) {
		const struct top_entry *e = list[i];
		json_t *entry;

		if (e->host_pid != host_pid)
			continue;
		entry = thread_or_line(sums, e, view.measured(host_pid));
		json_object_set_new(entry, level == TOP_LINES ? "line" : "name",
				    json_string(e->name));
		if (e->earlier)
			json_object_set_new(entry, "before",
					    thread_or_line(view.before, e->earlier,
							   view.measured_before(host_pid)));
		json_array_append_new(array, entry);
	}
	free(list);
	return array;
}

/* null: of no request known. */
static json_t *parts_of(const struct top_entry *e)
{
	json_t *parts = json_object();

	for (int i = 0; i < REQUEST_PARTS; i++)
		json_object_set_new(parts, request_parts[i].name,
				    e->all.had_parts & 1U << i ? json_real(e->all.request_ns[i])
							       : json_null());
	return parts;
}

static json_t *known_or_null(bool known, json_int_t value)
{
	return known ? json_integer(value) : json_null();
}

static void add_requests(json_t *figures, const struct top_sums *sums, const struct top_entry *e)
{
	if (!e->has_requests)
		return;
	if (sums->all_lacks & TOP_OF_REQUEST) {
		json_object_set_new(figures, "requests", json_null());
		return;
	}
	json_object_set_new(figures, "requests", json_real(e->all.requests));
	json_object_set_new(figures, "hidden_share",
			    sums->all_ns ? json_real(e->all.hidden_ns / (double)sums->all_ns)
					 : json_null());
	json_object_set_new(figures, "hidden_is_least",
			    json_boolean(top_sum_hidden_is_least(&e->all)));
	json_object_set_new(figures, "request_parts_ns", parts_of(e));
}

/* Of a window. */
static json_t *figures_of(const struct top_sums *sums, const struct top_entry *e,
			  unsigned int of_process)
{
	bool requests = !(sums->all_lacks & TOP_OF_REQUEST);
	json_t *figures = json_pack(
		"{s:b, s:o, s:o, s:o, s:o}", "gil_measured", (of_process & TOP_OF_GIL_WAIT) != 0,
		"busy_max", known_or_null(requests && e->busy_max >= 0, e->busy_max), "waiting_max",
		known_or_null(requests && e->waiting_max >= 0, e->waiting_max), "lag_ns",
		known_or_null(e->all.lag_ns, (json_int_t)e->all.lag_ns), "shares",
		shares_of(sums, e, of_process));

	add_requests(figures, sums, e);
	return figures;
}

static json_t *figures_before(const struct top_view *view, const struct top_entry *e)
{
	json_t *figures = figures_of(view->before, e, view->measured_before(e->host_pid));

	json_object_set_new(figures, "processes",
			    json_integer(view->processes_before(e->host_pid)));
	return figures;
}

static json_t *json_of_process(struct top_sums *sums, const struct top_view *view,
			       const struct top_entry *e)
{
	json_t *process = json_pack("{s:s, s:s, s:o, s:o}", "comm", e->name, "service", e->service,
				    "threads", json_of_level(sums, view, TOP_THREADS, e->host_pid),
				    "lines", json_of_level(sums, view, TOP_LINES, e->host_pid));
	json_t *figures = figures_of(sums, e, view->measured(e->host_pid));

	json_object_update(process, figures);
	json_decref(figures);
	if (view->before)
		json_object_set_new(process, "processes",
				    json_integer(view->processes(e->host_pid)));
	else
		json_object_set_new(process, "host_pid", json_integer(e->host_pid));
	if (e->earlier)
		json_object_set_new(process, "before", figures_before(view, e->earlier));
	return process;
}

static json_t *lacks_of(const struct top_sums *sums)
{
	json_t *lacks = json_array();

	for (size_t i = 0; i < TOP_SOURCES; i++) {
		if (sums->all_lacks & top_trackers[i].source)
			json_array_append_new(lacks, json_string(top_trackers[i].name));
	}
	return lacks;
}

json_t *top_json(struct top_sums *sums, const struct top_view *view)
{
	struct top_view processes = *view;
	struct top_entry **list;
	json_t *array = json_array(), *root;
	size_t n;

	processes.level = TOP_PROCESSES;
	n = top_view_list(sums, &processes, &list);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, json_of_process(sums, view, list[i]));
	free(list);
	root = json_pack("{s:f, s:o, s:o, s:I}", "duration_s", (double)sums->all_ns / 1e9,
			 "not_measured", lacks_of(sums), "processes", array, "left_out",
			 (json_int_t)sums->left_out);
	if (view->before)
		json_object_set_new(root, "before",
				    json_pack("{s:f, s:o, s:I}", "duration_s",
					      (double)view->before->all_ns / 1e9, "not_measured",
					      lacks_of(view->before), "left_out",
					      (json_int_t)view->before->left_out));
	return root;
}
