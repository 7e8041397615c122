# SPDX-License-Identifier: Apache-2.0
"""Where a request's time went: known spans and rows, whole answers. The view and `underspan explain` are both asked and must
agree, with parts that add up to the total (Answers.one())."""
import json

import pytest

from agent import NO_ENGINE, plain_build
from answers import Answers, ask, parts, rounded, shared, trace_id  # noqa: F401: fixtures
from store_fixture import Store

pytestmark = [plain_build(NO_ENGINE), pytest.mark.engine]
NOT_SPLIT = dict.fromkeys("gil lock net disk page_fault sleep poll pipe child other run_queue throttled".split())


def watched(ask, **known):
    ask.agent(-120_000, 300)
    ask.known(**known)


def reasons(row):
    return " | ".join(row["not_measured"])


CLIENT = "client: no row tells when the request's bytes came: a wait for them is in the rest"


def test_every_part_once(ask):
    """Queue, client, hand-off, collections of both kinds, GIL, causes, run queue and quota overlap: each moment is counted once."""
    trace = trace_id(1)
    watched(ask)
    ask.span(trace, "c1", kind="Client", at=0, ms=1000, resource={"host.name": "h1"})
    ask.span(trace, "s1", "c1", at=400, ms=500)
    ask.accept(10, 90, tid=7, remote_port=4001)
    ask.handoff(100, 290, wait=270, peer_port=4001, client_wait_ns=20_000_000)
    ask.row("gc_pause", 200, 50, tid=9, generation=2)  # in the hand-off
    ask.row("gc_pause", 420, 30, tid=9, generation=2)  # of a sibling, while the thread waits for the GIL
    ask.row("gil_wait", 410, 60)
    ask.row("off_cpu", 410, 60, cause="gil")
    ask.row("gc_pause", 480, 10, tid=8, generation=0)  # of the span's thread
    ask.row("off_cpu", 500, 100, cause="sleep", runq_ns=20_000_000)
    ask.row("gc_pause", 550, 5, tid=9)  # while the thread sleeps
    ask.row("off_cpu", 620, 40, cause="lock")
    ask.row("off_cpu", 670, 30, cause="net")
    ask.row("off_cpu", 710, 20, cause="disk")
    ask.row("off_cpu", 740, 50, cause="preempt", runq_ns=50_000_000)
    ask.row("cpu_throttle", 750, 30, tid=0)
    row = ask.one(trace)
    assert parts(row) == {"accept": 90, "client_wait": 20, "handoff": 220, "gc": 95, "gil": 30, "lock": 40, "net": 30, "disk": 20,
                          "sleep": 75, "run_queue": 40, "throttled": 30, "cpu": 190, "rest": 120}
    assert (row["total_ms"], row["caller_ms"], row["gc_others_ms"], row["not_measured"]) == (1000, 1000, 85, [])


def test_accept_queue_of_a_sync_worker(ask):
    """gunicorn's default: the accepting thread is also the handling thread; the wait is no hand-off."""
    trace = trace_id(1)
    watched(ask)
    ask.span(trace, "c1", kind="Client", at=0, ms=1804)
    ask.accept(1, 1502, tid=8, queue_len=5)
    ask.span(trace, "s1", "c1", at=1504, ms=299, tid=8)
    row = ask.one(trace, after=5000)
    assert parts(row) == {"accept": 1502, "client_wait": None, "cpu": 299, "rest": 3} and row["handoff_ms"] == 0
    # the client may have been slow during all of the service
    assert row["not_measured"] == [CLIENT] and "client: no row tells" in ask.command("explain", trace).stdout


@pytest.mark.parametrize("port", [True, False])
def test_the_accept_queue_of_a_request_that_came_later(ask, port):
    """The client connects, waits, and sends: the hand-off begins with the first bytes. The wait for accept() belongs to the first
    request of the connection; without the peer's port the first request cannot be recognised."""
    watched(ask)
    ask.accept(0, 7, tid=7, remote_port=4001)
    for i in range(2):
        ask.handoff(300 * i + 60, 3, tid=8 + i, queue="keepalive", peer_port=4001)
        ask.span(trace_id(i + 1), f"s{i}", at=300 * i + 64, ms=40, tid=8 + i, **({"net.peer.port": "4001"} if port else {}))
    for i, row in enumerate(ask.each(trace_id(1), trace_id(2))):
        assert row["handoff_ms"] == 3
        assert row["accept_ms"] == (None if not port else 0 if i else 7)
        assert ("accept queue: its connection waited for its accept(), and the span has no peer port" in reasons(row)) == (not port)


