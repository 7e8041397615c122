// SPDX-License-Identifier: Apache-2.0
/* ena: from readings of an interface's counters, by events and by the agent, to rows of ebpf_ena.
 */
#include "row_test.h"

#include <string.h>

#include "trackers/ena_rows.h"

enum { IFINDEX = 100001, ALL_KNOWN = (1 << ENA_N_COUNTERS) - 1 };

static const struct ena_event ordinary = {
	.header = ROW_HEADER,
	.value = { 5000000001, 5000000002, 5000000003, 5000000004, 5000000005, 5000000006 },
	.ifindex = IFINDEX,
	.known = ALL_KNOWN,
};

static struct ena_interface *interface;

static void watch(void)
{
	interface = ena_interface_add(IFINDEX, "ena");
	assert_non_null(interface);
	strcpy(interface->name, "eth0");
}

static int end(void **state)
{
	if (interface)
		ena_interface_forget(interface);
	interface = NULL;
	return row_test_end(state);
}

/* A reading by the agent at this time. */
static void feed_reading(uint64_t ns, const __u64 value[ENA_N_COUNTERS], uint32_t known)
{
	struct tracker_output output = row_output("ena");
	struct ena_reading reading = { .ns = ns, .known = known };

	memcpy(reading.value, value, sizeof(reading.value));
	ena_add_reading(&output, interface, &reading);
}

#define HEAD "{'table':'ebpf_ena','host':'test','interface':'eth0','ifindex':100001,'driver':'ena',"
#define TOTALS_ONLY                                                                                \
	"'bw_in_allowance_exceeded':null,'bw_in_allowance_exceeded_total':5000000001,"             \
	"'bw_out_allowance_exceeded':null,'bw_out_allowance_exceeded_total':5000000002,"           \
	"'pps_allowance_exceeded':null,'pps_allowance_exceeded_total':5000000003,"                 \
	"'conntrack_allowance_exceeded':null,'conntrack_allowance_exceeded_total':5000000004,"     \
	"'linklocal_allowance_exceeded':null,'linklocal_allowance_exceeded_total':5000000005,"     \
	"'conntrack_allowance_available':5000000006,"

/* The first reading has only totals, the second also deltas. */
static void ordinary_events(void **state)
{
	struct ena_event event = ordinary;

	(void)state;
	watch();
	row_feed("ena", &event, sizeof(event));
	row_expect(HEAD "'start_time':1700005000131111,'end_time':1700005000131111," TOTALS_ONLY
			"'reset':0,'source':'fexit','asked_by':'worker'}");
	event.header.end_ns += NSEC_PER_SEC;
	for (size_t i = 0; i < ENA_N_COUNTERS; i++)
		event.value[i] += 11 + i;
	event.value[ENA_conntrack_allowance_available] = 7;
	row_feed("ena", &event, sizeof(event));
	row_expect(HEAD
		   "'start_time':1700005000131111,'end_time':1700005001131111,"
		   "'bw_in_allowance_exceeded':11,'bw_in_allowance_exceeded_total':5000000012,"
		   "'bw_out_allowance_exceeded':12,'bw_out_allowance_exceeded_total':5000000014,"
		   "'pps_allowance_exceeded':13,'pps_allowance_exceeded_total':5000000016,"
		   "'conntrack_allowance_exceeded':14,"
		   "'conntrack_allowance_exceeded_total':5000000018,"
		   "'linklocal_allowance_exceeded':15,"
		   "'linklocal_allowance_exceeded_total':5000000020,"
		   "'conntrack_allowance_available':7,"
		   "'reset':0,'source':'fexit','asked_by':'worker'}");
}

#define ALL_NULL                                                                                   \
	"'bw_in_allowance_exceeded':null,'bw_in_allowance_exceeded_total':null,"                   \
	"'bw_out_allowance_exceeded':null,'bw_out_allowance_exceeded_total':null,"                 \
	"'pps_allowance_exceeded':null,'pps_allowance_exceeded_total':null,"                       \
	"'conntrack_allowance_exceeded':null,'conntrack_allowance_exceeded_total':null,"           \
	"'linklocal_allowance_exceeded':null,'linklocal_allowance_exceeded_total':null,"           \
	"'conntrack_allowance_available':null,"

/* An unknown interface has no known counters: NULL, not 0. */
static void all_bits_set(void **state)
{
	struct ena_event event;

	(void)state;
	ROW_SET_ALL_BITS(event);
	row_feed("ena", &event, sizeof(event));
	row_expect("{'table':'ebpf_ena','host':'test','interface':'','ifindex':4294967295,"
		   "'driver':'','start_time':1700000000000000,'end_time':1699999999999999," ALL_NULL
		   "'reset':0,'source':'fexit','asked_by':'" ROW_16_REPLACED "'}");
	watch();
	event.ifindex = IFINDEX;
	event.header.end_ns = ROW_END_NS;
	row_feed("ena", &event, sizeof(event));
	row_expect(HEAD "'start_time':1700005000131111,'end_time':1700005000131111,"
			"'bw_in_allowance_exceeded':null,"
			"'bw_in_allowance_exceeded_total':18446744073709551615,"
			"'bw_out_allowance_exceeded':null,"
			"'bw_out_allowance_exceeded_total':18446744073709551615,"
			"'pps_allowance_exceeded':null,"
			"'pps_allowance_exceeded_total':18446744073709551615,"
			"'conntrack_allowance_exceeded':null,"
			"'conntrack_allowance_exceeded_total':18446744073709551615,"
			"'linklocal_allowance_exceeded':null,"
			"'linklocal_allowance_exceeded_total':18446744073709551615,"
			"'conntrack_allowance_available':18446744073709551615,"
			"'reset':0,'source':'fexit','asked_by':'" ROW_16_REPLACED "'}");
}

