# SPDX-License-Identifier: Apache-2.0
"""`underspan explain` from the request ledger: known rows of ebpf_request, whole answers, with and without spans; what was not measured,
how a request ended, hostile names."""
import json
import time

import pytest

from agent import NO_ENGINE, plain_build
from answers import LEDGER_PARTS, Answers, answer, ask, causes, shared, text, trace_id  # noqa: F401: fixtures
from store_fixture import Store

pytestmark = [plain_build(NO_ENGINE), pytest.mark.engine]


def test_spans_by_kernel_and_namespace(ask):
    """The span of a request's own process, by boot id and PID namespace: a wrong host does not separate the two, and the same pid
    elsewhere, which carried the same traceparent on (a proxy), is not it."""
    boots = ["a" * 8 + "-boot", "b" * 8 + "-boot"]
    sent = {"trace_id": trace_id(5), "parent_span_id": "c1"}
    ask.request(0, {"cpu": 50}, request_id=1, host="proxy", boot_id=boots[0], pidns=1, **sent)
    ask.request(5, {"cpu": 40}, request_id=2, host="app", boot_id=boots[1], pidns=1, **sent)
    ask.span(trace_id(5), "s1", parent="c1", at=6, ms=30, resource={"host.name": "proxy"}, boot_id=boots[1], pidns="1")
    window = f"from = fromUnixTimestamp64Micro({ask.us(-1000)}, 'UTC'), to = fromUnixTimestamp64Micro({ask.us(1000)}, 'UTC')"
    rows = ask.store.ask(f"SELECT host, span_id, span_by, no_span FROM request({window}) ORDER BY request_id FORMAT TSV").splitlines()
    assert rows == ["proxy\t\t\tthe server span with its traceparent is of another process", "app\ts1\ttraceparent\t"]


def test_a_request_without_any_span(ask):
    """By request id, and by a trace id known only to the ledger: the same row, every part in place."""
    parts = {name: i + 1 for i, name in enumerate(LEDGER_PARTS)}
    ask.request(10, parts, trace_id=trace_id(5), parent_span_id="ab" * 8, net_peer_ip="::ffff:10.0.0.5", net_peer_port=5432, net_peer_ns=7_000_000)
    ask.request(900, {"cpu": 5}, request_id=78, tid=9)
    by_id, by_trace = answer(ask, "77"), answer(ask, trace_id(5))
    assert by_id["requests"] == by_trace["requests"] and len(by_id["requests"]) == 1 and by_trace["spans"] == []
    [request] = by_id["requests"]
    assert (request["part"], request["part_missing"]) == (LEDGER_PARTS, [])
    assert request["part_ms"] == [float(i + 1) for i in range(21)] and request["part_at_ms"] == [float(i * (i + 1) / 2) for i in range(21)]
    assert (request["duration_ms"], request["handled_us"], request["no_span"]) == (231, ask.us(20), "no server span has its traceparent")
    said = text(ask, "77")
    assert said.startswith("request 77: GET /orders, status 200, 231.0 ms ") and "event loop" not in said.split(" at ms ")[0]
    bar, words = "|= | ", "accept queue: connected, not accepted"
    assert f"0.0 1.0 {bar}{words}" in said and "10.0 5.0 |= | CPU" in said
    assert "network, 7.0 ms of it: 10.0.0.5 port 5432" in said and "not measured: nothing, all parts were" in said
    # the answer's view says the same
    window = f"from = fromUnixTimestamp64Micro({ask.us(0)}, 'UTC'), to = fromUnixTimestamp64Micro({ask.us(500)}, 'UTC')"
    row = json.loads(ask.store.ask(f"SELECT * FROM request({window}) FORMAT JSONEachRow"))
    assert {f"{name}_ms": row[f"{name}_ms"] for name in LEDGER_PARTS} == {f"{name}_ms": request[f"{name}_ms"] for name in LEDGER_PARTS}


def test_a_trace_with_spans(ask):
    """One server span has a request in the ledger; the second span has none and is answered by request_time."""
    ask.agent(-120_000, 300)
    ask.known()
    trace = trace_id(6)
    ask.span(trace, "c1", kind="Client", at=0, ms=400)
    ask.span(trace, "s1", "c1", at=300, ms=90)
    ask.span(trace, "c2", "s1", kind="Client", at=310, ms=60)
    ask.span(trace, "s2", "c2", at=320, ms=40, tid=18)
    ask.request(10, {"queue": 285, "cpu": 95}, trace_id=trace, parent_span_id="c1")
    said = answer(ask, trace)
    assert [r["request_id"] for r in said["requests"]] == ["77"] and said["requests"][0]["span_id"] == "s1"
    assert {s["span_id"]: (s.get("request_id"), "request" in s) for s in said["spans"] if s["kind"] == "server"} == {"s1": ("77", False), "s2": (None, True)}
    printed = text(ask, trace, columns=200)  # request_time's lines are wrapped on a terminal only
    assert 'span "GET x" of svc says 90.0 ms (found by its traceparent)' in printed and "the span says 40.0 ms; where" in printed
    assert "the span says 90.0 ms; where" not in printed


