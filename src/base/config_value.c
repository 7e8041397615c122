// SPDX-License-Identifier: Apache-2.0
/* Option values. See config_value.h. */
#include "base/config_value.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"

/* ---- units ---- */

struct unit {
	const char *name;
	uint64_t size; /* in ns, or bytes */
};

/* A value is shown in the first unit that divides it. */
static const struct unit durations[] = {
	{ "d", 86400 * NSEC_PER_SEC },
	{ "h", 3600 * NSEC_PER_SEC },
	{ "m", 60 * NSEC_PER_SEC },
	{ "s", NSEC_PER_SEC },
	{ "ms", NSEC_PER_MSEC },
	{ "us", NSEC_PER_USEC },
	{ "ns", 1 },
	{ "min", 60 * NSEC_PER_SEC },
	{ "w", 604800 * NSEC_PER_SEC },
	{ NULL, 0 },
};
static const struct unit sizes[] = {
	{ "TiB", 1ULL << 40 },	 { "GiB", 1 << 30 },   { "MiB", 1 << 20 },
	{ "KiB", 1 << 10 },	 { "B", 1 },	       { "t", 1ULL << 40 },
	{ "g", 1 << 30 },	 { "m", 1 << 20 },     { "k", 1 << 10 },
	{ "tb", 1000000000000 }, { "gb", 1000000000 }, { "mb", 1000000 },
	{ "kb", 1000 },		 { NULL, 0 },
};

/* Unit of a plain number, and the accepted suffixes. */
struct scale {
	const struct unit *units; /* NULL: no suffix */
	uint64_t base;
	const char *plain;
};

static struct scale scale_of(const struct option *o)
{
	static const struct scale of_unit[] = {
		[UNIT_NONE] = { NULL, 1, "" },
		[UNIT_US] = { durations, NSEC_PER_USEC, "microseconds" },
		[UNIT_MS] = { durations, NSEC_PER_MSEC, "milliseconds" },
		[UNIT_BYTES] = { sizes, 1, "bytes" },
		[UNIT_KIB] = { sizes, 1 << 10, "KiB" },
		[UNIT_MIB] = { sizes, 1 << 20, "MiB" },
	};

	if (o->type == OPTION_SECONDS)
		return (struct scale){ durations, NSEC_PER_SEC, "seconds" };
	return of_unit[o->unit];
}

static const struct unit *unit_named(const struct unit *units, const char *name)
{
	while (units->name && strcasecmp(units->name, name) != 0)
		units++;
	return units->name ? units : NULL;
}

/* "250ms" with base seconds gives 0.25. False: not a number, or an unknown unit. */
static bool parse_scaled(const struct scale *scale, const char *s, double *ret)
{
	const struct unit *unit;
	char *end;

	if ((s[0] < '0' || s[0] > '9') && s[0] != '.')
		return false;
	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		return false;
	*ret = strtod(s, &end);
	if (end == s || !isfinite(*ret))
		return false;
	while (end > s && *end == ' ')
		end++;
	if (!*end)
		return true;
	unit = unit_named(scale->units, end);
	if (unit)
		*ret *= (double)unit->size / (double)scale->base;
	return unit != NULL;
}

/* 90000000000 ns as "90s". */
static char *show_scaled(const struct unit *units, uint64_t value, char *buf, size_t size)
{
	while (units->size > 1 && (value % units->size || !value))
		units++;
	snprintf(buf, size, "%" PRIu64 "%s", value / units->size, value ? units->name : "");
	return buf;
}

static int refuse_scaled(const struct option *o, const struct scale *scale, const char *s,
			 struct why *why)
{
	bool time = scale->units == durations;

	return why_fail(
		why, EINVAL,
		"%s: '%.64s' is not a %s: use a number of %s, or a number with a unit, as in %s%s",
		o->key, s, time ? "duration" : "size", scale->plain,
		time ? "250ms, 10s, 2m, 1h, 7d" : "64KiB, 8MiB, 2GiB",
		o->arg && !strcmp(o->arg, "AGO") ? " ago, not a date or time" : "");
}

/* In whole largest units, if there is one. */
static uint64_t largest_round(const struct scale *scale, uint64_t max)
{
	uint64_t value = max * scale->base, unit = scale->units->size;

	return value < unit ? value : value / unit * unit;
}

/* A number without a unit may have been meant in another. */
static const char *plain_number_hint(const struct option *o, const char *s, char *buf, size_t size)
{
	if (o->type != OPTION_SECONDS || s[strspn(s, "0123456789")] || strtoull(s, NULL, 10) == 0)
		return "";
	snprintf(buf, size, "; without a unit it is seconds, %.20sd is days", s);
	return buf;
}

