/* SPDX-License-Identifier: Apache-2.0 */
/* Columns shared by all tcp_* tables, first of each table's own columns. */
#ifndef UNDERSPAN_TRACKERS_TCP_COLUMNS_H
#define UNDERSPAN_TRACKERS_TCP_COLUMNS_H

#include "events/tcp.h"
#include "rows/column.h"

extern const char *const tcp_family_names[TCP_FAMILY_MAX];
extern const char *const tcp_state_names[TCP_STATE_MAX];

/* `member`: the struct tcp_connection in `row`, "event.connection". */
#define TCP_COLUMNS(row, member)                                                                   \
	COLUMN_NAMED(row, member.family, "family", tcp_family_names),                              \
		COLUMN(COLUMN_IP, row, member.local_ip, "local_ip", "IPv6"),                       \
		COLUMN(COLUMN_U16, row, member.local_port, "local_port", "UInt16"),                \
		COLUMN(COLUMN_IP, row, member.remote_ip, "remote_ip", "IPv6"),                     \
		COLUMN(COLUMN_U16, row, member.remote_port, "remote_port", "UInt16"),              \
		COLUMN(COLUMN_U32, row, member.netns, "netns", "UInt32"),                          \
		COLUMN(COLUMN_U32, row, member.srtt_us, "srtt_us", "UInt32"),                      \
		COLUMN(COLUMN_U32, row, member.snd_cwnd, "snd_cwnd", "UInt32"),                    \
		COLUMN(COLUMN_U32, row, member.total_retrans, "total_retrans", "UInt32"),          \
		COLUMN_NAMED(row, member.state, "tcp_state", tcp_state_names)

#endif