def test_the_accept_queue_of_a_connection_that_is_not_known(ask):
    """The thread's last hand-off belonged to an earlier request: neither wait is known, so neither is 0."""
    watched(ask)
    ask.accept(0, 7, tid=7, remote_port=4001)
    ask.handoff(10, 3, tid=8, peer_port=4002)
    ask.row("off_cpu", 20, 100, tid=8, cause="lock", idle=1, syscall="futex")  # served, and idle again
    ask.span(trace_id(1), "s1", at=130, ms=40, tid=8)
    row = ask.one(trace_id(1))
    assert (row["accept_ms"], row["handoff_ms"]) == (None, None)
    assert "accept queue: its thread's last hand-off was not this request's" in reasons(row)


def test_an_event_loop_and_its_connections(ask):
    """Three connections are accepted at once: known by the peer's port; without the port, none is known, with a sentence.
    The second request of a kept connection did not wait for accept()."""
    watched(ask)
    for i in range(3):
        ask.accept(i, 500, tid=7, remote_port=5000 + i)
        ask.span(trace_id(i + 1), f"s{i}", at=510 + 20 * i, ms=15, tid=7, **{"network.peer.port": str(5000 + i)})
        ask.span(trace_id(i + 11), f"t{i}", at=610 + 20 * i, ms=15, tid=7, **{"net.peer.port": str(5000 + i)})
    of_the_first, of_the_second = [trace_id(i + 1) for i in range(3)], [trace_id(i + 11) for i in range(3)]
    assert [row["accept_ms"] for row in ask.each(*of_the_first, *of_the_second)] == [500] * 3 + [0] * 3
    for i in range(3):
        ask.accept(i, 500, tid=17, pid=17)
        ask.span(trace_id(i + 21), f"u{i}", at=510 + 20 * i, ms=15, pid=17, tid=17)
    for row in ask.each(*[trace_id(i + 21) for i in range(3)]):
        assert row["accept_ms"] is None and "3) were accepted just before" in reasons(row), row


def test_a_queue_inside_the_server(ask):
    """waitress, an executor: one thread reads requests, a second thread serves. No row tells the time in the queue between, so
    neither wait is 0; the wait of a thread that accepts and reads one connection at a time (a sync worker's select()) is 0."""
    watched(ask)
    ask.row("off_cpu", 1290, 100, tid=7, cause="poll", idle=1, syscall="pselect6")
    for i, tid in enumerate((8, 7)):
        ask.span(trace_id(i + 1), f"c{i}", kind="Client", at=i * 1000, ms=500)
        ask.span(trace_id(i + 1), f"s{i}", f"c{i}", at=i * 1000 + 405, ms=90, tid=tid)
    ask.accept(300, 70, tid=7)  # some connection
    row, other = ask.each(trace_id(1), trace_id(2), after=3000)
    assert parts(row) == {"accept": None, "client_wait": None, "handoff": None, "cpu": 90, "rest": 410}
    assert "accept queue: the span's thread took no connection in the ten seconds before" in reasons(row)
    assert "hand-off: the span's thread took no connection in the ten seconds before" in reasons(row)
    assert parts(other) == {"client_wait": None, "cpu": 90, "rest": 410} and other["not_measured"] == [CLIENT]
    # accept() took long enough for a row: by a different thread
    ask.accept(2000, 5, tid=7, remote_port=5000)
    ask.span(trace_id(3), "s3", at=2200, ms=90, tid=8, **{"net.peer.port": "5000"})
    row = ask.one(trace_id(3), after=3000)
    assert parts(row) == {"accept": 5, "client_wait": None, "handoff": None, "cpu": 90, "rest": 195}
    assert "hand-off: another thread accepted the request's connection" in reasons(row)


@pytest.mark.parametrize("syscall, ago, said", [
    ("epoll_wait", 30, "the span's thread is an event loop"), ("epoll_pwait", 30, "the span's thread is an event loop"),
    ("epoll_wait", 21_000, "the span's thread accepts by itself and may be an event loop"), ("poll", 30, None)])
def test_an_event_loop_that_was_busy(ask, syscall, ago, said):
    """A request's bytes wait until the loop reads. No row tells how long, so the wait is not 0, except where accept() ended just before."""
    watched(ask)
    ask.row("off_cpu", 600 - ago, 20, tid=7, cause="poll", idle=1, syscall=syscall)
    ask.accept(300, 298, tid=7, remote_port=5001)
    for i, port in enumerate((5000, 5001)):
        ask.span(trace_id(i + 1), f"s{i}", at=599 + i, ms=100, tid=7, **{"net.peer.port": str(port)})
    row, other = ask.each(trace_id(1), trace_id(2))
    loop = said is not None and "is an" in said
    assert (row["accept_ms"], row["client_wait_ms"], row["handoff_ms"]) == ((0, None, None) if said else (0, None, 0))
    assert (f"hand-off: {said}: no row tells how long a request waits there to be read" in reasons(row)) == (said is not None)
    assert ("the request's own share: " in reasons(row)) == loop
    assert (other["accept_ms"], other["client_wait_ms"], other["handoff_ms"]) == (298, None, 0)
    assert ("the request's own share: " in reasons(other)) == loop and "hand-off" not in reasons(other)