/* Reports the limits in the user's unit. */
static int refuse_range(const struct option *o, const char *s, uint64_t max, struct why *why)
{
	const struct scale scale = scale_of(o);
	char low[32], high[32], hint[96];
	double value;

	if (!scale.units)
		return why_fail(why, EINVAL, "%s: %.64s is out of range, use %llu to %llu", o->key,
				s, (unsigned long long)o->min, (unsigned long long)max);
	show_scaled(scale.units, o->min * scale.base, low, sizeof(low));
	if (max < UINT64_MAX / scale.base)
		return why_fail(why, EINVAL, "%s: %.64s is out of range, use %s to %s%s", o->key, s,
				low, show_scaled(scale.units, max * scale.base, high, sizeof(high)),
				plain_number_hint(o, s, hint, sizeof(hint)));
	max = UINT64_MAX / scale.base;
	if (parse_scaled(&scale, s, &value) && value > (double)o->min)
		return why_fail(
			why, EINVAL, "%s: %.64s is too large, use %s or less", o->key, s,
			show_scaled(scale.units, largest_round(&scale, max), high, sizeof(high)));
	return why_fail(why, EINVAL, "%s: %.64s is out of range, use %s or more", o->key, s, low);
}

/* ---- from text ---- */

static int parse_uint(const struct option *o, const char *s, struct why *why)
{
	uint64_t max = o->max ? o->max : UINT64_MAX;
	const struct scale scale = scale_of(o);
	unsigned long long v;
	double scaled;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (end == s || s[0] < '0' || s[0] > '9' || *end) {
		if (!scale.units)
			return why_fail(why, EINVAL,
					"%s: '%.64s' is not a whole number, as in 1000", o->key, s);
		if (!parse_scaled(&scale, s, &scaled))
			return refuse_scaled(o, &scale, s, why);
		if (scaled >= 0x1p63)
			return refuse_range(o, s, max, why);
		v = (unsigned long long)scaled;
		if ((double)v != scaled)
			return why_fail(
				why, EINVAL, "%s: '%.64s' is not a whole number of %s%s", o->key, s,
				scale.plain,
				scale.units == sizes
					? ": MiB and GiB are powers of 1024, MB and GB of 1000"
					: "");
	}
	if (errno || v < o->min || v > max)
		return refuse_range(o, s, max, why);
	*(uint64_t *)o->target = v;
	return 0;
}

static int parse_number(const struct option *o, const char *s, struct why *why)
{
	double v;
	char *end;

	v = strtod(s, &end);
	if (end == s || *end || !isfinite(v))
		return why_fail(why, EINVAL, "%s: '%.64s' is not a number, as in 1 or 0.5", o->key,
				s);
	if (v < (double)o->min || (o->max && v > (double)o->max))
		return refuse_range(o, s, o->max ? o->max : UINT64_MAX, why);
	*(double *)o->target = v;
	return 0;
}

static int parse_seconds(const struct option *o, const char *s, struct why *why)
{
	uint64_t max = o->max ? o->max : 1000000000;
	const struct scale scale = scale_of(o);
	double v;

	if (!parse_scaled(&scale, s, &v))
		return refuse_scaled(o, &scale, s, why);
	if (v < (double)o->min || v > (double)max)
		return refuse_range(o, s, max, why);
	*(uint64_t *)o->target = (uint64_t)llround(v * (double)NSEC_PER_SEC);
	return 0;
}

static int parse_bool(const struct option *o, const char *s, struct why *why)
{
	if (!s || !strcmp(s, "true") || !strcmp(s, "1") || !strcmp(s, "yes"))
		*(bool *)o->target = true;
	else if (!strcmp(s, "false") || !strcmp(s, "0") || !strcmp(s, "no"))
		*(bool *)o->target = false;
	else
		return why_fail(why, EINVAL, "%s: '%.64s' is neither true nor false%s%s%s", o->key,
				s, strpbrk(s, "/.") ? "; for a file: --" : "",
				strpbrk(s, "/.") ? o->key : "", strpbrk(s, "/.") ? " > FILE" : "");
	return 0;
}

static int parse_choice(const struct option *o, const char *s, struct why *why)
{
	struct nearest nearest;
	char all[200] = "", hint[64];

	nearest_begin(&nearest, s, strlen(s));
	for (int i = 0; o->choices[i]; i++) {
		if (!strcmp(o->choices[i], s)) {
			*(int *)o->target = i;
			return 0;
		}
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
			 o->choices[i]);
		nearest_try(&nearest, o->choices[i]);
	}
	return why_fail(why, EINVAL, "%s: '%.64s' is not among %s%s", o->key, s, all,
			nearest_hint(&nearest, "", "", hint, sizeof(hint)));
}

static int set_string(const struct option *o, const char *s, struct why *why)
{
	char *copy = strdup(s);

	if (!copy)
		return why_fail(why, ENOMEM, "out of memory");
	free(*(char **)o->target);
	*(char **)o->target = copy;
	return 0;
}

static int add_pid(const struct option *o, const char *item, struct why *why)
{
	struct pid_list *list = o->target;
	uint32_t *grown;
	unsigned long v;
	char *end;

	errno = 0;
	v = strtoul(item, &end, 10);
	if (errno || end == item || *end || item[0] == '-' || v == 0 || v > INT_MAX)
		return why_fail(why, EINVAL,
				"%s: '%.64s' is not a process id, as `pgrep` prints them", o->key,
				item);
	for (size_t i = 0; i < list->n; i++) {
		if (list->items[i] == v) /* given twice */
			return 0;
	}
	grown = realloc(list->items, (list->n + 1) * sizeof(*grown));
	if (!grown)
		return why_fail(why, ENOMEM, "out of memory");
	list->items = grown;
	list->items[list->n++] = (uint32_t)v;
	return 0;
}