def test_a_request_that_carried_no_trace_id(ask):
    """The span is found by thread and time, so the span's trace finds the request; two spans there fit
    neither."""
    ask.request(10, {"queue": 200, "cpu": 100})
    ask.request(600, {"queue": 200, "cpu": 100}, request_id=78)
    ask.span(trace_id(7), "s1", at=215, ms=90)
    for i in range(2):
        ask.span(trace_id(8 + i), f"t{i}", at=810 + 20 * i, ms=10)
    [request] = answer(ask, trace_id(7))["requests"]
    assert (request["request_id"], request["span_by"], request["queue_ms"], request["trace_id"]) == ("77", "thread", 200, trace_id(7))
    assert answer(ask, trace_id(8), code=1)["requests"] == []
    [request] = answer(ask, "78")["requests"]
    assert (request["span_id"], request["no_span"]) == ("", "the request carried no traceparent, and several server spans began on its thread meanwhile")


def test_what_was_not_measured_is_no_zero(ask):
    ask.request(10, {"queue": None, "accept_queue": None, "gil": None, "gc_own": None, "gc_sibling": None, "lock": 60, "cpu": 20}, not_measured=["gil", "gc", "arrival", "x\x1b[1m"])
    [request] = answer(ask, "77")["requests"]
    assert request["part_missing"] == ["accept_queue", "queue", "gil", "gc_own", "gc_sibling"] and request["gil_ms"] is None and "gil" not in request["part"]
    said = text(ask, "77")
    assert "not measured: accept queue, queue, GIL, collections of its own, collections of other threads" in said
    for words in ("waits for the GIL have no probe", "collections have no probe", "when the first byte came was not seen"):
        assert f"not measured: {words}" in said
    assert " 0.0 ms" not in said and " 0.0 |" not in said.split("shares")[0] and "GIL: another thread had it" not in said
    assert causes(ask)["lock"]["fix"] == "" and "may be included" in causes(ask)["lock"]["said"]


def test_a_table_of_an_older_version_is_told(ask):
    ask.request(10, {"cpu": 40, "gc_sibling": 160})
    ask.store.ask("ALTER TABLE ebpf_gc_pause DROP COLUMN long_lived")
    try:
        done = ask.command("explain", "77")
        assert done.returncode == 1 and "a table here is of an older version: run 'underspan schema --apply'" in done.stderr and "long_lived" in done.stderr
    finally:
        ask.apply()
    assert "gc_sibling" in causes(ask)


def test_busy_threads_that_were_not_counted(ask):
    """Of an event loop with several requests nobody knows whether a pool has one of them: no pool is named."""
    ask.request(10, {"loop_busy": 60, "cpu": 2}, model="loop", open_requests=2, busy_threads=None)
    said = text(ask, "77")
    assert "how many further threads of its process had requests when it was read was not measured" in said and "pool" not in said.split("cause:")[0]


@pytest.mark.parametrize("outcome, end_by, words", [
    ("client_aborted", "close", "ended: the client closed before the answer"), ("upgraded", "upgrade", "ended: with a change to another protocol"),
    ("no_answer", "close", "ended: the server closed the connection without an answer, as a gunicorn worker does at its timeout"), ("answered", "length", ""),
    ("no_answer", "exit", "ended: its process exited"), ("no_answer", "SIGTERM", "ended: its process was ended by SIGTERM "),
    ("no_answer", "SIGKILL", "ended: its process was ended by SIGKILL: out of memory, or a supervisor (gunicorn: timeout)"),
    ("answered", "SIGSEGV", "ended: its process was ended by SIGSEGV: a crash, as in C code")])
def test_how_a_request_ended(ask, outcome, end_by, words):
    ask.request(10, {"sleep": 60}, outcome=outcome, end_by=end_by, status=None if outcome == "no_answer" else 200)
    said = text(ask, "77")
    assert words in said and "_" not in said.split("at ms")[0] and ("ended:" in said) == bool(words)


