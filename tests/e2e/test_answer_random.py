# SPDX-License-Identifier: Apache-2.0
"""Requests, spans, hand-offs and intervals of every kind that overlap at random: each part of each answer equals the sum of the
stretches between any two neighbouring boundaries, each of which is decided here by itself. The views and `explain` are each asked
once for all requests. E2E_SEED=N repeats a run."""
import collections
import json
import os
import random

import pytest

from agent import NO_ENGINE, plain_build
from answers import LEDGER_PARTS, PARTS, T0, Answers, rounded, store_of_answers, trace_id

pytestmark = [plain_build(NO_ENGINE), pytest.mark.engine]

SEED = int(os.environ.get("E2E_SEED") or random.randrange(1 << 32))
REQUESTS = 160
ALL = ("handoff", "tcp_accept", "gc_pause", "gil_wait", "off_cpu", "cpu_throttle")
TRACKERS = {"h1": ALL, "h2": ALL, "h3": tuple(t for t in ALL if t != "off_cpu"), "h4": tuple(t for t in ALL if t not in ("gc_pause", "gil_wait"))}
KERNELS = {"h2": {"boot_id": "b" * 8 + "-1111-2222-3333-444455556666", "pidns": 4026531836}}  # other hosts' agents are older than these ids
CAUSES = ("lock", "net", "disk", "page_fault", "sleep", "poll", "pipe", "child", "other")  # in the order in which a moment counts
BEFORE = ("accept", "client_wait", "handoff")


class Rows(Answers):
    """Rows are kept until the end, and inserted together. The views look for processes by ten minutes: some end in the midst."""

    def __init__(self, store):
        super().__init__(store, T0 - 1_500_000)
        self.kept = collections.defaultdict(list)

    def insert(self, table, *rows):
        self.kept[table] += rows

    def flush(self, chance):
        """Spans in batches, the first and some others twice, as exporters send them whose answer was lost. async_insert, the collector's own setting,
        changes nothing in this engine, which has no queue for it."""
        spans = self.kept.pop("otel_traces", [])
        for first in range(0, len(spans), 16):
            lines = "\n".join(map(json.dumps, spans[first:first + 16]))
            for _ in range(chance.choice((1, 1, 2)) if first else 2):
                answer = self.store.insert("INSERT INTO otel_traces FORMAT JSONEachRow", lines, async_insert=1)
                assert answer.status == 200, answer.text
        for table, rows in self.kept.items():
            super().insert(table, *rows)


class Request:
    """Times are microseconds; None: there is none."""

    def __init__(self, chance, host, pid, tid, n, begin):
        self.host, self.pid, self.tid, self.n = host, pid, tid, n
        self.port = 20_000 + n
        self.kind = "sync" if tid == pid else chance.choice(("accept", "keepalive"))
        self.names_port = host in ("h1", "h3") or self.kind == "keepalive"
        wait = lambda most: chance.choice((0, chance.randrange(most), chance.randrange(most)))
        self.accept = self.handed = self.bytes = self.pickup = None
        at = begin
        if self.kind != "keepalive":
            self.accept = at, at + 1000 + wait(150_000)
            at = self.accept[1]
        if self.kind != "sync":
            self.handed = at + (chance.randrange(-300, 3000) if self.accept else 0)
            self.bytes = max(self.handed, at) + wait(40_000)
            self.pickup = self.bytes + wait(120_000)
            if chance.random() < 0.2:  # the worker itself waited for the bytes
                self.bytes, self.pickup = self.pickup + 1, max(self.handed + 1, at)
            at = max(self.bytes, self.pickup)
        self.start = at + chance.randrange(40_000)
        self.end = self.start + chance.randrange(1, 120_000)
        self.called(chance)

    def called(self, chance):
        """By nobody, from the same host, or from one whose clock is another."""
        first = self.accept[0] if self.accept else self.handed
        known_by = self.pickup if self.handed is not None else self.accept[1]
        self.caller = self.other_clock = None
        self.names_kernel, self.caller_names = self.pid == 7, chance.random() < 0.5
        how = chance.randrange(3)
        if how == 1:
            began = chance.randrange(first - 30_000, known_by)
            self.caller = began, max(self.end, began) + chance.randrange(-2000, 30_000)
        elif how == 2:
            self.other_clock = True
            began = first + chance.randrange(-400_000, 400_000)
            self.caller = began, began + self.end - first + chance.randrange(60_000)

    def stretch(self):
        """First wait, begin and end of the request's time; the caller's clock is moved by the least that covers the request."""
        not_before = self.caller[0] if self.caller and not self.other_clock else 0
        self.first = max(not_before, self.accept[0] if self.accept else self.handed)
        if not self.caller:
            return self.first, self.end
        began, ended = self.caller
        if self.other_clock and not (began <= self.first and ended >= self.end):
            move = self.first - began if began > self.first else self.end - ended
            began, ended = began + move, ended + move
        return min(self.first, began), max(self.end, ended)

    def phase(self, t):
        """The request's own part at a moment."""
        if self.accept and self.accept[0] <= t < self.accept[1]:
            return "accept"
        if self.start <= t < self.end:
            return "span"
        if self.handed is not None and self.handed <= t < max(self.bytes, self.pickup):
            return "client_wait" if t < self.bytes else "handoff"
        return "rest"