@pytest.mark.parametrize("syscall", ["epoll_wait", "poll"])
def test_a_slow_client_of_an_event_loop(ask, syscall):
    """The loop is idle from accept() until the request has come: the waiting connection may be the span's. A thread that reads
    one connection at a time would not have been idle."""
    watched(ask)
    ask.accept(0, 7, tid=7, remote_port=4001)
    ask.row("off_cpu", 8, 50, tid=7, cause="poll", idle=1, syscall=syscall)
    ask.span(trace_id(1), "s1", at=60, ms=30, tid=7)
    row = ask.one(trace_id(1))
    assert row["accept_ms"] == (None if syscall == "epoll_wait" else 0)
    assert ("a connection was accepted just before" in reasons(row)) == (syscall == "epoll_wait")


@pytest.mark.parametrize("port, epoll", [("1000", True), ("", True), ("1000", False)])
def test_a_worker_that_waits_for_the_first_byte_itself(ask, port, epoll):
    """gunicorn 24 and newer: with an epoll per worker right after accept(). The port identifies the request."""
    watched(ask)
    ask.handoff(100, 50, wait=0, peer_port=1000)
    ask.row("off_cpu", 151 if epoll else 190, 60, cause="poll", idle=1, syscall="epoll_wait")
    ask.span(trace_id(1), "s1", at=260, ms=20, **({"net.peer.port": port} if port else {}))
    row = ask.one(trace_id(1))
    if port and epoll:
        assert parts(row) == {"client_wait": 50, "cpu": 20, "rest": 110} and row["total_ms"] == 180
    else:
        assert row["handoff_ms"] is None and "hand-off: its thread was idle after the last connection that it took" in reasons(row)


def test_a_worker_that_waits_for_the_first_byte_is_no_rest(ask):
    """The row tells when the bytes came, later than the pick-up: the client's wait ends there, port or not. Bytes of later are another request's."""
    watched(ask)
    for i, (waited, idle) in enumerate(((109, True), (109, False), (170, False))):
        pid = 20 + i
        ask.known(pid=pid)
        ask.handoff(100, 50, pid=pid, wait=0, client_wait_ns=waited * 1_000_000)
        if idle:
            ask.row("off_cpu", 151, 58, pid=pid, cause="poll", idle=1, syscall="epoll_wait")
        ask.span(trace_id(i + 1), f"s{i}", at=260, ms=20, pid=pid)
    *own, late = ask.each(trace_id(1), trace_id(2), trace_id(3))
    for row in own:
        assert parts(row) == {"client_wait": 109, "cpu": 20, "rest": 51} and row["total_ms"] == 180 and row["not_measured"] == []
    assert late["client_wait_ms"] is None and "hand-off: its thread last took another connection" in reasons(late)


def test_what_the_governor_left_out(ask):
    """Of sampled trackers, a row is a lower bound, and the lack of a row says nothing."""
    trace = trace_id(1)
    ask.agent(-120_000, 300, sampled=1)
    ask.known()
    ask.span(trace, "s1")
    ask.row("off_cpu", 10, 20, cause="sleep")
    row = ask.one(trace)
    assert parts(row) == {**NOT_SPLIT, "throttled": None, "accept": None, "client_wait": None, "handoff": None, "gc": None, "sleep": 20, "cpu": 80}
    for part in ("accept queue", "hand-off", "collections", "GIL", "off the CPU (locks, network, disk, sleep, run queue)"):
        assert f"{part}: the agent kept only some of its rows" in reasons(row)
    said = ask.command("explain", trace).stdout
    assert "80.0 ms  the rest of the span: the handler, and waits that were not measured" in said and "on the CPU, and" not in said
    ask.row("gc_pause", 50, 30, tid=9)
    assert parts(ask.one(trace))["gc"] == 30


def test_a_cpu_missing_at_the_end_of_a_wait_for_the_gil(ask):
    """Not a wait for the GIL; in the run queue where measured."""
    watched(ask)
    ask.agent(-30_000, 60, host="h2", trackers=("handoff", "tcp_accept", "gc_pause", "gil_wait", "cpu_throttle"))
    for i, host in enumerate(("h1", "h2")):
        ask.known(host=host)
        ask.span(trace_id(i + 1), f"s{i}", at=0, ms=100, resource={"host.name": host})
        ask.row("gil_wait", 10, 60, host=host, runq_ns=25_000_000)
        ask.row("gil_wait", 80, 10, host=host, runq_ns=10_000_000)
    row, other = ask.each(trace_id(1), trace_id(2))
    assert (row["gil_ms"], row["run_queue_ms"], row["cpu_ms"]) == (35, 35, 30)
    assert (other["gil_ms"], other["run_queue_ms"], other["lock_ms"], other["cpu_ms"]) == (70, None, None, 30)


