// SPDX-License-Identifier: Apache-2.0
/* tcp_connect: duration and failures of outbound handshakes, lifetime of connections. */
#include "events/tcp_connect.h"

#include <string.h>

#include "host/kernel.h"
#include "tcp_connect.skel.h"
#include "trackers/tcp_columns.h"
#include "trackers/take_out.h"

struct tcp_connect_row {
	struct row_common common;
	struct tcp_connect_event event;
};

static const char *const outcome_names[TCP_CONNECT_OUTCOME_MAX] = {
#define X(name) #name,
	TCP_CONNECT_OUTCOMES(X)
#undef X
};
static const char *const closed_by_names[TCP_CLOSED_BY_MAX] = { "", "local", "remote", "reset",
								"timeout" };

#define EVENT(kind, member, name, type)                                                            \
	COLUMN(kind, struct tcp_connect_row, event.member, name, type)

static const struct column columns[] = {
	TCP_COLUMNS(struct tcp_connect_row, event.connection),
	COLUMN_NAMED(struct tcp_connect_row, event.outcome, "outcome", outcome_names),
	EVENT(COLUMN_U16, error, "errno", "UInt16"),
};

static const struct column closed_columns[] = {
	TCP_COLUMNS(struct tcp_connect_row, event.connection),
	COLUMN_NAMED(struct tcp_connect_row, event.closed_by, "closed_by", closed_by_names),
	EVENT(COLUMN_U64, bytes_sent, "bytes_sent", "UInt64"),
	EVENT(COLUMN_U64, bytes_received, "bytes_received", "UInt64"),
};

static const struct table closed_table = TABLE_WITH_COMMON_COLUMNS("ebpf_tcp_connect_closed",
								   closed_columns);

static struct tcp_connect_bpf *skeleton;
static uint64_t min_duration_us, max_connections = 262144;
static bool report_closed = true;

static const struct option options[] = {
	{ .key = "tcp_connect.min_duration_us",
	  .type = OPTION_UINT,
	  .target = &min_duration_us,
	  .arg = "US",
	  .unit = UNIT_US,
	  .help = "leave out shorter successful handshakes; 0: a row for every handshake; "
		  "failures have a row, however short, unless the governor samples",
	  .reloadable = true },
	{ .key = "tcp_connect.max_connections",
	  .type = OPTION_UINT,
	  .target = &max_connections,
	  .arg = "N",
	  .help = "outbound connections known at once (about 250 bytes each); connections "
		  "without room are counted as lost",
	  .min = 1,
	  .max = 1 << 24 },
	{ .key = "tcp_connect.closed",
	  .type = OPTION_BOOL,
	  .target = &report_closed,
	  .help = "a row in ebpf_tcp_connect_closed when a connection ends" },
};

static void tcp_connect_options_changed(void)
{
	skeleton->bss->min_duration_ns = min_duration_us * NSEC_PER_USEC;
}

static int tcp_connect_open(bool only_chosen, struct bpf_object_skeleton **ret_skeleton,
			    struct why *why)
{
	bool cheap = kernel_has("sys_exit_connect") && kernel_has("sys_exit_getsockopt");

	skeleton = tcp_connect_bpf__open();
	if (!skeleton)
		return why_fail(why, errno, "cannot open: %s", strerror(errno));
	tcp_connect_options_changed();
	skeleton->rodata->only_chosen = only_chosen;
	skeleton->rodata->report_closed = report_closed;
	bpf_map__set_max_entries(skeleton->maps.connect_attempts, (uint32_t)max_connections);
	bpf_program__set_autoload(skeleton->progs.tcp_connect_exit_connect, cheap);
	bpf_program__set_autoload(skeleton->progs.tcp_connect_exit_getsockopt, cheap);
	bpf_program__set_autoload(skeleton->progs.tcp_connect_exit, !cheap);
	*ret_skeleton = skeleton->skeleton;
	return 0;
}

static void tcp_connect_close(void)
{
	tcp_connect_bpf__destroy(skeleton);
	skeleton = NULL;
}

static void tcp_connect_take_out(void)
{
}

static uint64_t tcp_connect_put_back(void)
{
	map_forget(skeleton->maps.connect_lost, NULL);
	return map_forget(skeleton->maps.connect_attempts, NULL);
}

static uint8_t outcome_of(uint16_t error)
{
	switch (error) {
	case ECONNREFUSED:
		return TCP_CONNECT_refused;
	case ETIMEDOUT:
		return TCP_CONNECT_timeout;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case ENETDOWN:
	case EHOSTDOWN:
		return TCP_CONNECT_unreachable;
	case ECONNRESET:
		return TCP_CONNECT_reset;
	case EACCES:
	case EPERM:
		return TCP_CONNECT_denied;
	case EADDRNOTAVAIL:
	case EADDRINUSE:
		return TCP_CONNECT_no_port;
	default:
		return TCP_CONNECT_failed;
	}
}

static void tcp_connect_complete(void *row, struct row_context *context)
{
	struct tcp_connect_event *event = &((struct tcp_connect_row *)row)->event;

	(void)context;
	if (event->outcome == TCP_CONNECT_failed)
		event->outcome = outcome_of(event->error);
}

static size_t tcp_connect_table_of(const void *row)
{
	const struct tcp_connect_row *r = row;

	return r->event.kind == TCP_CONNECT_CLOSED;
}

const struct tracker tcp_connect_tracker = {
	.name = "tcp_connect",
	.table = TABLE_WITH_COMMON_COLUMNS("ebpf_tcp_connect", columns),
	.second_table = &closed_table,
	TRACKER_ROW(struct tcp_connect_row),
	.ring_bytes = 256 << 10,
	.options = options,
	.n_options = ARRAY_SIZE(options),
	.open = tcp_connect_open,
	.options_changed = tcp_connect_options_changed,
	.close = tcp_connect_close,
	.complete = tcp_connect_complete,
	.table_of = tcp_connect_table_of,
	.take_out = tcp_connect_take_out,
	.put_back = tcp_connect_put_back,
};