/* A reading by the agent, not by another process. Missing counters are NULL, not 0. */
static void missing_counters(void **state)
{
	static const __u64 first[ENA_N_COUNTERS] = { 1, 2, 3, 4, 5, 6 },
			   second[ENA_N_COUNTERS] = { 1, 3, 3, 4, 5, 6 };
	const uint32_t without_two = ALL_KNOWN & ~(1U << ENA_linklocal_allowance_exceeded) &
				     ~(1U << ENA_conntrack_allowance_available);

	(void)state;
	watch();
	feed_reading(ROW_START_NS, first, without_two & ~(1U << ENA_pps_allowance_exceeded));
	row_expect(HEAD "'start_time':1700005000123456,'end_time':1700005000123456,"
			"'bw_in_allowance_exceeded':null,'bw_in_allowance_exceeded_total':1,"
			"'bw_out_allowance_exceeded':null,'bw_out_allowance_exceeded_total':2,"
			"'pps_allowance_exceeded':null,'pps_allowance_exceeded_total':null,"
			"'conntrack_allowance_exceeded':null,"
			"'conntrack_allowance_exceeded_total':4,"
			"'linklocal_allowance_exceeded':null,"
			"'linklocal_allowance_exceeded_total':null,"
			"'conntrack_allowance_available':null,"
			"'reset':0,'source':'ioctl','asked_by':''}");
	/* a new counter has no delta */
	feed_reading(ROW_END_NS, second, without_two);
	row_expect(HEAD "'start_time':1700005000123456,'end_time':1700005000131111,"
			"'bw_in_allowance_exceeded':0,'bw_in_allowance_exceeded_total':1,"
			"'bw_out_allowance_exceeded':1,'bw_out_allowance_exceeded_total':3,"
			"'pps_allowance_exceeded':null,'pps_allowance_exceeded_total':3,"
			"'conntrack_allowance_exceeded':0,'conntrack_allowance_exceeded_total':4,"
			"'linklocal_allowance_exceeded':null,"
			"'linklocal_allowance_exceeded_total':null,"
			"'conntrack_allowance_available':null,"
			"'reset':0,'source':'ioctl','asked_by':''}");
}

/* A counter fell: the device was reset, no delta is known. */
static void a_reset_and_an_older_reading(void **state)
{
	static const __u64 before[ENA_N_COUNTERS] = { 9, 9, 9, 9, 9, 9 };
	__u64 after[ENA_N_COUNTERS];

	(void)state;
	watch();
	feed_reading(ROW_START_NS, before, 0);
	row_expect(HEAD "'start_time':1700005000123456,'end_time':1700005000123456," ALL_NULL
			"'reset':0,'source':'ioctl','asked_by':''}");
	feed_reading(ROW_START_NS + NSEC_PER_SEC, ordinary.value, ALL_KNOWN);
	row_expect(HEAD "'start_time':1700005000123456,'end_time':1700005001123456," TOTALS_ONLY
			"'reset':0,'source':'ioctl','asked_by':''}");
	memcpy(after, ordinary.value, sizeof(after));
	after[ENA_pps_allowance_exceeded] = 5000000002;
	feed_reading(ROW_START_NS + 2 * NSEC_PER_SEC, after, ALL_KNOWN);
	row_expect(HEAD "'start_time':1700005001123456,'end_time':1700005002123456,"
			"'bw_in_allowance_exceeded':null,"
			"'bw_in_allowance_exceeded_total':5000000001,"
			"'bw_out_allowance_exceeded':null,"
			"'bw_out_allowance_exceeded_total':5000000002,"
			"'pps_allowance_exceeded':null,"
			"'pps_allowance_exceeded_total':5000000002,"
			"'conntrack_allowance_exceeded':null,"
			"'conntrack_allowance_exceeded_total':5000000004,"
			"'linklocal_allowance_exceeded':null,"
			"'linklocal_allowance_exceeded_total':5000000005,"
			"'conntrack_allowance_available':5000000006,"
			"'reset':1,'source':'ioctl','asked_by':''}");
	/* a late event: its interval already has deltas */
	row_feed("ena", &ordinary, sizeof(ordinary));
	row_expect(HEAD "'start_time':1700005000131111,'end_time':1700005000131111," TOTALS_ONLY
			"'reset':0,'source':'fexit','asked_by':'worker'}");
}

#define ENA_TEST(test) cmocka_unit_test_setup_teardown(test, row_test_begin, end)
static const struct CMUnitTest tests[] = {
	ENA_TEST(ordinary_events),
	ENA_TEST(all_bits_set),
	ENA_TEST(missing_counters),
	ENA_TEST(a_reset_and_an_older_reading),
};
ROW_GROUP("ena", tests)
