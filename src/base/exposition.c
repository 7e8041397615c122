// SPDX-License-Identifier: Apache-2.0
/* Metrics in Prometheus' formats. See exposition.h. */
#include "base/exposition.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

bool exposition_served;

static const char *const type_names[] = { "gauge", "counter", "histogram" };

/* In OpenMetrics a counter's family is without "_total". */
void exposition_head(struct exposition *e, const struct metric_family *family)
{
	bool total = family->type == METRIC_COUNTER && !e->open_metrics;
	const char *end = total ? "_total" : "";

	e->family = family;
	text_append(&e->to, "# HELP underspan_%s%s %s\n", family->name, end, family->help);
	text_append(&e->to, "# TYPE underspan_%s%s %s\n", family->name, end,
		    type_names[family->type]);
	if (e->open_metrics && family->unit)
		text_append(&e->to, "# UNIT underspan_%s %s\n", family->name, family->unit);
}

static void format_time(char *to, size_t size, uint64_t ns)
{
	size_t n = (size_t)snprintf(to, size, "%llu.%09llu", ns / NSEC_PER_SEC, ns % NSEC_PER_SEC);

	while (to[n - 1] == '0' && to[n - 2] != '.')
		to[--n] = '\0';
}

static void add_line(struct exposition *e, const char *end, const char *labels,
		     struct metric_value value)
{
	char text[40];

	if (value.is_ns)
		format_time(text, sizeof(text), value.n);
	else
		snprintf(text, sizeof(text), "%" PRIu64, value.n);
	text_append(&e->to, "underspan_%s%s%s%s%s %s", e->family->name, end, *labels ? "{" : "",
		    labels, *labels ? "}" : "", text);
}

void exposition_sample(struct exposition *e, const char *labels, struct metric_value value)
{
	add_line(e, e->family->type == METRIC_COUNTER ? "_total" : "", labels, value);
	text_append(&e->to, "\n");
}

void exposition_bucket(struct exposition *e, const char *labels, uint64_t le_ns, uint64_t count,
		       const struct metric_exemplar *exemplar)
{
	char with_bound[1024], bound[40] = "+Inf", value[40], at[40];

	if (le_ns != UINT64_MAX)
		format_time(bound, sizeof(bound), le_ns);
	snprintf(with_bound, sizeof(with_bound), "%s%sle=\"%s\"", labels, *labels ? "," : "",
		 bound);
	add_line(e, "_bucket", with_bound, METRIC_NUMBER(count));
	if (exemplar && e->open_metrics) {
		format_time(value, sizeof(value), exemplar->value_ns);
		format_time(at, sizeof(at), exemplar->real_ns);
		text_append(&e->to, " # {%s} %s %s", exemplar->labels, value, at);
	}
	text_append(&e->to, "\n");
}

void exposition_sum(struct exposition *e, const char *labels, uint64_t sum_ns, uint64_t count)
{
	add_line(e, "_sum", labels, METRIC_TIME(sum_ns));
	text_append(&e->to, "\n");
	add_line(e, "_count", labels, METRIC_NUMBER(count));
	text_append(&e->to, "\n");
}

void exposition_end(struct exposition *e)
{
	if (e->open_metrics)
		text_append(&e->to, "# EOF\n");
}

void exposition_label(char *labels, size_t size, const char *name, const char *value)
{
	size_t len = strlen(labels);
	char clean[256];
	int n = snprintf(labels + len, size - len, "%s%s=\"", len ? "," : "", name);

	/* room for an escaped character, the quote and NUL */
	if (n < 0 || (size_t)n + 4 > size - len) {
		labels[len] = '\0';
		return;
	}
	len += (size_t)n;
	text_printable(clean, sizeof(clean), value);
	for (const char *c = clean; *c;) {
		size_t bytes = utf8_sequence((const unsigned char *)c, strlen(c));

		if (len + bytes + 3 > size)
			break;
		if (*c == '"' || *c == '\\')
			labels[len++] = '\\';
		memcpy(labels + len, c, bytes);
		len += bytes;
		c += bytes;
	}
	labels[len++] = '"';
	labels[len] = '\0';
}