def test_the_handler_is_on_the_cpu_only_where_waits_were_measured(ask):
    trace = trace_id(1)
    ask.agent(-120_000, 300, trackers=["gc_pause", "gil_wait"])
    ask.known()
    ask.span(trace, "s1")
    ask.row("gil_wait", 10, 20)
    row = ask.one(trace)
    assert (row["gil_ms"], row["lock_ms"], row["sleep_ms"], row["cpu_ms"]) == (20, None, None, 80)
    assert "80.0 ms  the rest of the span: the handler, and waits that were not measured" in ask.command("explain", trace).stdout


def test_spans_delivered_twice(ask):
    trace = trace_id(1)
    for _ in range(2):
        ask.span(trace, "c1", kind="Client", at=0, ms=300)
        ask.span(trace, "s1", "c1", at=100, ms=190)
    ask.handoff(10, 85)
    ask.row("gc_pause", 120, 60, tid=9)
    row = ask.one(trace)
    assert parts(row) == {**NOT_SPLIT, "accept": None, "handoff": 85, "gc": 60, "cpu": 130, "rest": 25}
    assert len(ask.explain(trace)) == 2
    # the views' own settings are allowed where a profile has readonly=1
    for view in "request_time", "request_time_parts":
        assert ask.store.ask(f"SELECT count() FROM {view}(from = now() - 864000, to = now() + 864000)", readonly=1).strip() == "1"


@pytest.mark.parametrize("ago, caller, idle", [(180_000, False, False), (600_000, False, False), (5_000, False, False),
                                               (500, False, False), (80, True, False), (80, False, True)])
def test_a_hand_off_of_another_request(ask, ago, caller, idle):
    """The request of the hand-off has no span (a health check, an unsampled trace): never assigned to the near span."""
    trace = trace_id(1)
    ask.handoff(-ago - 50, 50)
    if caller:
        ask.span(trace, "c1", kind="Client", at=-10, ms=40)
    if idle:
        ask.row("off_cpu", -60, 50, cause="lock", idle=1)
    ask.span(trace, "s1", "c1" if caller else "", at=0, ms=20)
    row = ask.one(trace, code=1 if ago == 600_000 else 0)  # too long ago to show that the agent ran
    assert row["handoff_ms"] is None and row["total_ms"] == (40 if caller else 20), row
    assert "hand-off: " in reasons(row)


def test_a_hand_off_by_its_port(ask):
    """The last connection taken by the thread was a different one: no hand-off, though just before."""
    watched(ask)
    ask.handoff(-60, 50, peer_port=1000)
    ask.span(trace_id(1), "s1", at=0, ms=20, **{"net.peer.port": "1001"})
    row = ask.one(trace_id(1))
    assert row["handoff_ms"] is None and "another connection" in reasons(row)
    ask.handoff(100, 50, peer_port=1002)
    ask.span(trace_id(2), "s2", at=155, ms=20, **{"net.peer.port": "1002"})
    assert ask.one(trace_id(2))["handoff_ms"] == 50


def test_nothing_depends_on_the_window(ask):
    """Independent of `from`; adjacent windows have each span once."""
    watched(ask)
    for i, at in enumerate((-30_000, -8_000, -1_000, 0)):
        ask.span(trace_id(i + 1), f"s{i}", at=at, ms=20)
    ask.handoff(-30_010, 10)
    ask.handoff(-1_020, 15)
    first = [[row] for row in ask.rows_of([trace_id(i + 1) for i in range(4)], before=60_000)]
    assert [rows[0]["handoff_ms"] for rows in first] == [10, None, 15, 0]
    for i, before in enumerate((30_000, 8_000, 1_000, 0)):
        assert ask.view(trace_id(i + 1), before=before, after=-before + 0.001) == first[i]
        assert ask.view(trace_id(i + 1), before=60_000, after=-before) == []


