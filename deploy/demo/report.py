# SPDX-License-Identifier: Apache-2.0
"""The demo's results: report.py settled|story|compare ... All figures come from the store, through `underspan sql`
and the view request_time (sql/views/request_time.sql); this file only queries and prints.

report.py settled PHASE STORY       wait until the spans of a load and their hand-offs are in the store
report.py story PHASE STORY         the slowest requests; their trace ids go to file descriptor 3
report.py compare                   the same load before and after
"""

import json
import os
import subprocess
import sys
import time

SINCE = os.environ["DEMO_SINCE"]  # when the demo began, as the store writes times

# A row per request of the load; story and phase come from the client span.
REQUESTS = f"""
WITH load AS
(
    SELECT
        TraceId AS trace_id, Timestamp AS sent, Timestamp + INTERVAL Duration NANOSECOND AS received,
        SpanAttributes['demo.story'] AS story, SpanAttributes['demo.phase'] AS phase,
        SpanAttributes['url.path'] AS url_path
    FROM otel_traces
    WHERE SpanKind = 'Client' AND ServiceName = 'clients' AND Timestamp >= '{SINCE}'
),
requests AS
(
    SELECT * FROM load INNER JOIN request_time(from = '{SINCE}', to = '2100-01-01 00:00:00') USING trace_id
)
"""

STORIES = {
    "queue": {
        "title": "Story 1: the queue before the worker",
        "victim": "/orders",
        "text": [
            "16 requests a second for 4 s. Each spends 0.25 s on a database, so gunicorn's two threads manage 8 a",
            "second. The others are accepted at once and then wait in the worker, before any span begins.",
        ],
        "legend": [
            "hand-off: accepted, but no thread was free. GC: the process stood still. handler: the span without",
            "GC. rest: nginx, the network, from the pick-up to the span's start. '-': not measured.",
        ],
    },
    "gc": {
        "title": "Story 2: somebody else's garbage collection",
        "victim": "/price",
        "text": [
            "/price takes no time at all. But the process holds a million long-lived objects, and when another",
            "thread's /report allocates enough, CPython visits every one of them while all threads stand still.",
        ],
    },
}


def ask(query):
    command = [os.environ["DEMO_UNDERSPAN"], "sql", "--clickhouse=" + os.environ["DEMO_CLICKHOUSE"]]
    reply = subprocess.run(command + ["--format=JSONEachRow", query], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in reply.stdout.splitlines()]


def heading(text):
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def ms(value):
    if value is None:
        return "-"
    return f"{float(value):,.0f} ms" if float(value) >= 99.5 else f"{float(value):.1f} ms"


def settled(phase, story):
    """Spans and rows travel in batches. Gives up after 15 s: the report then says how many are missing."""
    deadline = time.monotonic() + 15
    while True:
        (row,) = ask(
            f"{REQUESTS} SELECT toUInt32(countIf(queue != '')) AS complete, "
            f"(SELECT toUInt32(count()) FROM load WHERE phase = '{phase}' AND story = '{story}') AS sent "
            f"FROM requests WHERE phase = '{phase}' AND story = '{story}'"
        )
        if row["complete"] == row["sent"] or time.monotonic() > deadline:
            return
        time.sleep(0.3)


