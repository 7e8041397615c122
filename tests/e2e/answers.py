# SPDX-License-Identifier: Apache-2.0
"""Spans and rows made with SQL, and both ways to ask about a request: the view and `underspan explain --json`."""
import contextlib
import json
import os
import time

import pytest

from store_fixture import ROOT, Store, underspan

# an hour ago and a little more, in microseconds: rows live for a week
T0 = (int(time.time()) // 600 * 600 - 3600) * 1_000_000
PARTS = ("accept_ms client_wait_ms handoff_ms gc_ms gil_ms lock_ms net_ms disk_ms page_fault_ms sleep_ms poll_ms pipe_ms child_ms "
         "other_ms run_queue_ms throttled_ms cpu_ms rest_ms").split()
LEDGER_PARTS = ("accept_queue client_wait queue pool_wait cpu runq throttled gil gc_own gc_sibling lock net disk fault sleep pipe child other "
                "await loop_busy client_slow").split()


def trace_id(n):
    return f"{n:032x}"


def rounded(row):
    """Rounds to the precision common to all forms of an answer: programs print 15 digits, the database
    more."""
    return {key: round(value, 9) if isinstance(value, float) else value for key, value in row.items()}


class Answers:
    """A store with the schema. Times are milliseconds after T0."""

    def __init__(self, store, base_us=T0):
        self.store, self.base_us = store, base_us
        self.env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}

    def command(self, *arguments):
        return underspan(arguments[0], f"--clickhouse={self.store.url}", *arguments[1:], env=self.env)

    def apply(self, *options):
        done = self.command("schema", "--apply", *options)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def insert(self, table, *rows):
        answer = self.store.insert(f"INSERT INTO {table} FORMAT JSONEachRow", "\n".join(map(json.dumps, rows)), async_insert=0)
        assert answer.status == 200, (table, answer.text)

    def us(self, ms):
        return self.base_us + round(ms * 1000)

    def moment(self, ms):
        us = self.us(ms)
        return f"{us // 1_000_000}.{us % 1_000_000:06}"

    def span(self, trace, span, parent="", kind="Server", at=0, ms=100, pid=7, tid=8, resource=None, table="otel_traces", **attributes):
        if kind == "Server":
            attributes = {"process.pid": str(pid), "thread.id": str(tid), **attributes}
        self.insert(table, {
            "Timestamp": f"{self.us(at) * 1000 // 10**9}.{self.us(at) * 1000 % 10**9:09}", "TraceId": trace, "SpanId": span,
            "ParentSpanId": parent, "SpanName": "GET x", "SpanKind": kind, "ServiceName": "svc",
            "ResourceAttributes": {"host.name": "h1"} if resource is None else resource, "SpanAttributes": attributes,
            "Duration": round(ms * 1e6)})

    def row(self, table, at, ms, pid=7, tid=8, host="h1", **more):
        self.insert("ebpf_" + table, {"host": host, "pid": pid, "tid": tid, "start_time": self.moment(at), "end_time": self.moment(at + ms),
                                      "duration_ns": round(ms * 1e6), **more})

    def handoff(self, at, ms, wait=None, queue="accept", **more):
        self.row("handoff", at, ms, queue=queue, handoff_ns=round((ms if wait is None else wait) * 1e6), **more)

    def accept(self, at, ms, **more):
        self.row("tcp_accept", at, ms, kind="accepted", **more)

    def request(self, at, parts, request_id=77, pid=7, tid=8, host="h1", **more):
        """A row of the ledger; parts in milliseconds by name, None was not measured."""
        parts = {**dict.fromkeys(LEDGER_PARTS, 0), **parts}
        ms = sum(value or 0 for value in parts.values())
        self.row("request", at, ms, pid=pid, tid=tid, host=host, **{
            "request_id": request_id, "family": "ipv4", "server_port": 8000, "peer_ip": "::ffff:10.0.0.9", "method": "GET", "path": "/orders",
            "status": 200, "model": "thread", "link": "same", "end_by": "length", "outcome": "answered", "connection_request": 1,
            "busy_threads": 1, "open_requests": 1, "bytes_out": 1000,
            **{f"{name}_ns": None if value is None else round(value * 1e6) for name, value in parts.items()}, **more})

    def agent(self, at, seconds, host="h1", sampled=0, trackers=("handoff", "tcp_accept", "gc_pause", "gil_wait", "off_cpu", "cpu_throttle")):
        self.insert("ebpf_agent", *[{"host": host, "tracker": tracker, "start_time": self.moment(at + 10_000 * i),
                                     "end_time": self.moment(at + 10_000 * (i + 1)), "sampled": sampled}
                                    for i in range(seconds // 10) for tracker in trackers])

    def known(self, pid=7, host="h1", live=1, reason="", tracker="gc_pause", **more):
        self.insert("ebpf_probe_health", {"host": host, "host_pid": pid, "time": self.moment(-60_000), "tracker": tracker, "live": live,
                                          "reason": reason, **more})

    def view(self, trace, view="request_time_parts", before=1000, after=1000):
        """The view's rows of a trace, or of several, of a window around T0 in milliseconds."""
        traces = [trace] if isinstance(trace, str) else trace
        window = f"from = fromUnixTimestamp64Micro({self.us(-before)}, 'UTC'), to = fromUnixTimestamp64Micro({self.us(after)}, 'UTC')"
        wanted = ", ".join(f"'{t}'" for t in traces)
        text = self.store.ask(f"SELECT * FROM {view}({window}) WHERE trace_id IN ({wanted}) ORDER BY start_us FORMAT JSONEachRow",
                              output_format_json_quote_64bit_integers=0)
        return [json.loads(line) for line in text.splitlines()]

    def rows_of(self, traces, **more):
        """The view's only row of each trace, in order, by a single query: planning a query takes a second of
        CPU."""
        rows = self.view(traces, **more)
        assert sorted(row["trace_id"] for row in rows) == sorted(traces), rows
        return sorted(rows, key=lambda row: traces.index(row["trace_id"]))

    def explain(self, trace, code=0):
        done = self.command("explain", "--json", trace)
        assert done.returncode == code, (done.returncode, done.stderr)
        return json.loads(done.stdout)["spans"]

    def each(self, *traces, code=0, **window):
        """Each trace's only request: the same by all ways, with parts that add up. None: not measured."""
        rows = self.rows_of(traces, **window)
        shorts = self.rows_of(traces, view="request_time", **window)
        for trace, row, short in zip(traces, rows, shorts):
            [said] = [span["request"] for span in self.explain(trace, code) if "request" in span]
            assert rounded(row) == rounded({**said, **{key: said[key] for key in row}}), (row, said)
            for key in ("total_ms", "accept_ms", "client_wait_ms", "handoff_ms", "gc_ms", "gc_others_ms", "handler_ms", "rest_ms", "span_ms"):
                assert short[key] == row[key], key
            assert abs(sum(row[part] or 0 for part in PARTS) - row["total_ms"]) < 0.002, row
        return rows

    def one(self, trace, code=0, **window):
        [row] = self.each(trace, code=code, **window)
        return row


def parts(row):
    """Parts other than zero, rounded to a microsecond; None stays."""
    return {part[:-3]: None if row[part] is None else round(row[part], 3) for part in PARTS if row[part] is None or abs(row[part]) > 1e-6}


OTEL = sorted((ROOT / "sql" / "otel").glob("*.sql"))


@contextlib.contextmanager
def store_of_answers(directory):
    """A store with the collector's tables and the schema."""
    with Store(directory / "db") as store:
        for path in OTEL:
            store.ask(path.read_text())
        Answers(store).apply()
        yield store


def emptied(store):
    """The store with empty tables."""
    for name in store.ask("SELECT name FROM system.tables WHERE database = 'default' AND engine = 'MergeTree' AND name != 'ebpf_schema'").split():
        store.ask(f"TRUNCATE TABLE {name}")
    return store


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with store_of_answers(tmp_path_factory.mktemp("answers")) as store:
        yield store


@pytest.fixture
def ask(shared):
    """The tables empty."""
    return Answers(emptied(shared))


def text(ask, word, columns=80):
    """The printed text: no line longer than 80 columns, no control characters. Line ends and margins are left out."""
    done = ask.command("explain", word)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert all(len(line) <= columns for line in done.stdout.splitlines()), done.stdout
    assert all(c == "\n" or c.isprintable() for c in done.stdout), ascii(done.stdout)
    return " ".join(done.stdout.split())


def answer(ask, word, code=0):
    done = ask.command("explain", "--json", word)
    assert done.returncode == code, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def causes(ask, word="77"):
    """Causes of a request by name, largest first; each is in the text as well, with the remedy."""
    [request] = answer(ask, word)["requests"]
    printed = "".join(text(ask, word).split())  # a long name is broken anywhere
    for cause in request["causes"]:
        for said in f"cause: {cause['ms']:.1f} ms: {cause['said']}", f"fix: {cause['fix']}" if cause["fix"] else "":
            assert "".join(said.split()) in printed, (cause, printed)
    return {cause["cause"]: cause for cause in request["causes"]}