def test_the_next_wait_of_a_pools_thread_is_not_the_requests(ask):
    """It begins before the event loop has written the answer, and lasts until the thread's next work."""
    queue = ["_worker (/usr/lib/python3.11/concurrent/futures/thread.py:81)", "Thread.run (/usr/lib/python3.11/threading.py:982)"]
    for number, part in enumerate(("lock", "sleep")):
        at = 10 + 2000 * number
        ask.row("off_cpu", at + 10, 80, cause=part, syscall="futex", py_stack=["pay (/srv/app/shop/api.py:41)", *queue], waker_tid=30, waker_thread_name="batch")
        ask.row("off_cpu", at + 95, 900, cause="lock", syscall="futex", py_stack=queue, waker_tid=7, waker_thread_name="MainThread")
        ask.request(at, {part: 80, "cpu": 11, "other": 9}, request_id=77 + number, model="pool", link="wake")
    lock, sleep = causes(ask)["lock"], causes(ask, "78")["sleep"]
    assert ", in pay (shop/api.py:41); thread batch had it or put the item (80.0 ms)" in lock["said"], lock
    assert sleep["said"] == "the code slept, in pay (shop/api.py:41)", sleep


def test_a_turn_of_a_loop_with_several_callbacks(ask):
    """Each sleeps shorter than a stall; the code when the stall was noticed is of none of them."""
    stack = ["_SelectorSocketTransport.write (/usr/lib/python3.11/asyncio/selector_events.py:1057)", "main (/srv/app/shop/main.py:3)"]
    ask.row("loop_stall", 0, 425, loop="asyncio", sleep_ns=400_000_000, cpu_ns=25_000_000, py_stack=stack)
    for i in range(7):
        ask.row("off_cpu", 61 * i, 57, cause="sleep", py_stack=["nap (/srv/app/shop/api.py:9)", "main (/srv/app/shop/main.py:3)"])
    ask.row("off_cpu", 430, 300, cause="sleep", py_stack=["later (/srv/app/shop/api.py:12)"])
    ask.request(5, {"queue": 110, "cpu": 2}, model="loop")  # the turn goes on behind it
    assert causes(ask)["loop_blocked"]["fix"].startswith("in nap (shop/api.py:9), which kept the event loop for 425.0 ms: use await"), causes(ask)
    # a stall whose parts and code are not known, soon after the agent's start
    ask.row("loop_stall", 4000, 425, loop="asyncio", other_ns=425_000_000, sleep_ns=None)
    ask.row("off_cpu", 4100, 310, cause="sleep", py_stack=["nap (/srv/app/shop/api.py:9)"])
    ask.request(4005, {"queue": 410, "cpu": 2}, request_id=79, model="loop")
    assert causes(ask, "79")["loop_blocked"]["fix"].startswith("in nap (shop/api.py:9), which kept the event loop for 425.0 ms"), causes(ask, "79")
    # waits that are less than half of it do not tell
    ask.row("loop_stall", 2000, 425, loop="asyncio", sleep_ns=200_000_000, cpu_ns=180_000_000, py_stack=stack)
    for i in range(2):
        ask.row("off_cpu", 2000 + 110 * i, 100, cause="sleep", py_stack=["nap (/srv/app/shop/api.py:9)"])
    ask.request(2005, {"queue": 410, "cpu": 2}, request_id=78, model="loop")
    assert causes(ask, "78")["loop_blocked"]["fix"].startswith("in _SelectorSocketTransport.write"), causes(ask, "78")


def test_a_loop_that_was_kept_from_outside(ask):
    """Its code is not to blame for a stop, for the GIL, or for a processor that others had."""
    kept = {"stopped": ({"other_ns": 400_000_000}, "T", "was stopped by a signal or a debugger most of the time", "find what stops the process"),
            "frozen": ({"other_ns": 400_000_000}, "F", "was stopped by the freezer of its cgroup most of the time", "find what froze it"),
            "gil": ({"gil_ns": 390_000_000}, "", "waited for the GIL most of the time", "move that work to another process"),
            "runq": ({"runq_ns": 390_000_000}, "", "no CPU was free most of the time", "a larger instance")}
    for number, (parts, state, said, fix) in enumerate(kept.values()):
        at, poll = 2000 * number, ["EpollSelector.select (/usr/lib/python3.11/selectors.py:468)"]
        ask.row("loop_stall", at, 405, loop="asyncio", py_stack=poll, **parts)
        if state:
            ask.row("off_cpu", at + 2, 400, cause="other", state=state, py_stack=poll)
        for i, part in enumerate(("accept_queue", "queue")):
            ask.request(at + 3, {part: 400, "cpu": 2}, request_id=100 + 2 * number + i, model="loop")
            [cause] = causes(ask, str(100 + 2 * number + i)).values()
            assert "of 405.0 ms in which it did not poll, its thread " in cause["said"] and cause["said"].endswith(said) and cause["fix"].startswith(fix), cause
            assert "select" not in cause["said"] + cause["fix"], cause