def story(phase, name):
    told = STORIES[name]
    heading(told["title"])
    print("\n".join(told["text"]) + "\n")

    where = f"phase = '{phase}' AND story = '{name}' AND url_path = '{told['victim']}'"
    rows = ask(f"{REQUESTS} SELECT * FROM requests WHERE {where} ORDER BY total_ms DESC LIMIT 5")
    print(f"{'slowest requests to ' + told['victim']:<32} {'client':>9} = {'hand-off':>9} {'GC':>9} {'handler':>9} {'rest':>9}   {'span says':>9}")
    for row in rows:
        parts = [ms(row[part]) for part in ("handoff_ms", "gc_ms", "handler_ms", "rest_ms")]
        print(f"{row['trace_id']} {ms(row['total_ms']):>9} = {' '.join(f'{part:>9}' for part in parts)}   {ms(row['span_ms']):>9}")

    if "legend" in told:
        print("\n".join(told["legend"]))
    (row,) = ask(
        f"{REQUESTS} SELECT count() AS n, countIf(queue != '') AS found, sum(total_ms) AS total, sum(span_ms) AS span, "
        f"ifNull(sum(handoff_ms), 0) AS handoff, ifNull(sum(gc_ms), 0) AS gc, ifNull(sum(gc_others_ms), 0) AS others, sum(rest_ms) AS rest "
        f"FROM requests WHERE {where}"
    )

    def share(part):
        return f"{100 * row[part] / row['total']:.0f} %"

    print(
        f"\nAll {row['n']} of them together: the clients waited {row['total'] / 1000:.1f} s, the spans say "
        f"{row['span'] / 1000:.1f} s ({share('span')}).\n"
        f"Hand-off was {share('handoff')}, collections {share('gc')} ({share('others')} started by others), "
        f"the rest {share('rest')}. {row['found']} of {row['n']} have their hand-off row."
    )
    for gc in ask(
        f"""SELECT generation, count() AS n, min(duration_ns) / 1e6 AS shortest, max(duration_ns) / 1e6 AS longest,
            arrayStringConcat(arraySlice(argMax(py_stack, duration_ns), 1, 3), ' < ') AS set_off_by
        FROM ebpf_gc_pause AS g
        INNER JOIN
        (
            {REQUESTS} SELECT host, pid, min(sent) AS first, max(received) AS last
            FROM requests WHERE phase = '{phase}' AND story = '{name}' GROUP BY host, pid
        ) AS load USING (host, pid)
        WHERE g.start_time BETWEEN first AND last AND generation = 2
        GROUP BY generation"""
    ):
        by = f", the longest set off by {gc['set_off_by']}" if gc["set_off_by"] else ""
        print(f"Full collections: {gc['n']}, {ms(gc['shortest'])} to {ms(gc['longest'])} each{by}.")
    os.write(3, " ".join(row["trace_id"] for row in rows).encode())


def compare():
    rows = {
        (row["story"], row["phase"]): row
        for row in ask(
            f"""{REQUESTS}
            SELECT story, phase,
                quantileExact(0.5)(total_ms) AS client_median, quantileExact(0.99)(total_ms) AS client_p99,
                max(total_ms) AS client_max, quantileExact(0.99)(handoff_ms) AS handoff_p99
            FROM requests
            WHERE url_path IN ('/orders', '/price')
            GROUP BY story, phase"""
        )
    }
    for row in ask(
        f"""{REQUESTS}
        SELECT story, phase, sum(g.duration_ns) / 1e6 AS gc_total, max(g.duration_ns) / 1e6 AS gc_max
        FROM
        (
            SELECT story, phase, host, pid, min(sent) AS first, max(received) AS last
            FROM requests
            GROUP BY ALL
        ) AS load
        LEFT JOIN ebpf_gc_pause AS g ON g.host = load.host AND g.pid = load.pid
        WHERE g.start_time BETWEEN first AND last
        GROUP BY story, phase"""
    ):
        rows[row["story"], row["phase"]].update(row)

    heading("Two fixes, the same load again: 16 threads instead of 2; gc.freeze() once the catalogue is loaded")
    print(f"\n{'':<44} {'before':>11} {'after':>11}")
    for name, column, label in (
        ("queue", "client_median", "/orders   client, median"),
        ("queue", "client_p99", "          client, 99th percentile"),
        ("queue", "client_max", "          client, slowest"),
        ("queue", "handoff_p99", "          hand-off, 99th percentile"),
        ("gc", "client_median", "/price    client, median"),
        ("gc", "client_p99", "          client, 99th percentile"),
        ("gc", "client_max", "          client, slowest"),
        ("gc", "gc_max", "          longest collection"),
        ("gc", "gc_total", "          all collections together"),
    ):
        before, after = (rows[name, phase].get(column, 0) for phase in ("before", "after"))
        print(f"{label:<44} {ms(before):>11} {ms(after):>11}")


if __name__ == "__main__":
    {"settled": settled, "story": story, "compare": compare}[sys.argv[1]](*sys.argv[2:])