Interval = collections.namedtuple("Interval", "begin end host pid tid what woken", defaults=[None])


def of_thread(chance, request, intervals):
    """Waits of the request's thread, also across begin and end of the span."""
    for what, share in ("gil", 0.7), ("off_cpu", 0.9):
        for _ in range(chance.randrange(6) if chance.random() < share else 0):
            begin = chance.randrange(request.start - 20_000, request.end)
            ended = begin + chance.randrange(1, 60_000)
            woken = chance.choice((ended, ended, chance.randrange(begin, ended + 1), begin))
            kind = "gil" if what == "gil" else chance.choice((*CAUSES, "gil", "preempt"))
            intervals[what].append(Interval(begin, ended, request.host, request.pid, request.tid, kind, begin if kind == "preempt" else woken))


def of_process(chance, host, pid, tids, until, intervals):
    for what, n, most in ("gc", 60, 90_000), ("throttle", 40, 100_000):
        for _ in range(n):
            begin = chance.randrange(-50_000, until)
            intervals[what].append(Interval(begin, begin + chance.randrange(1, most), host, pid, chance.choice(tids) if what == "gc" else 0, what))


def composed(chance):
    """Requests by thread in turn, and what happened meanwhile."""
    requests, intervals = [], collections.defaultdict(list)
    threads = [(host, pid, pid + i) for host in TRACKERS for pid in (7, 70) for i in range(4) if host not in ("h3", "h4") or i]
    at = dict.fromkeys(threads, 0)
    for n in range(REQUESTS):
        thread = chance.choice(threads)
        requests.append(Request(chance, *thread, n, at[thread] + 40_000 + chance.randrange(30_000)))
        at[thread] = requests[-1].end + 1
        of_thread(chance, requests[-1], intervals)
    for host in TRACKERS:
        for pid in 7, 70:
            until = max(ended for (h, p, _), ended in at.items() if (h, p) == (host, pid))
            of_process(chance, host, pid, range(pid, pid + 5), until + 1, intervals)
    return requests, intervals


def kernel_of(host, named):
    """What a span says about its kernel."""
    ids = KERNELS.get(host, {"boot_id": "e" * 36, "pidns": 1} if host == "elsewhere" else {})
    return {name: str(value) for name, value in ids.items()} if named else {}


