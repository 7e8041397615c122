// SPDX-License-Identifier: Apache-2.0
/*
 * Counters of the ENA driver: found by name in string sets of driver versions and instance types;
 * deltas of readings, with resets and missing counters.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "trackers/ena_counters.h"

enum { MAX = 64 };

struct string_set {
	char names[MAX][ETHTOOL_NAME_LEN];
	uint64_t values[MAX];
	uint32_t n;
};

/* As in ethtool -S, with fewer per-queue counters. */
static const char *const with_available[] = { "total_resets",
					      "reset_fail",
					      "tx_timeout",
					      "wd_expired",
					      "admin_q_pause",
					      "bw_in_allowance_exceeded",
					      "bw_out_allowance_exceeded",
					      "pps_allowance_exceeded",
					      "conntrack_allowance_exceeded",
					      "linklocal_allowance_exceeded",
					      "conntrack_allowance_available",
					      "queue_0_tx_cnt",
					      "queue_0_tx_bytes",
					      "queue_0_rx_cnt",
					      "ena_admin_q_aborted_cmd",
					      NULL };
static const char *const without_available[] = { "tx_timeout",
						 "suspend",
						 "resume",
						 "wd_expired",
						 "interface_up",
						 "interface_down",
						 "admin_q_pause",
						 "bw_in_allowance_exceeded",
						 "bw_out_allowance_exceeded",
						 "pps_allowance_exceeded",
						 "conntrack_allowance_exceeded",
						 "linklocal_allowance_exceeded",
						 "queue_0_tx_cnt",
						 NULL };
static const char *const old_driver[] = { "tx_timeout", "suspend", "resume", "queue_0_tx_cnt",
					  NULL };

static struct ethtool_stats_view view_of(const char *const *names, struct string_set *set)
{
	memset(set, 0, sizeof(*set));
	for (; names[set->n]; set->n++) {
		/* as in the kernel: names of 32 bytes have no NUL */
		strncpy(set->names[set->n], names[set->n], ETHTOOL_NAME_LEN);
		set->values[set->n] = 100 + set->n;
	}
	return (struct ethtool_stats_view){ (const char(*)[ETHTOOL_NAME_LEN])set->names,
					    set->values, set->n };
}

static struct ena_reading read_set(const char *const *names, uint64_t ns)
{
	struct ena_reading reading = { .ns = ns };
	struct ena_indices indices;
	struct string_set set;
	struct ethtool_stats_view view = view_of(names, &set);

	ena_counters_locate(&view, &indices);
	assert_int_equal(indices.n_stats, view.n);
	ena_counters_pick(&view, &indices, &reading);
	return reading;
}

static int choose_names(void **state)
{
	(void)state;
	return ena_counters_choose(&(struct string_list){ 0 }, NULL);
}

static void counters_are_found_by_name(void **state)
{
	struct ena_reading reading = read_set(with_available, 1);

	(void)state;
	assert_int_equal(reading.known, (1 << ENA_N_COUNTERS) - 1);
	for (int i = 0; i < ENA_N_COUNTERS; i++)
		assert_int_equal(reading.value[i], 105 + i);
	reading = read_set(without_available, 1);
	assert_int_equal(reading.known, (1 << ENA_conntrack_allowance_available) - 1);
	assert_int_equal(reading.value[ENA_bw_in_allowance_exceeded], 107);
	assert_int_equal(reading.value[ENA_linklocal_allowance_exceeded], 111);
	assert_int_equal(read_set(old_driver, 1).known, 0);
}

static void names_may_fill_their_place(void **state)
{
	static const char *const names[] = { "pps_allowance_exceeded_xxxxxxxxx_",
					     "pps_allowance_exceeded", NULL };
	struct string_set set;
	struct ethtool_stats_view view = view_of(names, &set);

	(void)state;
	assert_int_equal(ethtool_find(view.names, view.n, "pps_allowance_exceeded"), 1);
	assert_int_equal(ethtool_find(view.names, view.n, "pps"), -1);
	assert_int_equal(ethtool_find(view.names, 0, "pps"), -1);
}