@pytest.mark.parametrize("kept", [True, False])
def test_a_trace_id_of_days(kept, ask):
    """Used again and again: the last hours are shown and read, said; a request is found by its own id. Also without the collector's table of
    times."""
    hour = 3_600_000
    watched(ask)
    for i, at in enumerate((-80 * hour, -40 * hour, -7 * hour, -hour, 0)):
        ask.span(trace_id(1), f"s{i}", at=at, ms=20)
        ask.request(at, {"cpu": 20}, request_id=70 + i, trace_id=trace_id(1))
    if not kept:
        ask.store.ask("RENAME TABLE otel_traces_trace_id_ts TO hidden_ts")
    try:
        done = ask.command("explain", "--json", trace_id(1))
        said = json.loads(done.stdout)
        assert [span["span_id"] for span in said["spans"]] == ["s3", "s4"] and [r["request_id"] for r in said["requests"]] == ["73", "74"]
        assert "has spans of 80.0 hours: those of the last 6 are shown" in done.stderr and "has requests of 80.0 hours: those" in done.stderr, done.stderr
        assert [r["request_id"] for r in json.loads(ask.command("explain", "--json", "71").stdout)["requests"]] == ["71"]
        assert ask.command("explain", "--json", "71").stderr == ""
    finally:
        if not kept:
            ask.store.ask("RENAME TABLE hidden_ts TO otel_traces_trace_id_ts")


def test_two_containers_of_one_pod(ask):
    """Both have a pid 1: the sidecar's collections are not the application's, and only container.id tells."""
    ask.row("gc_pause", 10, 80, pid=1, tid=1, container_id="sidecar", pod_uid="pod-1")
    ask.row("gc_pause", 20, 5, pid=1, tid=1, container_id="app", pod_uid="pod-1")
    pod = {"host.name": "h1", "k8s.pod.uid": "pod-1"}
    ask.span(trace_id(1), "s1", pid=1, tid=1, resource={**pod, "container.id": "app"})
    ask.span(trace_id(2), "s2", pid=1, tid=1, resource=pod)
    assert ask.one(trace_id(1))["gc_ms"] == 5
    row = ask.one(trace_id(2), code=1)
    assert row["gc_ms"] is None and "the rows of 2 processes with pid 1 fit" in reasons(row)


def test_collections_that_overlap(ask):
    """Of several threads at once (subinterpreters): each moment counts once, and those of the span's own thread are its own."""
    for begin, ms, tid in (10, 30, 9), (20, 10, 8), (60, 10, 8), (65, 10, 9):
        ask.row("gc_pause", begin, ms, tid=tid)
    # the end of a long one is the begin of the next, with a short one inside
    for begin, ms, tid in (200, 40, 9), (210, 5, 8), (220, 5, 9), (240, 10, 8):
        ask.row("gc_pause", begin, ms, tid=tid)
    of = [(0, 100), (0, 35), (25, 10), (50, 18), (41, 5), (190, 100), (205, 40), (236, 6)]
    for n, (at, ms) in enumerate(of):
        ask.span(trace_id(1 + n), f"s{n}", at=at, ms=ms)
    rows = ask.rows_of([trace_id(1 + n) for n in range(len(of))])
    assert [(row["gc_ms"], row["gc_others_ms"]) for row in rows] == [(45, 25), (25, 15), (10, 5), (8, 0), (0, 0), (50, 35), (40, 30), (6, 4)]


def test_a_collection_across_the_begin_of_the_request(ask):
    """It began while the caller already waited: no moment is lost between the collections and the rest."""
    watched(ask)
    ask.span(trace_id(1), "c1", kind="Client", at=-18, ms=139)
    ask.span(trace_id(1), "s1", "c1", at=0, ms=33)
    ask.row("gc_pause", -20, 59, tid=9)
    row = ask.one(trace_id(1))
    assert (row["total_ms"], row["gc_ms"], row["cpu_ms"], row["rest_ms"]) == (139, 39, 0, 100)


def test_a_host_named_by_docker(ask):
    """Inside a container without a configured name, the host's name is the first 12 characters of the container's
    id."""
    for container, ms in ("0123456789abcdef" * 4, 30), ("fedcba9876543210" * 4, 80):
        ask.row("gc_pause", 10, ms, pid=1, tid=1, container_id=container)
    ask.span(trace_id(1), "s1", pid=1, tid=1, resource={"host.name": "0123456789ab"})
    row = ask.one(trace_id(1))
    assert (row["gc_ms"], row["host"], row["container_id"]) == (30, "h1", "0123456789abcdef" * 4)


def test_hosts_stay_apart(ask):
    """A span without a host: the only process with the pid, or none. A full name and a short name differ."""
    ask.row("gc_pause", 10, 30)
    ask.span(trace_id(1), "s1", resource={})
    assert ask.one(trace_id(1))["gc_ms"] == 30
    ask.span(trace_id(2), "s2", resource={"host.name": "h1.example.org"})
    row = ask.one(trace_id(2), code=1)
    assert row["gc_ms"] is None and "no rows of pid 7 on host h1.example.org; there are some under host.name h1" in reasons(row)
    ask.row("off_cpu", 20, 70, host="h2", cause="sleep")  # whichever table has the second host
    row = ask.one(trace_id(1), code=1)
    assert row["gc_ms"] is None and "the rows of 2 processes" in reasons(row)