def insert(ask, requests, intervals, chance):
    ms = lambda us: us / 1000
    of = lambda i: {"at": ms(i.begin), "ms": ms(i.end - i.begin), "host": i.host, "pid": i.pid, "tid": i.tid, **KERNELS.get(i.host, {})}
    for host, trackers in TRACKERS.items():
        ask.agent(-120_000, 300, host=host, trackers=trackers)
        for pid in 7, 70:
            ask.known(pid=pid, host=host)
    for r in requests:
        who = {"host": r.host, "pid": r.pid, **KERNELS.get(r.host, {})}
        if r.accept:
            taker = r.tid if r.kind == "sync" else r.pid + 9
            ask.accept(ms(r.accept[0]), ms(r.accept[1] - r.accept[0]), tid=taker, remote_port=r.port, **who)
            if r.kind == "sync":  # one connection at a time: idle in select() before
                ask.row("off_cpu", ms(r.accept[0] - 20_000), 15, tid=r.tid, cause="poll", idle=1, syscall="select", **who)
        if r.handed is not None:
            lasted = r.pickup - r.handed
            waited = {"client_wait_ns": (r.bytes - r.handed) * 1000} if r.bytes > r.pickup else {}
            ask.handoff(ms(r.handed), ms(lasted), wait=0 if waited else ms(r.pickup - r.bytes), tid=r.tid, queue=r.kind,
                        peer_port=r.port, **who, **waited)
        if r.caller:
            ask.span(trace_id(1), f"c{r.n}", kind="Client", at=ms(r.caller[0]), ms=ms(r.caller[1] - r.caller[0]),
                     resource={"host.name": "elsewhere" if r.other_clock else r.host}, **kernel_of("elsewhere" if r.other_clock else r.host, r.caller_names))
        ask.span(trace_id(1), f"s{r.n}", f"c{r.n}" if r.caller else "", at=ms(r.start), ms=ms(r.end - r.start), pid=r.pid, tid=r.tid,
                 resource={"host.name": r.host}, **kernel_of(r.host, r.names_kernel),
                 **({"net.peer.port": str(r.port)} if r.names_port else {}))
    tables = {"gc": "gc_pause", "throttle": "cpu_throttle", "gil": "gil_wait", "off_cpu": "off_cpu"}
    for what, those in intervals.items():
        for i in those:
            if tables[what] not in TRACKERS[i.host]:
                continue
            more = {} if i.woken is None else {"runq_ns": (i.end - i.woken) * 1000}
            ask.row(tables[what], **of(i), **more, **({"cause": i.what} if what == "off_cpu" else {}))
    ask.flush(chance)


def moment_of(r, t, happening, off_cpu):
    """Where one moment of a request counts, and whether a collection was the request's own."""
    gc = happening["gc"]
    if gc and t >= r.first:
        return "gc", r.phase(t) == "span" and any(i.tid == r.tid for i in gc)
    phase = r.phase(t)
    if phase != "span":
        return phase, False
    gil, waits = happening["gil"], happening["off_cpu"]
    if any(t < i.woken or not off_cpu for i in gil) or any(i.what == "gil" and t < i.woken for i in waits):
        return "gil", False
    if any(t >= i.woken for i in (*gil, *waits)):
        return ("throttled" if happening["throttle"] else "run_queue"), False
    asleep = {i.what for i in waits}
    return next((cause for cause in CAUSES if cause in asleep), "cpu"), False


def expected(r, intervals):
    """The answer in microseconds."""
    trackers = TRACKERS[r.host]
    begin, end = r.stretch()
    mine = {"gc": [], "gil": [], "off_cpu": [], "throttle": []}
    for what, tracker in ("gc", "gc_pause"), ("gil", "gil_wait"), ("off_cpu", "off_cpu"), ("throttle", "cpu_throttle"):
        if tracker in trackers:
            mine[what] = [i for i in intervals[what] if (i.host, i.pid) == (r.host, r.pid) and (what in ("gc", "throttle") or i.tid == r.tid)
                          and i.begin < end and i.end > begin]
    at = {begin, end, r.first, r.start, r.end, r.handed, r.bytes, r.pickup, *(r.accept or ())} - {None}
    at |= {t for those in mine.values() for i in those for t in (i.begin, i.end, i.woken) if t is not None}
    at = sorted(t for t in at if begin <= t <= end)
    sums, own = collections.Counter(), 0
    for t, after in zip(at, at[1:]):
        part, its_own = moment_of(r, t, {what: [i for i in those if i.begin <= t < i.end] for what, those in mine.items()}, "off_cpu" in trackers)
        sums[part] += after - t
        own += (after - t) * its_own
    missing = {"client_wait"} if r.kind == "sync" else set()
    if "off_cpu" not in trackers:
        missing |= {*CAUSES, "run_queue", "throttled"}
    if "gc_pause" not in trackers:
        missing.add("gc")
    if "gil_wait" not in trackers and not sums["gil"]:  # waits for the GIL are among the sleeps, too
        missing.add("gil")
    assert not any(sums[part] for part in missing), (sums, missing)
    answer = {part[:-3]: None if part[:-3] in missing else sums[part[:-3]] for part in PARTS}
    return {**answer, "total": end - begin, "caller": r.caller and r.caller[1] - r.caller[0], "span": r.end - r.start,
            "gc_others": None if "gc" in missing else sums["gc"] - own}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with store_of_answers(tmp_path_factory.mktemp("random")) as store:
        yield store


