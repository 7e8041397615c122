/* SPDX-License-Identifier: Apache-2.0 */
/* A connection in events of tcp_* trackers, and its columns. */
#ifndef UNDERSPAN_TCP_ROWS_H
#define UNDERSPAN_TCP_ROWS_H

#include "events/tcp.h"

#define TCP_CONNECTION                                                                             \
	{                                                                                          \
		.local_ip = { [10] = 0xff, 0xff, 192, 0, 2, 1 },                                   \
		.remote_ip = { [10] = 0xff, 0xff, 198, 51, 100, 200 },                             \
		.netns = 4026500001,                                                               \
		.srtt_us = 100101,                                                                 \
		.snd_cwnd = 100102,                                                                \
		.total_retrans = 100103,                                                           \
		.local_port = 40000,                                                               \
		.remote_port = 5432,                                                               \
		.family = TCP_FAMILY_IPV4,                                                         \
		.state = TCP_STATE_ESTABLISHED,                                                    \
	}
#define TCP_IPV4                                                                                   \
	"'family':'ipv4','local_ip':'::ffff:192.0.2.1','local_port':40000,"                        \
	"'remote_ip':'::ffff:198.51.100.200','remote_port':5432,"
#define TCP_NUMBERS	  "'netns':4026500001,'srtt_us':100101,'snd_cwnd':100102,'total_retrans':100103,"
#define TCP_COLUMNS_OF_IT TCP_IPV4 TCP_NUMBERS "'tcp_state':'ESTABLISHED'"

#define TCP_MAX_IP "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
#define TCP_MAX                                                                                    \
	"'family':'','local_ip':'" TCP_MAX_IP "','local_port':65535,'remote_ip':'" TCP_MAX_IP      \
	"','remote_port':65535,'netns':4294967295,'srtt_us':4294967295,"                           \
	"'snd_cwnd':4294967295,'total_retrans':4294967295,'tcp_state':''"

#endif
