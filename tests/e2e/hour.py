# SPDX-License-Identifier: Apache-2.0
"""Requests at a steady rate with all rows of an agent, made inside the engine: 4 processes of 8 threads on two hosts, each request
with the caller's span, a hand-off and two waits for the GIL, 5 % with a wait for accept(), a collection in each process every 50
ms, 20 intervals off the CPU per request and a given number from unrelated processes."""

START = 1_795_395_600  # a full hour, in Unix seconds
PROCESSES, THREADS = 4, 8
TRACKERS = "['handoff', 'tcp_accept', 'gc_pause', 'gil_wait', 'off_cpu', 'cpu_throttle']"
CHUNK = 250_000  # requests an insert

OF_ROW = "host, pid, tid, host_pid, host_tid, comm, start_time, end_time, duration_ns"


def moment(us):
    return f"fromUnixTimestamp64Micro(toInt64({us}), 'UTC')"


def of_row(begin, length):
    return (f"host, pid, tid, pid + 1000, tid + 1000, 'python3', {moment(begin)} AS start_time, "
            f"start_time + toIntervalMicrosecond({length}), 1000 * ({length})")


def requests(first, n, gap_us):
    return f"""(SELECT number AS i, i % {PROCESSES} AS p, 100 + p AS pid, pid + 1 + intDiv(i % {PROCESSES * THREADS}, {PROCESSES}) AS tid,
        concat('host-', toString(p % 2)) AS host, {START * 1_000_000} + i * {gap_us} AS begun, toInt64(1000 + cityHash64(i, 'wait') % 9000) AS waited,
        begun + 500 + waited AS started, toInt64(20000 + cityHash64(i, 'took') % 25000) AS took, toUInt16(10000 + i % 40000) AS port,
        lower(hex(sipHash128(i))) AS trace, lower(hex(sipHash64(i, 's'))) AS server, lower(hex(sipHash64(i, 'c'))) AS client
        FROM numbers({first}, {n}))"""


