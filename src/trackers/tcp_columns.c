// SPDX-License-Identifier: Apache-2.0
/* Value names of the shared columns of the tcp_* tables. See tcp_columns.h. */
#include "trackers/tcp_columns.h"

const char *const tcp_family_names[TCP_FAMILY_MAX] = { "", "ipv4", "ipv6" };

const char *const tcp_state_names[TCP_STATE_MAX] = { "",
#define X(name) #name,
						     TCP_STATES(X)
#undef X
};