int config_add_item(const struct option *o, const char *s, size_t len, struct why *why)
{
	struct string_list *list = o->target;
	char *item = strndup(s, len), **grown;
	int err;

	if (!item)
		return why_fail(why, ENOMEM, "out of memory");
	if (o->type == OPTION_PIDS) {
		err = add_pid(o, item, why);
		free(item);
		return err;
	}
	grown = realloc(list->items, (list->n + 1) * sizeof(*grown));
	if (!grown) {
		free(item);
		return why_fail(why, ENOMEM, "out of memory");
	}
	list->items = grown;
	list->items[list->n++] = item;
	return 0;
}

void config_clear(const struct option *o)
{
	if (o->type == OPTION_LIST) {
		struct string_list *list = o->target;

		for (size_t i = 0; i < list->n; i++)
			free(list->items[i]);
		free(list->items);
		*list = (struct string_list){ 0 };
	} else if (o->type == OPTION_PIDS) {
		struct pid_list *list = o->target;

		free(list->items);
		*list = (struct pid_list){ 0 };
	} else if (o->type == OPTION_STRING) {
		free(*(char **)o->target);
		*(char **)o->target = NULL;
	} else if (o->type == OPTION_BOOL) {
		*(bool *)o->target = false;
	}
}

static int add_items(const struct option *o, const char *s, struct why *why)
{
	while (true) {
		const char *comma = strchr(s, ',');
		size_t len = comma ? (size_t)(comma - s) : strlen(s);
		int err;

		if (len == 0)
			return why_fail(why, EINVAL,
					"%s: empty entry in the list: --%s=A,B, one comma between "
					"two",
					o->key, o->key);
		err = config_add_item(o, s, len, why);
		if (err || !comma)
			return err;
		s = comma + 1;
	}
}

int config_set(const struct option *o, const char *s, struct why *why)
{
	if (o->type == OPTION_BOOL)
		return parse_bool(o, s, why);
	if (!s || !*s)
		return why_fail(why, EINVAL, "%s: needs a value: --%s=%s", o->key, o->key,
				o->arg ? o->arg : "VALUE");
	if (o->bare && !strcmp(s, "true")) /* {"otlp": true} */
		s = o->bare;
	switch (o->type) {
	case OPTION_UINT:
		return parse_uint(o, s, why);
	case OPTION_NUMBER:
		return parse_number(o, s, why);
	case OPTION_SECONDS:
		return parse_seconds(o, s, why);
	case OPTION_STRING:
		return set_string(o, s, why);
	case OPTION_CHOICE:
		return parse_choice(o, s, why);
	case OPTION_LIST:
		config_clear(o); /* the last --trackers replaces earlier ones and the file's */
		return add_items(o, s, why);
	case OPTION_PIDS:
		return add_items(o, s, why);
	case OPTION_BOOL:
		break;
	}
	return 0;
}

/* ---- to text ---- */

static char *show_uint(const struct option *o, char *buf, size_t size)
{
	const struct scale scale = scale_of(o);
	uint64_t value = *(uint64_t *)o->target;

	if (o->type == OPTION_SECONDS && value == UINT64_MAX) /* no limit given */
		return buf;
	if (o->type == OPTION_SECONDS)
		return show_scaled(durations, value, buf, size);
	if (scale.units && value <= UINT64_MAX / scale.base)
		return show_scaled(scale.units, value * scale.base, buf, size);
	snprintf(buf, size, "%" PRIu64, value);
	return buf;
}

char *config_show(const struct option *o, char *buf, size_t size)
{
	const struct string_list *list = o->target;
	const struct pid_list *pids = o->target;
	const char *string;

	buf[0] = 0;
	switch (o->type) {
	case OPTION_UINT:
	case OPTION_SECONDS:
		return show_uint(o, buf, size);
	case OPTION_NUMBER:
		snprintf(buf, size, "%g", *(double *)o->target);
		break;
	case OPTION_CHOICE:
		snprintf(buf, size, "%s", o->choices[*(int *)o->target]);
		break;
	case OPTION_STRING:
		string = *(char **)o->target;
		snprintf(buf, size, "%s", string ? string : "");
		break;
	case OPTION_BOOL:
		snprintf(buf, size, "%s", *(bool *)o->target ? "true" : "");
		break;
	case OPTION_LIST:
		for (size_t i = 0, at = 0; i < list->n && at < size; i++)
			at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? "," : "",
					       list->items[i]);
		break;
	case OPTION_PIDS:
		for (size_t i = 0, at = 0; i < pids->n && at < size; i++)
			at += (size_t)snprintf(buf + at, size - at, "%s%" PRIu32, i ? "," : "",
					       pids->items[i]);
		break;
	}
	return buf;
}
