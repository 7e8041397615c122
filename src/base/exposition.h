/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writer of metrics for Prometheus: its text format 0.0.4, or OpenMetrics 1.0.0, which also has
 * units and exemplars. All samples of a family follow its head.
 */
#ifndef UNDERSPAN_BASE_EXPOSITION_H
#define UNDERSPAN_BASE_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/util.h"

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_HISTOGRAM };

struct metric_family {
	const char *name; /* without "underspan_", and without "_total" of counters */
	enum metric_type type;
	const char *unit; /* "seconds", "bytes", the end of the name; NULL: a number of something */
	const char *help;
};

/* A sample's value; times are written to the nanosecond. */
struct metric_value {
	uint64_t n;
	bool is_ns;
};
#define METRIC_NUMBER(n_) ((struct metric_value){ .n = (n_) })
#define METRIC_TIME(ns_)  ((struct metric_value){ .n = (ns_), .is_ns = true })

/* A request as an example of its bucket. */
struct metric_exemplar {
	const char
		*labels; /* as by exposition_label(), at most 128 characters of names and values */
	uint64_t value_ns;
	uint64_t real_ns; /* CLOCK_REALTIME */
};

/* Whether there is a page: set at the start. Without a page, nothing needs to be kept. */
extern bool exposition_served;

struct exposition {
	struct buffer to;
	bool open_metrics;
	const struct metric_family *family; /* the last head's */
};

void exposition_head(struct exposition *e, const struct metric_family *family);

/* `labels`: as by exposition_label(), may be empty. */
void exposition_sample(struct exposition *e, const char *labels, struct metric_value value);

/* Samples of a histogram: buckets in ascending order (`le_ns` UINT64_MAX: the last), then the sum.
 */
void exposition_bucket(struct exposition *e, const char *labels, uint64_t le_ns, uint64_t count,
		       const struct metric_exemplar *exemplar);
void exposition_sum(struct exposition *e, const char *labels, uint64_t sum_ns, uint64_t count);

/* The end of the page. */
void exposition_end(struct exposition *e);

/*
 * Appends name="value" to a list of labels. Bytes of the value that are no printable UTF-8 become
 * '?'. A value too long for `size` is cut between characters.
 */
void exposition_label(char *labels, size_t size, const char *name, const char *value);

#endif
