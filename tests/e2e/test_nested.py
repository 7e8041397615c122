# SPDX-License-Identifier: Apache-2.0
"""Real requests and what `explain` says of them, where one process has two sides: a handler that calls its own server, and a Python that
is refused."""
import http.client
import json
import os
import random
import time

import pytest

import host
import servers
from agent import Agent, NO_ENGINE, plain_build
from answers import LEDGER_PARTS, Answers, store_of_answers, trace_id
from conftest import ALL_PYTHONS
from test_doctor import call_it_free_threaded
from test_gc_pause import copy_python
from test_request import ask as get

pytestmark = plain_build(NO_ENGINE)
MS = 1_000_000
HOST = "nested"
SERVERS = {"thread": ["nested_app.py"], "loop": ["-m", "uvicorn", "--port", "0", "--http", "h11", "--loop", "asyncio", "nested_app:asgi"]}


@pytest.fixture
def first():
    """The first parent of spans, and the trace. No other test has these: an agent sees the servers of all tests that run."""
    return random.getrandbits(40) << 16


@pytest.fixture
def agent_and_store(tmp_path, monkeypatch, cleanup):
    with store_of_answers(tmp_path) as store:
        monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
        agent = Agent(f"--clickhouse={store.url}", f"--host={HOST}", "--flush_interval=0.3", "--off_cpu.min_duration_us=100",
                      "--request.min_duration_us=0", stdout=False)
        cleanup.append(agent)
        agent.wait_ready()
        yield agent, Answers(store, base_us=0)


def start(cleanup, python, argv, env=None):
    argv = [os.path.join(host.WORKLOADS, a) if a.endswith(".py") else a for a in argv]
    server = servers.Server([*python.start, python.path, *argv], cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS, **(env or {})})
    cleanup.append(server)
    server.port = int(server.wait_log(r"(?:Listening at:|running on) http://127\.0\.0\.1:(\d+)")[0].group(1))
    return server


def ledger(ask, trace, n):
    """The trace's rows by their parent, when there are as many."""
    def rows():
        text = ask.store.ask(f"SELECT * FROM ebpf_request WHERE trace_id = '{trace}' FORMAT JSONEachRow", output_format_json_quote_64bit_integers=0)
        found = {int(r["parent_span_id"], 16): r for r in map(json.loads, text.splitlines())}
        return found if len(found) >= n else None
    return host.wait_until(rows, 20, f"{n} requests of trace {trace}")


def wait_seen(ask, server):
    """The port and the interpreter are known: requests are rows."""
    for i in range(1, 200):
        get(http.client.HTTPConnection("127.0.0.1", server.port), "/", i)
        if ask.store.ask(f"SELECT count() FROM ebpf_request WHERE server_port = {server.port}") != "0\n":
            return
        time.sleep(0.1)
    raise AssertionError("no request is a row")


def insert_span(ask, trace, span, parent, truth, pid):
    ahead = time.time_ns() - time.monotonic_ns()
    ask.span(trace, f"{span:016x}", f"{parent:016x}", at=(truth["begin"] + ahead) / 1e6, ms=truth["handler"] / 1e6, pid=pid,
             tid=truth["tid"], resource={"host.name": HOST})


def levels(truth):
    while truth:
        yield truth
        truth = truth["inner"]