BOOTS = [digit * 8 + "-1111-2222-3333-444455556666" for digit in "abc"]


def test_boot_id_and_namespace(ask):
    """The kernel and the PID namespace tell the owner of pid 7, whatever the span's host name, even without a name; where the
    rows are missing, rows of different processes are not taken."""
    places = {"h1": (BOOTS[0], 1, "", 30), "h2": (BOOTS[1], 1, "", 40), "container": (BOOTS[0], 2, "c1", 50)}
    for host, (boot, pidns, container, ms) in places.items():
        ask.row("gc_pause", 10, ms, host="h1" if container else host, container_id=container, boot_id=boot, pidns=pidns)
    spans = [({}, BOOTS[0], 1, 30), ({"host.name": "h1.example.org"}, BOOTS[1], 1, 40), ({"host.name": "h1"}, BOOTS[0], 2, 50),
             ({"host.name": "h1"}, BOOTS[2], 1, None), ({"host.name": "h2"}, BOOTS[1], 2, None), ({"host.name": "h1"}, "", 1, None)]
    for i, (resource, boot, pidns, _) in enumerate(spans):
        ask.span(trace_id(1 + i), f"s{i}", resource=resource, **({"boot_id": boot, "pidns": str(pidns)} if boot else {}))
    joined = [trace_id(1 + i) for i, span in enumerate(spans) if span[3]]
    assert [row["gc_ms"] for row in ask.each(*joined)] == [30, 40, 50]
    row = ask.one(trace_id(4), code=1)
    assert row["gc_ms"] is None and f"no rows of pid 7 of the span's kernel (boot id {BOOTS[2][:8]}) and PID namespace" in reasons(row)
    assert "no rows of pid 7 of the span's kernel" in reasons(ask.one(trace_id(5), code=1))
    row = ask.one(trace_id(6), code=1)  # without ids, two processes of h1 match
    assert row["gc_ms"] is None and "the rows of 2 processes with pid 7 fit" in reasons(row)


def test_clocks_of_one_kernel(ask):
    """A caller on the same kernel has the same clock, whatever the host names: a hand-off that ended before the caller's start
    belongs to a different request. Clocks of two kernels may differ by as much. Where one of both names no kernel, the hosts' names
    tell; a host without a name is no host."""
    callers = [(BOOTS[0], "web", False), (BOOTS[1], "app", True), ("", "app", False), ("", "web", True), ("", "", True)]
    for n, (caller, host, _) in enumerate(callers, 1):
        of = {"tid": 7 + n, "boot_id": BOOTS[0]}
        ask.handoff(-30, 25, pidns=1, **of)
        ask.span(trace_id(n), f"c{n}", kind="Client", at=-2, ms=110, resource={"host.name": host} if host else {},
                 **({"boot_id": caller, "pidns": "1"} if caller else {}))
        ask.span(trace_id(n), f"s{n}", parent=f"c{n}", resource={"host.name": "app"}, pidns="1", **of)
    rows = ask.each(*[trace_id(n) for n in range(1, len(callers) + 1)])
    assert [row["handoff_ms"] for row in rows] == [25 if other else None for *_, other in callers]


def test_spans_of_any_length(ask):
    """A clock that went back during a span, a connection kept for days, nonsense, a thread that slept for days: each has its own answer,
    and the span beside them has all parts."""
    ask.agent(-120_000, 4000)
    ask.known()
    ask.row("gc_pause", 10, 30)
    ask.row("off_cpu", 50, 5 * 86_400_000, cause="lock")
    lengths = {1: 100, 2: (2**64 - 10**9) / 1e6, 3: 3_700_000, 4: 12 * 86_400_000, 5: 9e12}
    for n, ms in lengths.items():
        ask.span(trace_id(n), f"s{n}", ms=ms, tid=8 if n < 3 else 6 + n)
    row, back = ask.each(trace_id(1), trace_id(2))
    assert [row[part] for part in ("gc_ms", "lock_ms", "cpu_ms")] == [30, 50, 20]
    assert (back["span_ms"], back["total_ms"]) == (0, 0)
    for n in 3, 4, 5:
        row = ask.one(trace_id(n), code=1, after=10_000_000)
        assert (row["span_ms"], row["gc_ms"], row["lock_ms"]) == (lengths[n], None, None) and "collections: the span is longer than an hour" in reasons(row)


