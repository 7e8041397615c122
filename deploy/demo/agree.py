# SPDX-License-Identifier: Apache-2.0
"""Holds `underspan explain --json` against the views, request by request: agree.py TRACE_ID... Every figure that both
have must be equal: of the ledger (the view request), and, from the same rows without a ledger, of the spans (request_time and
request_time_parts). Ends with 1 and the differences otherwise. tests/e2e/test_agree.py asks it about known rows."""

import json
import os
import pathlib
import re
import subprocess
import sys

SQL = pathlib.Path(__file__).parents[2] / "sql"
WITHOUT_LEDGER = "demo_without_ledger"  # database: the rows of the default database, except for ebpf_request


def underspan(*arguments, database="default"):
    """Standard output of a command on DEMO_CLICKHOUSE. explain ends with 1 if nothing was measured; the answer is whole."""
    command = [os.environ["DEMO_UNDERSPAN"], arguments[0], "--clickhouse=" + os.environ["DEMO_CLICKHOUSE"],
               "--clickhouse_database=" + database, *arguments[1:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode and not done.stdout:
        sys.exit(f"underspan {arguments[0]} ended with {done.returncode}")
    return done.stdout


def ask(query, database="default"):
    return [json.loads(line) for line in underspan("sql", "--format=JSONEachRow", query, database=database).splitlines()]


def rounded(value):
    """As text: programs print 15 digits, the database more; ids are text in explain; addresses of IPv4 are shorter there."""
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value).removeprefix("::ffff:")


def differences(said, row):
    """The differences between `explain` and a view about one request."""
    both = said.keys() & row.keys()
    return [f"{key}: explain says {said[key]}, the view {row[key]}" for key in sorted(both) if rounded(said[key]) != rounded(row[key])]


def prepare():
    """A second database, in which no request has a ledger row: there, explain answers from the spans."""
    ask(f"CREATE DATABASE IF NOT EXISTS {WITHOUT_LEDGER}")
    for table in ask("SELECT name FROM system.tables WHERE database = 'default' AND match(name, '^(ebpf_|otel_traces)') AND engine NOT LIKE '%View'"):
        name = table["name"]
        made = f"TABLE IF NOT EXISTS {WITHOUT_LEDGER}.{name} AS default.{name}" if name == "ebpf_request" else (
            f"VIEW IF NOT EXISTS {WITHOUT_LEDGER}.{name} AS SELECT * FROM default.{name}")
        ask("CREATE " + made)
    for name in "otel_span", "request", "request_time", "request_time_parts":
        view = (SQL / "views" / f"{name}.sql").read_text()
        ask(re.sub(r'(?m)^#include "(.*)"\n', lambda match: (SQL / match[1]).read_text(), view), WITHOUT_LEDGER)


def pairs(explained, view, key):
    """(figures of explain, row of the view) of each; None: missing on this side."""
    said, rows = {str(one[key]): one for one in explained}, {str(row[key]): row for row in view}
    return {one: (said.get(one), rows.get(one)) for one in said.keys() | rows.keys()}


def compared(traces):
    """The compared values of each view: {view: pairs()}."""
    some = "trace_id IN ('" + "', '".join(traces) + "')"
    [when] = ask(f"SELECT toString(min(time) - INTERVAL 1 MINUTE) AS first, toString(max(time) + INTERVAL 1 MINUTE) AS last FROM otel_span WHERE {some}")

    def rows(view):
        return ask(f"SELECT * FROM {view}(from = '{when['first']}', to = '{when['last']}') WHERE {some}")
    requests, spans = [], []
    for trace in traces:
        requests += json.loads(underspan("explain", "--json", trace))["requests"]
        alone = json.loads(underspan("explain", "--json", trace, database=WITHOUT_LEDGER))
        spans += [span["request"] for span in alone["spans"] if "request" in span]
    return {"request": pairs(requests, rows("request"), "request_id"), "request_time": pairs(spans, rows("request_time"), "span_id"),
            "request_time_parts": pairs(spans, rows("request_time_parts"), "span_id")}


def check(traces):
    """The differences, and how many figures were compared."""
    prepare()
    wrong, figures = [], 0
    for view, found in compared(traces).items():
        if len(found) < len(traces):
            wrong.append(f"{view}: {len(found)} requests of {len(traces)} traces")
        for one, (said, row) in found.items():
            if said is None or row is None:
                wrong.append(f"{view} {one}: {'explain' if said is None else 'the view'} does not have it")
                continue
            figures += len(said.keys() & row.keys())
            wrong += [f"{view} {one}: {difference}" for difference in differences(said, row)]
    return wrong, figures


if __name__ == "__main__":
    WRONG, FIGURES = check(sys.argv[1:])
    if WRONG:
        sys.exit("explain and the views do not agree:\n" + "\n".join(WRONG))
    print(f"\n`underspan explain` and the views agree: {FIGURES} figures of these {len(sys.argv) - 1} requests.")