def test_the_longest_holder_of_several(ask):
    """Before the read: not the one that happened to hold the GIL when the wait began, nor its code."""
    holders = [{"tid": 7, "ns": 300_000, "thread_name": "MainThread"}, {"tid": 9, "ns": 25_000_000, "thread_name": "pdf"}, {"tid": 10, "ns": 14_000_000, "thread_name": "csv"}]
    for at, at_begin, request in (10, holders[0], 77), (2010, holders[1], 78):
        ask.row("gil_wait", at, 40, holder_tid=at_begin["tid"], holder_thread_name=at_begin["thread_name"], holders=holders,
                holder_py_stack=[f"code_of_{at_begin['thread_name']} (/srv/app/shop/api.py:4)"])
        ask.request(at, {"queue": 40, "cpu": 2}, request_id=request)
    said, read = causes(ask)["gil_before"]["said"], causes(ask, "78")["gil_before"]["said"]
    assert said.endswith("; the longest holder was thread pdf"), said
    assert read.endswith("; the longest holder was thread pdf, in code_of_pdf (shop/api.py:4)"), read
    ask.row("gil_wait", 4010, 40, holder_tid=7, holder_thread_name="MainThread", holders=holders, holder_py_stack=["select (/srv/app/shop/api.py:5)"])
    ask.request(4005, {"gil": 40, "cpu": 10}, request_id=79)
    assert "waited for the GIL, which pdf had" in text(ask, "79") and "select" not in text(ask, "79")


def test_hostile_names(ask):
    """Paths, methods, names of threads and of code: one line, no control characters, 80 columns, and no cause is lost by a
    truncated name."""
    hostile = "/\x1b]0;owned\x07\n\u202e" + "é" * 200 + "x" * 300
    ask.request(10, {"queue": 300, "cpu": 100, "gil": 100}, path=hostile, method="GET\x1b[2J", thread_name="t\x9b31m\n", busy_threads=1)
    ask.request(0, {"cpu": 330}, request_id=78, path=hostile, tid=8, method="\x07")
    ask.row("gil_wait", 320, 90, holder_tid=9, holder_thread_name="\x1b" + "é" * 80, holder_py_stack=["é" * 400 + "\x1b[1m (a.py:1)"],
            holders=[{"tid": 9, "ns": 90_000_000, "thread_name": "\x1b" + "é" * 80}])
    ask.row("off_cpu", 330, 50, cause="sleep", py_stack=["\u202e\x1b[31mf (b.py:1)"])
    assert {"threads_missing", "gil", "cpu"} <= set(causes(ask))
    assert "GET?[2J /?]0;owned???" in text(ask, "77")


def test_ids_that_are_unknown(ask):
    for word, code, said in (("78", 1, "no request 78 in ebpf_request"), (trace_id(3), 1, f"no span of trace {trace_id(3)} in otel_traces, and no request"),
                             ("12x", 2, "no trace id (32 hex digits) and no request id"), ("0", 2, "no request id"), ("", 2, "no request id"),
                             ("99999999999999999999", 2, "no request id"), ("a" * 33, 2, "no trace id")):
        done = ask.command("explain", word)
        assert done.returncode == code and said in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, (word, done.returncode, done.stderr)
    assert "underspan sql 'SELECT request_id" in ask.command("explain", "78").stderr
    ask.request(10, {"cpu": 5}, request_id=2**64 - 1)
    assert answer(ask, str(2**64 - 1))["requests"][0]["request_id"] == str(2**64 - 1)