def test_what_was_not_measured(ask):
    """Never a 0: no agent, an agent that had not begun or had ended, a tracker that did not run, a refused process."""
    ask.span(trace_id(1), "s1")
    row = ask.one(trace_id(1), code=1)
    assert parts(row) == {**NOT_SPLIT, "accept": None, "client_wait": None, "handoff": None, "gc": None, "cpu": 100}
    assert "no agent ran on host h1 then" in reasons(row)
    ask.agent(-60_000, 60)  # ends with the span's begin
    ask.known()
    assert "has not reported that moment" in reasons(ask.one(trace_id(1), code=1))
    ask.agent(0, 20, trackers=["gc_pause", "off_cpu"])
    row = ask.one(trace_id(1))
    assert row["gc_ms"] == 0 and row["sleep_ms"] == 0 and row["handoff_ms"] is None and row["gil_ms"] is None
    ask.span(trace_id(2), "s2", pid=70, tid=70, at=200)
    assert "knew no Python with pid 70" in reasons(ask.one(trace_id(2), code=1))
    ask.known(pid=71, live=0, reason="free-threaded build")
    ask.known(pid=71, tracker="off_cpu")
    ask.span(trace_id(3), "s3", pid=71, tid=71, at=400)
    row = ask.one(trace_id(3))
    assert row["gc_ms"] is None and row["sleep_ms"] == 0 and "collections: refused: free-threaded build" in reasons(row)
    # a report older than a day does not count: the agent repeats reports twice a day
    ask.known(pid=72, live=0, reason="free-threaded build", time=ask.moment(-26 * 3_600_000))
    ask.span(trace_id(5), "s5", pid=72, tid=72, at=500)
    assert "knew no Python with pid 72" in reasons(ask.one(trace_id(5), code=1))
    ask.span(trace_id(4), "s4", tid="")
    assert "native thread.id" in reasons(ask.one(trace_id(4), code=1))
    done = ask.command("explain", trace_id(4))
    assert "native thread.id, which the wheel underspan-otel in the service sets: `underspan doctor --spans`" in done.stderr, done.stderr
    ask.agent(620, 20)  # begins within the span
    ask.known()
    ask.span(trace_id(6), "s6", at=600)
    assert "the agent of host h1 did not run all the time" in reasons(ask.one(trace_id(6), code=1))
    done = ask.command("explain", trace_id(6))
    assert "nothing was measured: the agent of host h1 did not run all the time" in done.stderr, done.stderr


def test_thinned_rows_are_an_estimate(ask):
    """While the governor thins, a missing hand-off is not 0, and the answer names the trackers."""
    ask.agent(-120_000, 300, sampled=3)
    ask.known()
    ask.span(trace_id(1), "s1")
    row = ask.one(trace_id(1))
    assert row["handoff_ms"] is None and "governor" in reasons(row) and "handoff" in row["sampled"]
    ask.handoff(190, 8, weight=4)
    ask.span(trace_id(2), "s2", at=200)
    assert (row := ask.one(trace_id(2)))["handoff_ms"] == 8 and row["weight"] == 4


def test_json_columns_and_another_table(tmp_path):
    """The collector's second form of attributes, in a separate database: the same answer; remembered by the next --apply."""
    with Store(tmp_path / "db") as store:
        ask = Answers(store)
        said = ask.command("explain", trace_id(1))
        assert said.returncode == 1 and "schema --apply" in said.stderr and said.stderr.count("\n") == 1, said.stderr
        store.ask("CREATE DATABASE spans")
        store.ask("CREATE TABLE spans.otel (Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, "
                  "SpanName String, SpanKind String, ServiceName String, ResourceAttributes JSON, SpanAttributes JSON, Duration UInt64) "
                  "ENGINE = MergeTree ORDER BY Timestamp", enable_json_type=1)
        assert "is left out: there is no table otel_traces" in ask.apply()
        ask.apply("--traces=spans.otel")
        ask.apply()
        ask.row("gc_pause", 10, 30)
        ask.span(trace_id(1), "s1", table="spans.otel")
        ask.span(trace_id(2), "s2", table="spans.otel", tid=8, resource={"host.name": "h1", "process.pid": 7})
        assert [row["gc_ms"] for row in ask.each(trace_id(1), trace_id(2))] == [30, 30]


def test_hostile_names(ask):
    """Names in spans and rows cannot control a terminal."""
    ask.row("gc_pause", 10, 30, tid=9, thread_name="\x1b]0;owned\x07", py_stack=["f\x1b[2J (a.py:1)"])
    ask.span(trace_id(1), "s1")
    ask.store.ask(f"INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, SpanKind) "
                  f"VALUES (fromUnixTimestamp64Micro({ask.us(0)}), '{trace_id(1)}', 's2', 'x\\x1b[31m', 'Internal')")
    done = ask.command("explain", trace_id(1))
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\x07" not in done.stdout and "gc generation" in done.stdout


