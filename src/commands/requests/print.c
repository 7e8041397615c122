// SPDX-License-Identifier: Apache-2.0
/* Tables of `underspan requests`. See print.h. */
#include "commands/requests/print.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"
#include "commands/request_parts.h"
#include "commands/window_text.h"

enum {
	COLUMNS = 80,
	COLUMNS_MAX = 200,
	TEXT_MAX = 2048,
	PARTS_SHOWN = 5, /* the largest parts; the rest as a sum */
};

static size_t columns;	/* of a line */
static bool cuts_names; /* a terminal: long names are cut, sentences are wrapped */

static void find_columns(void)
{
	struct winsize size;

	cuts_names = isatty(STDOUT_FILENO);
	columns = COLUMNS;
	if (cuts_names && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col > COLUMNS)
		columns = size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
}

/* A name padded to `room`; a longer name is cut on a terminal. */
static void print_name(const char *name, size_t room)
{
	char text[TEXT_MAX];
	size_t width, bytes;

	text_printable(text, sizeof(text), name);
	bytes = text_prefix(text, room, &width);
	if (text[bytes] && cuts_names) {
		bytes = text_prefix(text, room - 2, &width);
		printf("%.*s..%*s", (int)bytes, text, (int)(room - 2 - width), "");
	} else if (text[bytes]) {
		fputs(text, stdout);
	} else {
		printf("%s%*s", text, (int)(room - width), "");
	}
}

/* Words of a sentence, wrapped; the first line begins at column `at`, further lines at `indent`. */
static void print_wrapped(const char *sentence, size_t at, size_t indent)
{
	char text[TEXT_MAX];
	const char *word = text;
	bool first = true;

	text_printable(text, sizeof(text), sentence);
	while (*word) {
		size_t len = strcspn(word, " "), width;
		char copy[TEXT_MAX];

		snprintf(copy, sizeof(copy), "%.*s", (int)len, word);
		width = text_width(copy);
		if (cuts_names && !first && at + 1 + width > columns) {
			printf("\n%*s", (int)indent, "");
			at = indent;
		} else if (!first) {
			putchar(' ');
			at++;
		}
		while (cuts_names && width > columns - at) { /* a word longer than a line */
			size_t bytes = text_prefix(word, columns - at, NULL);

			printf("%.*s\n%*s", (int)bytes, word, (int)indent, "");
			word += bytes;
			len -= bytes;
			snprintf(copy, sizeof(copy), "%.*s", (int)len, word);
			width = text_width(copy);
			at = indent;
		}
		fputs(copy, stdout);
		first = false;
		at += width;
		word += len;
		word += strspn(word, " ");
	}
	putchar('\n');
}

static void print_time(int64_t us, bool with_day)
{
	time_t s = (time_t)(us / 1000000);
	struct tm tm;
	char text[32];

	gmtime_r(&s, &tm);
	strftime(text, sizeof(text), with_day ? "%m-%d %H:%M:%S" : "%H:%M:%S", &tm);
	printf("%s.%03d  ", text, (int)(us / 1000 % 1000));
}

/* ---- parts ---- */

struct share {
	int part;
	double ms;
};

static int by_size(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	return x->ms < y->ms ? 1 : x->ms > y->ms ? -1 : x->part - y->part;
}

/* "::ffff:10.0.0.5" is "10.0.0.5". */
static const char *short_ip(const char *ip)
{
	static const char mapped[] = "::ffff:";

	return strncmp(ip, mapped, strlen(mapped)) ? ip : ip + strlen(mapped);
}