def test_what_the_ledger_does_not_follow_is_said(ask):
    """Of a trace without a request; not of a request's id, which only a row has."""
    def counted(host, what, words, ago):
        ask.insert("ebpf_probe_health", {"host": host, "container_id": "", "pod_uid": "", "host_pid": 0, "time": time.time_ns() // 1000 - ago * 1_000_000,
                                         "tracker": "request", "live": 1, "method": "", "python_version": "", "binary": what, "build_id": "", "reason": words})
    assert "not followed" not in ask.command("explain", trace_id(3)).stderr
    counted("a", "TLS", "5 connections with TLS inside the process; their requests have no rows", 60)
    counted("a", "TLS", "6 connections with TLS inside the process; their requests have no rows", 30)
    counted("b", "upgraded", "3 connections upgraded (websockets, h2c); their rows end at the upgrade", 30)
    done = ask.command("explain", trace_id(3))
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.endswith("; not followed, and counted: on a 6 connections with TLS inside the process; their requests have no rows\n"), done.stderr
    assert "not followed" not in ask.command("explain", "78").stderr


def test_without_the_spans_table(tmp_path):
    """No collector, no otel_traces: the ledger answers alone."""
    with Store(tmp_path / "db") as store:
        ask = Answers(store)
        assert "schema --apply" in ask.command("explain", trace_id(1)).stderr
        ask.apply()
        ask.request(10, {"queue": 50, "cpu": 5}, trace_id=trace_id(1), parent_span_id="x")
        for word in "77", trace_id(1):
            [request] = answer(ask, word)["requests"]
            assert request["queue_ms"] == 50 and request["span_id"] == "" and request["no_span"] == "no server span has its traceparent"
        assert "no view otel_span" in ask.command("explain", trace_id(2)).stderr


def test_rows_that_the_governor_left_out(ask):
    """The parts are exact; the code of a long wait may have no row. Nothing is said where only short events were left out."""
    def agent(at, tracker, **more):
        ask.insert("ebpf_agent", {"host": "h1", "tracker": tracker, "start_time": ask.moment(at), "end_time": ask.moment(at + 10_000), "sampled": 9, **more})
    agent(-5_000, "off_cpu", sampling_level=1, skip_shift=3)
    agent(-15_000, "off_cpu", skip_shift=5)
    agent(-5_000, "gc_pause", sampling_level=2)
    ask.request(10, {"sleep": 300, "cpu": 5})
    ask.request(20_000, {"sleep": 300, "cpu": 5}, request_id=78)
    assert answer(ask, "77")["requests"][0]["sampled"] == [{"tracker": "off_cpu", "one_in": 8}] and answer(ask, "78")["requests"][0]["sampled"] == []
    said = text(ask, "77")
    assert "not known of each: one event of off_cpu in 8 had a row then" in said and "gc_pause" not in said and "not measured: nothing" in said
    assert "had a row then" not in text(ask, "78")


def test_a_semaphore_of_system_v(ask):
    """Any thread may raise it: the one that did need not have had it."""
    for number, waker in (77, 30), (78, 0):
        at = 1000 * number
        ask.row("off_cpu", at + 2, 200, cause="lock", syscall="semtimedop", py_stack=["pay (/srv/app/shop/api.py:41)"], waker_tid=waker, waker_thread_name="batch" if waker else "")
        ask.request(at, {"lock": 200, "cpu": 5}, request_id=number)
    raised, late = causes(ask)["lock"], causes(ask, "78")["lock"]
    assert raised["said"] == "the thread waited for a semaphore of System V, in pay (shop/api.py:41); thread batch ended the wait", raised
    assert late["said"].endswith("; no thread is known to have ended it: a time-out ends such a wait, too") and raised["fix"].startswith("less time until"), late


def test_a_loop_that_a_socket_blocked(ask):
    """The peer is named; that it is a DNS server has a remedy of its own beside the loop's."""
    code = ["getaddrinfo (/usr/lib/python3.11/socket.py:962)", "fetch (/srv/app/shop/fetch.py:9)"]
    for number, port in (77, 53), (78, 5432):
        at = 1000 * number
        ask.row("loop_stall", at, 260, loop="asyncio", net_ns=250_000_000, py_stack=code)
        ask.row("off_cpu", at + 2, 250, cause="net", py_stack=code)
        ask.request(at, {"net": 250, "cpu": 10}, request_id=number, model="loop", net_peer_ip="::ffff:10.0.0.53", net_peer_port=port, net_peer_ns=250_000_000)
    dns, database = (causes(ask, number)["loop_blocked"] for number in ("77", "78"))
    assert dns["said"].endswith("called from fetch (shop/fetch.py:9); 250.0 ms of it for 10.0.0.53 port 53"), dns
    assert database["said"].endswith("; 250.0 ms of it for 10.0.0.53 port 5432"), database
    assert "use await instead" in dns["fix"] and dns["fix"] == database["fix"] + ("; a DNS server answered late or never: check the servers and the time-out in "
                                                                                  "/etc/resolv.conf, or cache names"), (dns, database)