ODD = ["it's", 'a "b"', "back\\slash", "\\N", "\\'", "tab\tline\nreturn\rbell\x07", "{trace_id:String}", "$x$ -- /* ", "(1, 'x'), [2]", "", "\u00fc\u4e2d"]


def same_in_explain(ask, trace):
    """The view's rows of a trace, which `explain` has, too."""
    rows = ask.view(trace, after=10_000)
    said = {span["span_id"]: span["request"] for span in ask.explain(trace) if "request" in span}
    assert sorted(said) == sorted(row["span_id"] for row in rows)
    for row in rows:
        assert rounded(row) == rounded({key: said[row["span_id"]][key] for key in row}), row
    return rows


def test_odd_names_from_one_question_to_the_next(ask):
    """`explain` asks the view piece by piece: names go from each answer into the next question unchanged."""
    for i, odd in enumerate(ODD):
        ask.row("gc_pause", 10, 30 + i, pid=100 + i, tid=9, host=odd or "h1", container_id=odd)
        ask.handoff(-5, 4, pid=100 + i, tid=8, host=odd or "h1", container_id=odd)
        ask.insert("otel_traces", {
            "Timestamp": ask.moment(0), "TraceId": trace_id(1), "SpanId": f"s{i}", "SpanKind": "Server", "SpanName": odd, "ServiceName": odd,
            "ResourceAttributes": {"host.name": odd or "h1", "container.id": odd}, "SpanAttributes": {"process.pid": str(100 + i), "thread.id": "8"},
            "Duration": 100_000_000})
    # neither a NUL nor bytes that are no UTF-8 can be written as JSON
    ask.store.ask("INSERT INTO ebpf_gc_pause (host, pid, tid, start_time, end_time) SELECT unhex('00FF27'), 99, 9, "
                  f"fromUnixTimestamp64Micro({ask.us(10)}), fromUnixTimestamp64Micro({ask.us(60)})")
    ask.store.ask("INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanKind, ResourceAttributes, SpanAttributes, Duration) SELECT "
                  f"fromUnixTimestamp64Micro({ask.us(0)}), '{trace_id(2)}', 'bytes', 'Server', map('host.name', unhex('00FF27')), "
                  "map('process.pid', '99', 'thread.id', '8'), 100000000")
    found = {row["span_id"]: row for row in same_in_explain(ask, trace_id(1))}
    assert {key: (row["span_name"], row["service"], row["container_id"], row["gc_ms"], row["handoff_ms"]) for key, row in found.items()} == {
        f"s{i}": (odd, odd, odd, 30 + i, 4) for i, odd in enumerate(ODD)}
    assert [span["request"]["gc_ms"] for span in ask.explain(trace_id(2))] == [50]


@pytest.mark.parametrize("spans,length", [(40, 10), (400, 10), (3, 100_000)])
def test_many_spans_and_long_names(ask, spans, length):
    """Pieces that are too long for a question's literals."""
    ask.store.ask(f"""INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanKind, SpanName, ResourceAttributes, SpanAttributes, Duration)
        SELECT fromUnixTimestamp64Micro({ask.us(0)} + 10000 * number), '{trace_id(1)}', concat('s', toString(number)), 'Server', repeat('n', {length}),
        map('host.name', 'h1'), map('process.pid', '7', 'thread.id', '8'), 9000000 FROM numbers({spans})""")
    ask.store.ask(f"""INSERT INTO ebpf_gc_pause (host, pid, tid, start_time, end_time) SELECT 'h1', 7, 9, fromUnixTimestamp64Micro(
        {ask.us(0)} + 10000 * number + 1000) AS begun, begun + toIntervalMicrosecond(1000 + number) FROM numbers({spans})""")
    rows = same_in_explain(ask, trace_id(1))
    assert [round(row["gc_ms"] * 1000) for row in rows] == [1000 + i for i in range(spans)]


def test_a_trace_of_more_spans_than_are_shown(ask):
    """A sentence tells of spans left out; a trace of exactly the limit has no such sentence."""
    for n, spans in (1, 1000), (2, 1001):
        ask.store.ask(f"INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, SpanKind) SELECT fromUnixTimestamp64Micro("
                      f"{ask.us(0)} + number), '{trace_id(n)}', toString(number), 'x', 'Internal' FROM numbers({spans})")
        done = ask.command("explain", "--json", trace_id(n))
        said = json.loads(done.stdout)
        assert (len(said["spans"]), said["cut"], "more than 1000 spans" in done.stderr) == (1000, n == 2, n == 2), done.stderr