def in_us(row, keys):
    return {key: None if row[f"{key}_ms"] is None else round(row[f"{key}_ms"] * 1000) for key in keys}


def test_requests_and_intervals_at_random(store):
    print(f"\n  E2E_SEED={SEED}", end=" ")
    ask = Rows(store)
    chance = random.Random(SEED)
    requests, intervals = composed(chance)
    insert(ask, requests, intervals, chance)
    window = {"before": 60_000, "after": 60_000}
    spans, twice = map(int, ask.store.ask("SELECT uniqExact(SpanId, SpanKind), count() FROM otel_traces").split())
    assert spans == REQUESTS + sum(bool(r.caller) for r in requests) < twice, (spans, twice)
    rows = {row["span_id"]: row for row in ask.view(trace_id(1), **window)}
    short = {row["span_id"]: row for row in ask.view(trace_id(1), view="request_time", **window)}
    said = {span["request"]["span_id"]: span["request"] for span in ask.explain(trace_id(1)) if "request" in span}
    assert len(rows) == len(short) == len(said) == REQUESTS
    wrong = []
    for r in requests:
        row, whole = rows[f"s{r.n}"], expected(r, intervals)
        assert sum(whole[part[:-3]] or 0 for part in PARTS) == whole["total"]
        seen = in_us(row, whole)
        if seen != whole:
            wrong.append((vars(r), row["not_measured"], {key: (seen[key], whole[key]) for key in whole if seen[key] != whole[key]}))
        answered = said[f"s{r.n}"]
        assert rounded(row) == rounded({**answered, **{key: answered[key] for key in row}}), (SEED, row, answered)
        common = ("total_ms", "accept_ms", "client_wait_ms", "handoff_ms", "gc_ms", "gc_others_ms", "handler_ms", "rest_ms", "span_ms")
        assert {key: row[key] for key in common} == {key: short[f"s{r.n}"][key] for key in common}, SEED
    assert not wrong, (f"E2E_SEED={SEED}: {len(wrong)} of {REQUESTS}: (seen, expected) in us", wrong[:3])


def test_requests_of_the_ledger_at_random(store):
    """Twenty of one trace: each part is the row's in the view and in `explain`, missing where it was not measured, and all add up."""
    print(f"\n  E2E_SEED={SEED}", end=" ")
    chance, ask, sent = random.Random(SEED), Rows(store), {}
    missing = [part for part in LEDGER_PARTS if part in ("accept_queue", "client_wait", "queue", "gil", "gc_own", "gc_sibling")]
    for n in range(1, 21):
        sent[n] = {part: chance.choice((0, chance.randrange(90_000))) for part in LEDGER_PARTS}
        sent[n].update({part: None for part in missing if chance.random() < 0.2})
        ask.request(1000 * n / 7, {part: None if us is None else us / 1000 for part, us in sent[n].items()}, request_id=n, tid=8 + n % 3,
                    trace_id=trace_id(2), parent_span_id=f"{n:016x}", not_measured=["chance"])
    ask.flush(chance)
    window = f"from = fromUnixTimestamp64Micro({ask.us(-1000)}, 'UTC'), to = fromUnixTimestamp64Micro({ask.us(9000)}, 'UTC')"
    text = ask.store.ask(f"SELECT * FROM request({window}) WHERE trace_id = '{trace_id(2)}' FORMAT JSONEachRow", output_format_json_quote_64bit_integers=0)
    seen = {row["request_id"]: row for row in map(json.loads, text.splitlines())}
    done = ask.command("explain", "--json", trace_id(2))
    said = {int(request["request_id"]): request for request in json.loads(done.stdout)["requests"]}
    assert set(seen) == set(said) == set(sent), (done.stderr, SEED)
    for n, parts in sent.items():
        assert in_us(seen[n], parts) == parts, SEED
        there = {part: us for part, us in parts.items() if us is not None}
        assert dict(zip(said[n]["part"], (round(ms * 1000) for ms in said[n]["part_ms"]))) == there, (SEED, said[n])
        assert sorted(said[n]["part_missing"]) == sorted(set(parts) - set(there)), (SEED, said[n])
        assert round(said[n]["duration_ms"] * 1000) == round(seen[n]["duration_ms"] * 1000) == sum(there.values()), SEED