static void a_first_reading_has_totals_only(void **state)
{
	const struct ena_reading never = { 0 }, now = read_set(with_available, 5000);
	struct ena_change change;

	(void)state;
	ena_counters_compare(&never, &now, &change);
	assert_int_equal(change.since_ns, 5000);
	assert_false(change.reset);
	for (int i = 0; i < ENA_N_COUNTERS; i++)
		assert_false(change.delta[i].known);
}

static void differences_are_per_counter(void **state)
{
	const struct ena_reading last = read_set(without_available, 1000);
	struct ena_reading now = read_set(with_available, 2000);
	struct ena_change change;

	(void)state;
	memcpy(now.value, last.value, sizeof(now.value));
	now.value[ENA_pps_allowance_exceeded] += 7;
	now.value[ENA_conntrack_allowance_available] = 3;
	ena_counters_compare(&last, &now, &change);
	assert_int_equal(change.since_ns, 1000);
	assert_false(change.reset);
	assert_true(change.delta[ENA_bw_in_allowance_exceeded].known);
	assert_int_equal(change.delta[ENA_bw_in_allowance_exceeded].value, 0);
	assert_int_equal(change.delta[ENA_pps_allowance_exceeded].value, 7);
	assert_false(change.delta[ENA_conntrack_allowance_available].known);
}

static void a_level_may_fall(void **state)
{
	const struct ena_reading last = read_set(with_available, 1000);
	struct ena_reading now = last;
	struct ena_change change;

	(void)state;
	now.ns = 2000;
	now.value[ENA_conntrack_allowance_available] = 0;
	ena_counters_compare(&last, &now, &change);
	assert_false(change.reset);
	assert_true(change.delta[ENA_pps_allowance_exceeded].known);
}

static void a_reset_leaves_no_delta(void **state)
{
	const struct ena_reading last = read_set(with_available, 1000);
	struct ena_reading now = last;
	struct ena_change change;

	(void)state;
	now.ns = 2000;
	now.value[ENA_bw_in_allowance_exceeded] += 5; /* an unknown number since the reset */
	now.value[ENA_pps_allowance_exceeded] = 2;
	ena_counters_compare(&last, &now, &change);
	assert_true(change.reset);
	assert_int_equal(change.since_ns, 1000);
	for (int i = 0; i < ENA_N_COUNTERS; i++)
		assert_false(change.delta[i].known);
}

static void a_late_reading_adds_nothing(void **state)
{
	const struct ena_reading last = read_set(with_available, 2000);
	struct ena_reading late = last;
	struct ena_change change;

	(void)state;
	late.ns = 1500;
	late.value[ENA_pps_allowance_exceeded]--;
	ena_counters_compare(&last, &late, &change);
	assert_false(change.reset);
	assert_int_equal(change.since_ns, 1500);
	assert_false(change.delta[ENA_pps_allowance_exceeded].known);
}

static void columns_can_have_another_source(void **state)
{
	char *right[] = { "pps_allowance_exceeded=queue_0_tx_cnt" };
	char *wrong[] = { "pps=queue_0_tx_cnt", "pps_allowance_exceeded=", "pps_allowance_exceeded",
			  "=" };
	struct why why;

	(void)state;
	assert_int_equal(ena_counters_choose(&(struct string_list){ right, 1 }, &why), 0);
	assert_int_equal(read_set(with_available, 1).value[ENA_pps_allowance_exceeded], 111);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(ena_counters_choose(&(struct string_list){ &wrong[i], 1 }, &why),
				 -EINVAL);
		assert_non_null(strstr(why.text, "ena.counters"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(counters_are_found_by_name, choose_names),
		cmocka_unit_test(names_may_fill_their_place),
		cmocka_unit_test_setup(a_first_reading_has_totals_only, choose_names),
		cmocka_unit_test_setup(differences_are_per_counter, choose_names),
		cmocka_unit_test_setup(a_level_may_fall, choose_names),
		cmocka_unit_test_setup(a_reset_leaves_no_delta, choose_names),
		cmocka_unit_test_setup(a_late_reading_adds_nothing, choose_names),
		cmocka_unit_test(columns_can_have_another_source),
	};

	return cmocka_run_group_tests_name("ena", tests, NULL, NULL);
}
