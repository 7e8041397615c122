# SPDX-License-Identifier: Apache-2.0
"""The law of weights: from a known population, the kernel's rule keeps a sample, and the answers of sql/queries about the sample
are true of the population, within chance (Horvitz and Thompson); without the weights the answers would be wrong."""
import json
import math
import pathlib
import random
import time

import pytest

from sql_known import MS, Maker, float32
from store_fixture import ROOT, Store, sql_text

pytestmark = pytest.mark.engine
N = 120_000
SIGMAS = 5  # once in two million


def probability(ns, level, skip_shift):
    """struct sampling of include/events/event.h, written once more."""
    kept = 1 if not level else min(1, max(ns / (MS << level), 1 / (1 << level)))
    return kept / (1 << skip_shift)


class Population:
    """Durations around 4 ms with a long tail, while the governor samples more and more; `rows` are the kept rows."""

    def __init__(self):
        chance = random.Random(7)
        self.items, self.rows = [], []
        for i in range(N):
            ns = int(4 * MS * math.exp(chance.gauss(0, 1.5)))
            p = probability(ns, (0, 4, 7)[3 * i // N], int(i > N // 2))
            item = {"ns": ns, "p": p, "failed": chance.random() < 0.5, "size": chance.randrange(1, 50)}
            self.items.append(item)
            if chance.random() < p:
                self.rows.append({**item, "weight": float32(1 / p)})

    def check_sum(self, got, of, what):
        truth = sum(of(item) for item in self.items)
        sigma = math.sqrt(sum((1 - item["p"]) / item["p"] * of(item) ** 2 for item in self.items))
        assert abs(got - truth) <= SIGMAS * sigma + 1, (what, got, truth, sigma)
        unweighted = sum(of(row) for row in self.rows)
        assert SIGMAS * sigma < 0.2 * truth and abs(unweighted - truth) > 2 * SIGMAS * sigma, (what, "proves nothing", unweighted, truth, sigma)

    def check_quantile(self, got_ms, level, what, of=lambda item: True):
        """The share of the population below the answer; answers are rounded to 0.1 ms."""
        items = [item for item in self.items if of(item)]
        sigma = math.sqrt(sum((1 - i["p"]) / i["p"] * ((i["ns"] <= got_ms * 1e6) - level) ** 2 for i in items)) / len(items)
        low, high = (sum(i["ns"] <= (got_ms + d) * 1e6 for i in items) / len(items) for d in (-0.051, 0.051))
        assert low - SIGMAS * sigma <= level <= high + SIGMAS * sigma, (what, got_ms, low, high, sigma)
        kept = [row for row in self.rows if of(row)]
        if level == 0.5:  # the longest are all kept: the last percentile hardly shows the difference
            naive = sum(row["ns"] <= got_ms * 1e6 for row in kept) / len(kept)
            assert abs(naive - level) > SIGMAS * sigma, (what, "proves nothing", naive, sigma)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("weights") / "db") as s:
        for path in sorted(pathlib.Path(ROOT, "sql/tables").glob("*.sql")):
            s.ask(sql_text(path))
        yield s


@pytest.fixture(scope="module")
def population():
    return Population()


def answer(store, population, query, table, make):
    """The query's only line for the sample, as a dict."""
    now = time.time_ns() // 1000 // 60_000_000 * 60_000_000 - 600_000_000  # the beginning of a minute
    maker = Maker(now)
    rows = []
    for i, item in enumerate(population.rows):
        common = {**maker.common(now + i, item["ns"]), "host": "web-1", "container_id": "", "pod_uid": "", "pid": 7, "host_pid": 7,
                  "comm": "python3", "weight": item["weight"]}
        rows.append(json.dumps({**common, **maker.tcp(), "remote_ip": "::1", "remote_port": 443, "local_port": 50000, "netns": 1, **make(item)}))
    done = store.insert(f"INSERT INTO {table} FORMAT JSONEachRow", "\n".join(rows), async_insert=0, input_format_skip_unknown_fields=1)
    assert done.status == 200, done.text
    text = store.ask(pathlib.Path(ROOT, "sql/queries", query).read_text(), default_format="JSON", output_format_json_quote_64bit_integers=0)
    lines = json.loads(text)["data"]
    assert len(lines) == 1
    return lines[0]


def test_handoffs(store, population):
    said = answer(store, population, "handoff_places.sql", "ebpf_handoff", lambda i: {"handoff_ns": i["ns"], "py_stack": ["f (a.py:1)"]})
    population.check_sum(said["requests"], lambda i: 1, "requests")
    population.check_sum(said["waited_ms"], lambda i: i["ns"] / 1e6, "waited_ms")
    population.check_quantile(said["p99_ms"], 0.99, "p99_ms")


def test_connects(store, population):
    answer(store, population, "tcp_connect.sql", "ebpf_tcp_connect", lambda i: {
        "outcome": "refused" if i["failed"] else "success", "total_retrans": i["size"]})
    said = answer(store, population, "tcp_connect.sql", "ebpf_tcp_connect_closed", lambda i: {"bytes_sent": i["size"], "bytes_received": 0})
    population.check_sum(said["connects"], lambda i: 1, "connects")
    population.check_sum(said["failed"], lambda i: i["failed"], "failed")
    population.check_sum(said["syns_again"], lambda i: i["size"], "syns_again")
    population.check_sum(said["over"], lambda i: 1, "over")
    population.check_sum(said["bytes"], lambda i: i["size"], "bytes")
    population.check_quantile(said["connect_p50_ms"], 0.5, "connect_p50_ms", lambda i: not i["failed"])
    population.check_quantile(said["connect_p99_ms"], 0.99, "connect_p99_ms", lambda i: not i["failed"])


def test_accepts(store, population):
    said = answer(store, population, "tcp_accept.sql", "ebpf_tcp_accept", lambda i: {"kind": "accepted", "listen_ip": "::"})
    population.check_sum(said["slow_accepts"], lambda i: 1, "slow_accepts")
    population.check_quantile(said["wait_p50_ms"], 0.5, "wait_p50_ms")


def test_losses(store, population):
    said = answer(store, population, "tcp_loss.sql", "ebpf_tcp_loss", lambda i: {
        "kind": "rto" if i["failed"] else "retransmit", "segments": i["size"], "stalled_ns": i["ns"]})
    population.check_sum(said["sent_again"], lambda i: i["size"], "sent_again")
    population.check_sum(said["rto_stalls"], lambda i: i["failed"], "rto_stalls")
    population.check_sum(said["stall_ms"], lambda i: i["failed"] * i["ns"] / 1e6, "stall_ms")


def test_gil_waits(store, population):
    said = answer(store, population, "gil_wait.sql", "ebpf_gil_wait", lambda i: {
        "holder_tid": 9, "holders": [{"tid": 9, "ns": i["ns"], "thread_name": "keeper"}]})
    population.check_sum(said["waits"], lambda i: 1, "waits")
    population.check_sum(said["kept_waiting_ms"], lambda i: i["ns"] / 1e6, "kept_waiting_ms")