@pytest.mark.parametrize("model", SERVERS)
def test_a_handler_that_calls_its_own_server(model, first, agent_and_store, cleanup, debian_python):
    """Three levels in one trace and one process: each wait belongs to the one that waited, in the ledger, in `explain` and in the view."""
    agent, ask = agent_and_store
    server = start(cleanup, debian_python, SERVERS[model])
    wait_seen(ask, server)
    pid = server.pid
    wait = "sleep" if model == "thread" else "await"
    trace, own = trace_id(first), {first: 40, first + 1: 20, first + 2: 80}  # milliseconds of each one's own wait, by its parent
    truth = get(http.client.HTTPConnection("127.0.0.1", server.port), f"/{wait}-40/deep-80", first)
    truths = dict(zip(own, levels(truth)))
    rows = ledger(ask, trace, 3)
    assert set(rows) == set(own)
    for parent, row in rows.items():
        true, why = truths[parent], (row, truths[parent])
        called = [true["inner"]["handler"], true["called"]] if true["inner"] else [0, 0]
        assert row["pid"] == pid and row["tid"] == true["tid"] and row["model"] == model, why
        assert sum(row[f"{part}_ns"] or 0 for part in LEDGER_PARTS) == row["duration_ns"], why
        if model == "thread":
            assert own[parent] * MS - MS // 10 <= row["sleep_ns"] <= true["asleep"] + MS // 10, why
            # what it waited for the one that it called, and no more than the call
            assert called[0] - MS <= row["net_ns"] + row["runq_ns"] and row["net_ns"] <= called[1] + MS // 10, why
            if true["inner"]:
                assert row["net_peer_port"] == server.port and row["net_peer_ns"] <= row["net_ns"], why
        else:
            # the loop waits with it, but serves the one that it called meanwhile
            assert own[parent] * MS + called[0] - MS <= row["await_ns"] + row["loop_busy_ns"] + row["runq_ns"], why
            assert row["await_ns"] <= own[parent] * MS + called[1] + MS, why
            if parent > min(own):
                assert row["duration_ns"] - row["client_wait_ns"] - row["accept_queue_ns"] <= truths[parent - 1]["called"] + MS, why
    # `explain`: the trace's three requests, the figures of the rows
    said = {int(r["parent_span_id"], 16): r for r in ask_explain(ask, trace)["requests"]}
    assert {p: (r["request_id"], dict(zip(r["part"], r["part_ms"]))) for p, r in said.items()} == {
        p: (str(r["request_id"]), {part: r[f"{part}_ns"] / 1e6 for part in LEDGER_PARTS}) for p, r in rows.items()}
    # with spans: each one's request is its own row; the view says the same of the inside
    for parent, true in truths.items():
        insert_span(ask, trace, parent + 0x100, parent, true, pid)
    spans = {s["span_id"]: s for s in ask_explain(ask, trace)["spans"]}
    assert {s: spans[s]["request_id"] for s in spans} == {f"{p + 0x100:016x}": str(r["request_id"]) for p, r in rows.items()}
    now = time.time() * 1000
    shown = {r["span_id"]: r for r in ask.view(trace, before=20_000 - now, after=now + 1000)}
    for parent, true in truths.items():
        row = shown[f"{parent + 0x100:016x}"]
        if model == "thread":
            assert abs(row["sleep_ms"] * MS - rows[parent]["sleep_ns"]) <= 0.5 * MS, row
            assert abs(row["net_ms"] * MS - rows[parent]["net_ns"]) <= 0.5 * MS, (row, rows[parent])
        assert row["total_ms"] * MS <= true["handler"] + rows[parent]["queue_ns"] + rows[parent]["accept_queue_ns"] + 2 * MS, (row, rows[parent])


def ask_explain(ask, trace, code=0):
    done = ask.command("explain", "--json", trace)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.parametrize("python", [p for p in ALL_PYTHONS if p.version >= (3, 13)][:1], ids=str)
@pytest.mark.parametrize("by", ["ledger", "spans"])
def test_a_refused_python_names_the_reason(by, python, first, agent_and_store, cleanup, tmp_path):
    """What needs its interpreter has no figure but the reason; its sleep is measured all the same."""
    agent, ask = agent_and_store
    copy, env = copy_python(python, tmp_path / "copy")
    call_it_free_threaded(copy.image)
    server = start(cleanup, copy, ["nested_app.py"], env)
    wait_seen(ask, server)
    trace, reason = trace_id(first), f"free-threaded Python 3.{python.version[1]} is not supported"
    truth = get(http.client.HTTPConnection("127.0.0.1", server.port), "/sleep-70", first)
    [row] = ledger(ask, trace, 1).values()
    insert_span(ask, trace, first + 0x100, first, truth, server.pid)
    host.wait_until(lambda: reason in ask.store.ask(f"SELECT reason FROM ebpf_probe_health WHERE host_pid = {server.pid}"), 20, "the reason")
    if by == "ledger":
        [request] = ask_explain(ask, trace)["requests"]
        assert row["not_measured"] == request["not_measured"] == ["gil", "gc"]
        assert all(row[f"{part}_ns"] is None and request[f"{part}_ms"] is None for part in ("gil", "gc_own", "gc_sibling")), row
        assert {r["tracker"]: r["reason"] for r in request["refused"]} == {"gil_wait": reason, "gc_pause": reason}
        assert f"refused: {reason}" in " ".join(ask.command("explain", trace).stdout.split())
        assert 70 * MS - MS // 10 <= row["sleep_ns"] <= truth["asleep"] + MS // 10, (row, truth)
        return
    ask.store.ask("TRUNCATE TABLE ebpf_request")  # or it would be answered from the ledger

    def answered():  # when the agent has reported that moment
        [span] = ask_explain(ask, trace)["spans"]
        return span["request"] if span["request"]["not_measured"] == [f"{what}: refused: {reason}" for what in ("collections", "GIL")] else None
    said = host.wait_until(answered, 30, "the reason alone")
    assert said["gc_ms"] is said["gil_ms"] is said["gc_others_ms"] is None
    assert abs(said["sleep_ms"] * MS - row["sleep_ns"]) <= 0.5 * MS, (said, row)