static void add_word(char *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_word(char *line, const char *fmt, ...)
{
	size_t n = strlen(line);
	va_list ap;

	if (n && n + 2 < TEXT_MAX)
		n += (size_t)snprintf(line + n, TEXT_MAX - n, ", ");
	va_start(ap, fmt);
	vsnprintf(line + n, TEXT_MAX - n, fmt, ap);
	va_end(ap);
}

static void add_peer(char *line, const json_t *row)
{
	const char *ip = report_text(row, "net_peer_ip"), *path = report_text(row, "net_peer_path");

	if (report_number(row, "net_peer_ns") > 0 && *path)
		snprintf(line + strlen(line), TEXT_MAX - strlen(line), " (mostly %.108s)", path);
	else if (report_number(row, "net_peer_ns") > 0 && *ip &&
		 report_number(row, "net_peer_port") > 0)
		snprintf(line + strlen(line), TEXT_MAX - strlen(line),
			 strchr(short_ip(ip), ':') ? " (mostly [%.64s]:%.0f)"
						   : " (mostly %.64s:%.0f)",
			 short_ip(ip), report_number(row, "net_peer_port"));
}

/* Number of an endpoint's requests with a measurement of the part. */
static double measured_in(const json_t *row, int part, double requests)
{
	char column[64];
	double n;

	snprintf(column, sizeof(column), "%s_unmeasured", request_parts[part].name);
	n = requests - report_number(row, column);
	return n > 0 ? n : 1;
}

/*
 * "queue 1004.2, net 150.1 (mostly 10.0.0.5:5432), others 3.1; gil -": the parts of a row, in
 * milliseconds. Parts of an endpoint are means over the requests with a measurement of the part.
 */
static void describe_parts(char *line, const json_t *row, double requests)
{
	struct share shares[REQUEST_PARTS];
	size_t n_shares = 0, shown = 0;
	double ns, others = 0;
	bool any_null = false;

	line[0] = 0;
	for (int i = 0; i < REQUEST_PARTS; i++) {
		if (report_part(row, i, &ns))
			shares[n_shares++] = (struct share){ i, ns / measured_in(row, i, requests) /
									1e6 };
		else
			any_null = true;
	}
	qsort(shares, n_shares, sizeof(shares[0]), by_size);
	for (size_t i = 0; i < n_shares; i++) {
		if (shares[i].ms < 0.05 || shown == PARTS_SHOWN) {
			others += shares[i].ms;
			continue;
		}
		add_word(line, "%s %.1f", request_parts[shares[i].part].name, shares[i].ms);
		if (!strcmp(request_parts[shares[i].part].name, "net"))
			add_peer(line, row);
		shown++;
	}
	if (others >= 0.05)
		add_word(line, "others %.1f", others);
	for (int i = 0; any_null && i < REQUEST_PARTS; i++) {
		if (!report_part(row, i, &ns))
			add_word(line, "%s -", request_parts[i].name);
	}
}

/* ---- requests ---- */

static const char *path_text(const json_t *row, const char *column)
{
	const char *path = report_text(row, column);

	return *path ? path : "(path not seen)";
}

static void print_request(const json_t *row, bool with_day)
{
	size_t room = columns - (with_day ? 20 : 14) - 7 - 13;
	const char *method = report_text(row, "method"), *outcome = report_text(row, "outcome");
	const char *trace = report_text(row, "trace_id");
	char name[TEXT_MAX], parts[TEXT_MAX], ids[TEXT_MAX];

	print_time((int64_t)report_number(row, "start_us"), with_day);
	snprintf(name, sizeof(name), "%.32s%s%s", method, *method ? " " : "",
		 path_text(row, "path"));
	print_name(name, room);
	if (report_has(row, "status"))
		printf(" %6.0f", report_number(row, "status"));
	else
		printf(" %6s", "-");
	printf(" %12.1f\n", report_number(row, "duration_ns") / 1e6);
	describe_parts(parts, row, 1);
	if (*outcome && strcmp(outcome, "answered") != 0)
		add_word(parts, "%.32s", outcome);
	printf("    ");
	print_wrapped(parts, 4, 4);
	snprintf(ids, sizeof(ids), "%.20s %.33s :%.0f pid %.0f", report_text(row, "request_id"),
		 *trace ? trace : "-", report_number(row, "server_port"),
		 report_number(row, "pid"));
	printf("    ");
	print_wrapped(ids, 4, 4);
}

static void print_slowest(const json_t *report, const struct request_question *q)
{
	const json_t *rows = json_object_get(report, "slowest"), *row;
	int64_t day_us = 86400LL * 1000000;
	bool with_day = (int64_t)report_number(report, "from_us") / day_us !=
			(int64_t)report_number(report, "to_us") / day_us;
	size_t i;

	if (!json_array_size(rows)) {
		if (q->part >= 0)
			printf("no request with %s in that time\n\n", request_parts[q->part].name);
		return;
	}
	if (q->part < 0)
		puts("Slowest requests, the time spent waiting for the client left out of the order");
	else
		printf("Requests with most %s\n", request_parts[q->part].name);
	printf("%-*s%-*s %6s %12s\n", with_day ? 20 : 14, "UTC",
	       (int)(columns - (with_day ? 20 : 14) - 20), "request", "status", "total, ms");
	puts("    where the time went, ms\n    request id, trace id, port, pid\n");
	json_array_foreach (rows, i, row)
		print_request(row, with_day);
	putchar('\n');
}

/* ---- endpoints ---- */

/* "before: 120 requests, mean 12.3 ms, p99 45.6 ms: lock 3.1, cpu 0.5" */
static void print_before(const json_t *row, const json_t *against)
{
	const json_t *before = json_object_get(row, "before");
	double requests = report_number(before, "requests");
	char parts[TEXT_MAX], text[TEXT_MAX + 128];

	if (requests <= 0) {
		puts(report_number(against, "measured_s") > 0 ? "    before: no request"
							      : "    before: not measured");
		return;
	}
	describe_parts(parts, before, requests);
	snprintf(text, sizeof(text), "before: %.0f request%s, mean %.1f ms, p99 %.1f ms: %s",
		 requests, plural(requests),
		 report_number(before, "server_sum_ns") / requests / 1e6,
		 report_number(before, "server_p99_ns") / 1e6, parts);
	printf("    ");
	print_wrapped(text, 4, 4);
}

/* Nine columns; what two digits would show as 0 has more of them. */
static void print_seconds(double s)
{
	if (s > 0 && s < 0.00005)
		printf(" %9.1e\n", s);
	else
		printf(" %9.*f\n", s > 0 && s < 0.005 ? 4 : 2, s);
}

static void print_endpoint(const json_t *row, int part, const json_t *against)
{
	double requests = report_number(row, "requests"), ns = 0;
	char name[TEXT_MAX], parts[TEXT_MAX];
	const char *method = report_text(row, "method");

	snprintf(name, sizeof(name), "%.32s%s%s :%.0f", method, *method ? " " : "",
		 path_text(row, "endpoint"), report_number(row, "server_port"));
	print_name(name, columns - 42);
	printf(" %9.0f %10.1f %10.1f", requests,
	       requests > 0 ? report_number(row, "server_sum_ns") / requests / 1e6 : 0,
	       report_number(row, "server_p99_ns") / 1e6);
	if (part >= 0 ? report_part(row, part, &ns) : report_has(row, "hidden_ns"))
		print_seconds((part >= 0 ? ns : report_number(row, "hidden_ns")) / 1e9);
	else
		printf(" %9s\n", "-");
	describe_parts(parts, row, requests > 0 ? requests : 1);
	printf("    ");
	print_wrapped(parts, 4, 4);
	if (against)
		print_before(row, against);
}

static void print_endpoints(const json_t *report, const struct request_question *q)
{
	const json_t *rows = json_object_get(report, "endpoints"), *row;
	const char *what = q->part < 0 ? "hidden" : request_parts[q->part].name;
	double total = report_number(report, "endpoints_total");
	char head[64];
	size_t i;

	if (!json_array_size(rows))
		return;
	printf("Endpoints with most %s%s; numbers and ids in paths are *\n", what,
	       q->part < 0 ? " time" : "");
	snprintf(head, sizeof(head), "%s, s", what);
	printf("%-*s %9s %10s %10s %9s\n", (int)columns - 42, "endpoint", "requests", "mean, ms",
	       "p99, ms", head);
	puts("    per request, ms\n");
	json_array_foreach (rows, i, row)
		print_endpoint(row, q->part, json_object_get(report, "against"));
	if (total > (double)json_array_size(rows))
		printf("and %.0f endpoint%s with less: --top=N shows more\n",
		       total - (double)json_array_size(rows),
		       plural(total - (double)json_array_size(rows)));
	if (q->part < 0)
		print_wrapped(
			"Hidden: accept_queue, queue, pool_wait, runq, throttled, gil, gc_sibling, "
			"loop_busy: time outside of the handler's code.",
			0, 0);
	print_wrapped("Mean and p99 leave out the waits for the client: client_wait, client_slow.",
		      0, 0);
	putchar('\n');
}

/* ---- listeners ---- */

/* Eight columns; large numbers without a fraction, then with fewer digits. NULL: "-". */
static void print_number(const json_t *row, const char *name, bool sign)
{
	double v = report_number(row, name), size = v < 0 ? -v : v;
	int digits = size < 99999 ? 1 : 0;
	char text[64] = "-";

	if (report_has(row, name) && size < 9999999)
		snprintf(text, sizeof(text), sign ? "%+.*f" : "%.*f", digits, v);
	else if (report_has(row, name))
		snprintf(text, sizeof(text), "%.1e", v);
	printf(" %8s", text);
}

static void listener_name(const json_t *row, char *name, size_t size)
{
	bool is_unix = !strcmp(report_text(row, "kind"), "unix");

	if (is_unix)
		snprintf(name, size, "%.64s unix", report_text(row, "comm"));
	else
		snprintf(name, size, "%.64s :%.0f", report_text(row, "comm"),
			 report_number(row, "server_port"));
}

static void print_why_not(const json_t *rows)
{
	const json_t *row;
	char name[128], line[TEXT_MAX];
	size_t i;

	json_array_foreach (rows, i, row) {
		if (!*report_text(row, "why_not"))
			continue;
		listener_name(row, name, sizeof(name));
		snprintf(line, sizeof(line), "- %s: not known: %s", name,
			 report_text(row, "why_not"));
		print_wrapped(line, 0, 2);
	}
}

static void print_listeners(const json_t *report)
{
	const json_t *rows = json_object_get(report, "listeners"), *row;
	char name[128];
	size_t i;

	if (!json_array_size(rows))
		return;
	puts("Threads missing");
	printf("%-*s %17s %8s %8s %17s\n", (int)columns - 54, "", "arrivals per s", "service", "",
	       "missing");
	printf("%-*s %8s %8s %8s %8s %8s %8s\n\n", (int)columns - 54, "listener", "mean", "peak",
	       "ms", "threads", "mean", "peak");
	json_array_foreach (rows, i, row) {
		listener_name(row, name, sizeof(name));
		print_name(name, columns - 54);
		print_number(row, "per_second", false);
		print_number(row, "peak_per_second", false);
		print_number(row, "service_ms", false);
		/* without a number of threads missing theirs says nothing */
		if (report_has(row, "missing") || report_has(row, "peak_missing"))
			printf(" %8.0f", report_number(row, "threads"));
		else
			printf(" %8s", "-");
		print_number(row, "missing", true);
		print_number(row, "peak_missing", true);
		putchar('\n');
	}
	print_why_not(rows);
	print_wrapped(
		"missing = arrivals per second x service time - threads; below 0: to spare. "
		"Arrivals: requests of the rows, their weight counted, over the time measured "
		"and in the busiest second. Service: a request's mean time without its waits "
		"before the handler. Threads: those seen running requests in one minute, the "
		"busiest; idle ones are not seen.",
		0, 0);
	putchar('\n');
}

/* ---- parts not measured ---- */

static void print_not_measured(const json_t *report)
{
	const json_t *reasons = json_object_get(report, "not_measured"), *row;
	const json_t *notes = json_object_get(report, "notes");
	char line[TEXT_MAX];
	size_t i;

	json_array_foreach (reasons, i, row) {
		const char *words = report_text(row, "words");

		snprintf(line, sizeof(line), "not measured in %.0f of %.0f request%s: %.64s%s%s",
			 report_number(row, "requests"), report_number(report, "requests"),
			 plural(report_number(report, "requests")), report_text(row, "reason"),
			 *words ? ": " : "", words);
		print_wrapped(line, 0, 2);
	}
	json_array_foreach (notes, i, row)
		print_wrapped(json_string_value(row) ?: "", 0, 2);
}

/* What a window was chosen by: "service shop, pod shop-1 on web-1: ". */
static void print_chosen(const json_t *report)
{
	static const char *const by[] = { "service", "namespace", "pod", "container", "host" };
	bool any = json_array_size(json_object_get(report, "pids")) != 0;
	char whose[800], clean[800];

	for (size_t i = 0; i < ARRAY_SIZE(by); i++)
		any |= *report_text(report, by[i]) != '\0';
	if (!any || !json_object_get(report, "pod")) /* live: of the processes named */
		return;
	window_text(report, whose, sizeof(whose));
	printf("%s: ", text_printable(clean, sizeof(clean), whose));
}

/* Beside the number of requests: it is not that of the whole time. */
static void print_partly_measured(const json_t *report)
{
	const char *partly = report_text(report, "partly_measured");
	char line[TEXT_MAX];

	if (!*partly)
		return;
	snprintf(line, sizeof(line), "measured for %s: all figures are of that time", partly);
	print_wrapped(line, 0, 0);
}

void requests_print(const json_t *report, const struct request_question *q)
{
	double seconds = (report_number(report, "to_us") - report_number(report, "from_us")) / 1e6;

	find_columns();
	print_chosen(report);
	printf("%.0f request%s (%.0f row%s) ended in ", report_number(report, "requests"),
	       plural(report_number(report, "requests")), report_number(report, "rows"),
	       plural(report_number(report, "rows")));
	printf("%.*f s\n", seconds < 10, seconds);
	print_partly_measured(report);
	if (report_number(report, "rows"))
		putchar('\n');
	if (!q->endpoints)
		print_slowest(report, q);
	if (q->endpoints || q->part >= 0 || json_object_get(report, "against"))
		print_endpoints(report, q);
	print_listeners(report);
	print_not_measured(report);
}