def make_requests(ask, first, n, gap_us):
    of = "FROM " + requests(first, n, gap_us)
    spans = "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ResourceAttributes, SpanAttributes, Duration)"
    ask(f"""{spans} SELECT fromUnixTimestamp64Nano(toInt64(started * 1000)), trace, server, client, concat('GET /', toString(i % 7)), 'Server', 'shop',
        map('host.name', host, 'service.name', 'shop', 'telemetry.sdk.language', 'python'), map('process.pid', toString(pid), 'thread.id', toString(tid),
        'http.method', 'GET', 'http.target', concat('/', toString(i % 7)), 'net.peer.port', toString(port), 'http.status_code', '200'), took * 1000 {of}""")
    ask(f"""{spans} SELECT fromUnixTimestamp64Nano(toInt64(begun * 1000)), trace, client, '', 'GET', 'Client', 'web', map('host.name', 'edge', 'service.name', 'web'),
        map('http.method', 'GET'), (500 + waited + took + 700) * 1000 {of}""")
    ask(f"INSERT INTO ebpf_handoff ({OF_ROW}, queue, handoff_ns, peer_port) SELECT {of_row('begun + 300', 'waited')}, 'accept', waited * 1000, port {of}")
    ask(f"INSERT INTO ebpf_gil_wait ({OF_ROW}) SELECT {of_row('started + 2000 * j', '1500')} {of} ARRAY JOIN [1, 3] AS j")
    ask(f"""INSERT INTO ebpf_tcp_accept ({OF_ROW}, kind, remote_port) SELECT {of_row('begun - 2000', '2300')}, 'accepted', port {of} WHERE i % 20 = 0""")
    for part in range(first, first + n, CHUNK // 2):
        few = "FROM " + requests(part, min(CHUNK // 2, first + n - part), gap_us)
        length = "if(j = 0, 14000, 700)"
        ask(f"""INSERT INTO ebpf_off_cpu ({OF_ROW}, runq_ns, cause, idle, syscall, py_stack) SELECT {of_row('if(j = 0, started - 16000, started + j * 1000)', length)},
            1000 * (cityHash64(i, j) % 300), if(j = 0, 'lock', ['net', 'lock', 'disk', 'sleep', 'gil'][1 + (i + j) % 5]), j = 0, 'futex',
            ['f (a.py:1)', 'g (a.py:2)'] {few} ARRAY JOIN range(20) AS j""")


def make(ask, seconds, rate=500, off_cpu_rows=0):
    """`ask` runs SQL in a database with the schema."""
    n = seconds * rate
    for first in range(0, n, CHUNK):
        make_requests(ask, first, min(CHUNK, n - first), 1_000_000 // rate)
    collections = f"(SELECT 100 + p AS pid, pid + 1 + number % {THREADS} AS tid, concat('host-', toString(p % 2)) AS host, number, p FROM numbers({20 * seconds}) ARRAY JOIN range({PROCESSES}) AS p)"
    ask(f"""INSERT INTO ebpf_gc_pause ({OF_ROW}) SELECT {of_row(f'{START * 1_000_000} + number * 50000 + p * 1000', '800 + cityHash64(number, p) % 3000')}
        FROM {collections}""")
    ask(f"""INSERT INTO ebpf_agent (host, tracker, start_time, end_time) SELECT concat('host-', toString(h)), t,
        {moment(f'{(START - 600) * 1_000_000} + number * 10000000')} AS start_time, start_time + INTERVAL 10 SECOND
        FROM numbers({(seconds + 1200) // 10}) ARRAY JOIN [0, 1] AS h ARRAY JOIN {TRACKERS} AS t""")
    ask(f"""INSERT INTO ebpf_probe_health (host, host_pid, time, tracker, live) SELECT concat('host-', toString(p % 2)), 1100 + p,
        {moment((START - 600) * 1_000_000)}, t, 1 FROM (SELECT arrayJoin(range({PROCESSES})) AS p) ARRAY JOIN {TRACKERS} AS t""")
    others = max(0, off_cpu_rows - 20 * n)
    for first in range(0, others, 4_000_000):
        at = f"{START * 1_000_000} + number / {others} * {seconds * 1_000_000}"
        ask(f"""INSERT INTO ebpf_off_cpu ({OF_ROW}, runq_ns, cause, idle, syscall, py_stack) SELECT {of_row(at, '1000')}, 1000 * (cityHash64(number) % 300),
            ['net', 'lock', 'disk', 'sleep', 'gil'][1 + number % 5], number % 5 = 3, 'futex', ['f (a.py:1)', 'g (a.py:2)']
            FROM (SELECT number, 1000 + number % 200 AS pid, pid + intDiv(number, 200) % 10 AS tid, concat('host-', toString(number % 10)) AS host
            FROM numbers({first}, {min(4_000_000, others - first)}))""")


def window(seconds, first=0):
    return f"(from = toDateTime64({START + first}, 6, 'UTC'), to = toDateTime64({START + first + seconds}, 6, 'UTC'))"


PARTS = {"queue_ns": "waited * 1000", "cpu_ns": "intDiv(took, 4) * 1000", "runq_ns": "intDiv(took, 20) * 1000", "gil_ns": "intDiv(took, 10) * 1000",
         "net_ns": "1000 * (took - intDiv(took, 4) - intDiv(took, 20) - intDiv(took, 10))", "net_peer_ns": "1000 * (took - intDiv(took, 2))"}


def make_ledger(ask, seconds, rate=500, by_thread=4):
    """The requests' rows in ebpf_request: every `by_thread`th had no traceparent."""
    n, parts = seconds * rate, {"accept_queue_ns": "0", "client_wait_ns": "0", "gc_own_ns": "0", "gc_sibling_ns": "0", **PARTS}
    for first in range(0, n, CHUNK):
        ask(f"""INSERT INTO ebpf_request ({OF_ROW}, request_id, trace_id, parent_span_id, family, server_port, peer_ip, peer_port, fd, netns, method, path, status,
            bytes_in, bytes_out, model, link, end_by, outcome, connection_request, queue_depth, busy_threads, open_requests, net_peer_ip, net_peer_port, {', '.join(parts)})
            SELECT {of_row('begun + 300', 'waited + took')}, sipHash64(i, 'r'), if(i % {by_thread} = 0, '', trace), if(i % {by_thread} = 0, '', client),
            'ipv4', 8000, toIPv6('::ffff:10.0.0.9'), port, 5 + i % 9, 4026531840, 'GET', concat('/', toString(i % 7)), 200, 120, 5000, 'thread', 'same', 'length',
            'answered', 1, i % 5, i % {THREADS} + 1, 1, toIPv6('::ffff:10.0.0.5'), 5432, {', '.join(parts.values())}
            FROM {requests(first, min(CHUNK, n - first), 1_000_000 // rate)}""")
