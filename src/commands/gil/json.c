// SPDX-License-Identifier: Apache-2.0
/* The result of `underspan gil` as JSON. See json.h. */
#include "commands/gil/json.h"

#include "commands/report.h"
#include "commands/watched.h"

enum { LINES_SHOWN = 10 };

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static json_t *json_of_stored(const struct gil_result *r, const struct gil_thread *t)
{
	bool one = t->threads <= 1;

	return json_pack("{s:s, s:I, s:o, s:o, s:I, s:I, s:f, s:I, s:n, s:I, s:I, s:I}",
			 "thread_name", t->name, "threads", (json_int_t)t->threads, "pid",
			 one ? json_integer(t->pid) : json_null(), "host_tid",
			 one ? json_integer(t->host_tid) : json_null(), "waits",
			 (json_int_t)t->waits, "wait_ns", (json_int_t)t->wait_ns, "share_of_time",
			 share_of(t->wait_ns, r->wall_ns), "max_ns", (json_int_t)t->max_ns,
			 "p99_ns", "runq_ns", (json_int_t)t->runq_ns, "forced_ns",
			 (json_int_t)t->forced_ns, "before_ns", (json_int_t)t->before_ns);
}

static json_t *json_of_waits(const struct gil_result *r, const struct gil_thread *t)
{
	if (r->stored)
		return json_of_stored(r, t);
	return json_pack("{s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "pid",
			 (json_int_t)t->pid, "tid", (json_int_t)t->id.tid, "host_pid",
			 (json_int_t)t->id.host_pid, "host_tid", (json_int_t)t->host_tid,
			 "thread_name", t->name, "waits", (json_int_t)t->waits, "wait_ns",
			 (json_int_t)t->wait_ns, "share_of_time", share_of(t->wait_ns, r->wall_ns),
			 "max_ns", (json_int_t)t->max_ns, "p99_ns",
			 (json_int_t)gil_percentile_ns(t, 99), "runq_ns", (json_int_t)t->runq_ns,
			 "forced_ns", (json_int_t)t->forced_ns);
}

static json_t *json_of_holder(const struct gil_result *r, const struct gil_thread *t)
{
	json_t *lines = json_array(), *holder;
	size_t n = 0;

	for (const struct gil_line *l = t->lines; l && n < LINES_SHOWN; l = l->hh.next, n++)
		json_array_append_new(lines, json_pack("{s:s, s:I, s:I}", "line", l->text, "waits",
						       (json_int_t)l->waits, "wait_ns",
						       (json_int_t)l->wait_ns));
	holder = json_pack("{s:s, s:I, s:I, s:f, s:o}", "thread_name", t->name, "waits",
			   (json_int_t)t->held_waits, "wait_ns", (json_int_t)t->held_ns, "share",
			   share_of(t->held_ns, r->totals->rows_ns), "lines", lines);
	if (r->stored) {
		json_object_set_new(holder, "threads", json_integer((json_int_t)t->threads));
		return holder;
	}
	json_object_set_new(holder, "tid", json_integer(t->id.tid));
	json_object_set_new(holder, "host_pid", json_integer(t->id.host_pid));
	return holder;
}

/* Processes without measurement or without Python have no numbers. */
static json_t *json_of_process(const struct gil_result *r, const struct watched *w)
{
	json_t *process = json_pack("{s:I, s:s, s:b, s:b}", "host_pid", (json_int_t)w->host_pid,
				    "comm", w->comm, "named", w->named, "measured", w->live);
	struct gil_process_sum sum = gil_totals_of_process(r->totals, w->host_pid);

	if (w->live) {
		json_object_set_new(process, "method", json_string(w->method));
		json_object_set_new(process, "waits", json_integer((json_int_t)sum.waits));
		json_object_set_new(process, "wait_ns", json_integer((json_int_t)sum.wait_ns));
	} else {
		json_object_set_new(process, "reason",
				    w->reason.text[0] ? json_string(w->reason.text) : json_null());
	}
	return process;
}

static json_t *json_of_processes(const struct gil_result *r)
{
	json_t *processes = json_array();

	for (const struct watched *w = watched_first(); w; w = w->next)
		json_array_append_new(processes, json_of_process(r, w));
	return processes;
}

static void add_sums(const struct gil_result *r, json_t *root)
{
	json_t *threads = json_array(), *holders = json_array();

	gil_totals_sort_by_wait(r->totals);
	for (const struct gil_thread *t = r->totals->threads; t; t = t->hh.next) {
		if (t->waits || t->before_ns)
			json_array_append_new(threads, json_of_waits(r, t));
	}
	gil_totals_sort_by_held(r->totals);
	for (const struct gil_thread *t = r->totals->threads; t && t->held_ns; t = t->hh.next)
		json_array_append_new(holders, json_of_holder(r, t));
	json_object_update_new(
		root,
		json_pack("{s:f, s:s, s:I, s:I, s:o, s:o, s:I, s:I, s:s}", "duration_s",
			  (double)r->wall_ns / 1e9, "method",
			  r->stored ? report_text(r->stored, "methods") : r->measured->method,
			  "waits", (json_int_t)r->totals->waits, "wait_ns",
			  (json_int_t)r->totals->wait_ns, "threads", threads, "holders", holders,
			  "holder_unknown_ns", (json_int_t)r->totals->unheld_ns, "lost",
			  (json_int_t)r->measured->lost, "not_measured", r->not_measured));
}

/* Without sums if nothing was measured. */
json_t *gil_json(const struct gil_result *r)
{
	json_t *root;

	if (r->stored) {
		root = json_deep_copy(r->stored);
		add_sums(r, root);
		json_object_set_new(root, "before_ns",
				    json_integer((json_int_t)r->totals->before_ns));
		return root;
	}
	root = json_pack("{s:I, s:s}", "host_pid", (json_int_t)r->measured->host_pid, "comm",
			 r->measured->comm);

	if (watched_any_live())
		add_sums(r, root);
	json_object_set_new(root, "processes", json_of_processes(r));
	return root;
}
