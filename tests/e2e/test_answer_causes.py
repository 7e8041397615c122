# SPDX-License-Identifier: Apache-2.0
"""Causes and remedies of `underspan explain`: known rows of ebpf_request and of related tables; a cause in words only where rows show it."""
import json

import pytest

from agent import NO_ENGINE, plain_build
from answers import LEDGER_PARTS, answer, ask, causes, shared, text  # noqa: F401: fixtures

pytestmark = [plain_build(NO_ENGINE), pytest.mark.engine]


def test_threads_missing(ask):
    """All threads had requests during the wait; the text lists them, equal requests in one line. busy_threads is of the
    moment when the request is read: the request's thread is free then, so busy_threads is never all threads."""
    for i in range(8):
        ask.request(0, {"sleep": 950}, request_id=100 + i, tid=10 + i, path="/slow" if i < 6 else "/report")
    ask.request(10, {"queue": 940, "cpu": 20}, tid=10, busy_threads=7, queue_depth=3)
    [cause] = causes(ask).values()
    assert (cause["cause"], cause["ms"]) == ("threads_missing", 940) and "--threads" in cause["fix"]
    assert cause["said"].endswith("all 8 threads that serve requests in its process were busy with other requests (100 % of that time), "
                                  "longest with GET /slow (6 requests, 5640.0 ms)")
    [request] = answer(ask, "77")["requests"]
    assert [(m["path"], m["requests"], m["threads"], m["held_ms"], m["longest_ms"]) for m in request["meanwhile"]] == [
        ("/slow", 6, 6, 6 * 940, 950), ("/report", 2, 2, 2 * 940, 950)]
    said = text(ask, "77")
    assert "the 8 threads of its process that serve requests were busy with others 100 % of the time; 3 requests waited at its arrival" in said
    assert "5640.0 6 950.0 GET /slow" in said


def test_requests_at_the_same_time(ask):
    """Of a request that hardly waited to be read, the requests beside all of it: those that had its lock, not those of the first 2 ms."""
    ask.request(0, {"sleep": 250}, request_id=100, tid=10, path="/holder")
    ask.request(10, {"queue": 2, "lock": 240, "cpu": 5}, tid=11)
    [beside] = answer(ask, "77")["requests"][0]["meanwhile"]
    assert (beside["path"], beside["held_ms"]) == ("/holder", 240) and "had these requests at the same time" in text(ask, "77")
    ask.request(1000, {"sleep": 250}, request_id=101, tid=10, path="/holder")
    ask.request(1010, {"queue": 30, "lock": 210, "cpu": 5}, request_id=78, tid=11)
    [beside] = answer(ask, "78")["requests"][0]["meanwhile"]
    assert beside["held_ms"] == 30 and "had these requests while it waited" in text(ask, "78")


def test_the_pool_was_busy_with(ask):
    """Requests of pool threads, not those of the loop that only wait."""
    ask.request(0, {"sleep": 900}, request_id=100, tid=20, link="wake", path="/export")
    ask.request(0, {"sleep": 300}, request_id=101, tid=21, link="write", path="/short")
    ask.request(0, {"sleep": 950}, request_id=102, tid=7, link="same", path="/events")
    ask.request(10, {"pool_wait": 890, "cpu": 20}, tid=20, link="wake")
    [cause] = causes(ask).values()
    assert cause["cause"] == "pool_missing"
    assert cause["said"].endswith("no thread of the server's pool was free, longest with GET /export (1 request, 890.0 ms)")


def test_threads_are_not_missing(ask):
    """One of two threads was free, or both were for most of the wait: no remedy is invented."""
    ask.request(0, {"sleep": 900}, request_id=100, tid=10)
    ask.request(-500, {"sleep": 600}, request_id=101, tid=11)
    ask.request(10, {"queue": 890, "cpu": 20}, tid=11, busy_threads=1)
    [cause] = causes(ask).values()
    assert (cause["cause"], cause["fix"]) == ("queue", "")
    assert cause["said"].endswith("although the 2 threads that serve requests in its process were busy with other requests only 55 % of that time: the cause is not known")
    # requests during the wait in the accept queue are no reason for the wait in the second queue, nor vice
    # versa
    ask.request(3000, {"sleep": 500}, request_id=102, tid=10, pid=17)
    ask.request(3000, {"accept_queue": 480, "queue": 400, "cpu": 20}, request_id=78, tid=10, pid=17)
    found = causes(ask, "78")
    assert found["workers_missing"]["said"].endswith("the only thread that serves requests in its process was busy with other requests (100 % of that time), longest with GET /orders (1 request, 500.0 ms)")
    assert "only 5 % of that time: the cause is not known" in found["queue"]["said"]


def test_threads_missing_by_sampled_requests(ask):
    """Short sampled requests: the weights tell how busy all threads together were."""
    for i in range(10):
        ask.request(10 * i, {"cpu": 1}, request_id=100 + i, tid=10 + i % 2, weight=18)
    ask.request(0, {"queue": 100, "cpu": 1}, tid=10)
    [cause] = causes(ask).values()
    assert cause["cause"] == "threads_missing" and "all 2 threads that serve requests in its process were busy with other requests (90 % of that time)" in cause["said"]


@pytest.mark.parametrize("threads, weight, alone", [(3, 1, True), (2, 1, False), (3, 18, False), (100, 18, True)])
def test_a_thread_per_connection(ask, threads, weight, alone):
    """Each thread had one connection, as far as rows tell: those of sampled requests tell little."""
    for i in range(threads - 1):
        ask.request(-5000 - 10 * i, {"cpu": 1}, request_id=100 + i, tid=10 + i, weight=weight)
    ask.request(0, {"queue": 100, "cpu": 1}, tid=9)
    [cause] = causes(ask).values()
    assert cause["cause"] == "queue" and ("served one connection only" in cause["said"]) == alone and cause["fix"] == "", cause


def test_the_thread_that_accepts_waited_for_the_gil(ask):
    """gthread's first thread accepts and hands over: a wait of the thread for the GIL is the request's wait in both
    queues."""
    ask.row("gil_wait", 20, 250, tid=7, thread_name="MainThread", holder_tid=9, holder_thread_name="pdf", holder_py_stack=["render (/srv/app/pdf/draw.py:7)"])
    ask.request(-2000, {"cpu": 5}, request_id=76, tid=9)
    ask.request(10, {"accept_queue": 180, "queue": 90, "cpu": 5})
    accept, queue = answer(ask, "77")["requests"][0]["causes"]
    assert [c["cause"] for c in (accept, queue)] == ["gil_before"] * 2 and "processes" in accept["fix"]
    assert accept["said"] == ("the connection waited in the listener's accept queue: thread MainThread, which accepts connections, waited for the GIL 170.0 ms "
                              "of that; the longest holder was thread pdf, in render (pdf/draw.py:7)")
    assert queue["said"].startswith("the request had arrived, and no thread read it: thread MainThread, which accepts connections, waited for the GIL 80.0 ms of that")
    assert "waited for the GIL 80.0 ms of that" in text(ask, "77")
    # for less than half of the wait; no remedy for one process with one thread is given to threads
    ask.request(1000, {"accept_queue": 180, "cpu": 5}, request_id=78)
    ask.row("gil_wait", 1000, 80, tid=7, holder_tid=9)
    [cause] = causes(ask, "78").values()
    assert cause["cause"] == "accept_queue" and cause["said"].endswith("of that time: the cause is not known") and cause["fix"] == ""
    # of the thread that was to read it, after its request before
    ask.request(3000, {"cpu": 5}, request_id=80, pid=18, tid=8)
    ask.row("gil_wait", 3020, 170, pid=18, thread_name="worker-1", holder_tid=9, holder_thread_name="pdf", holder_py_stack=["render (/srv/app/pdf/draw.py:7)"])
    ask.row("gil_wait", 3030, 80, pid=18, tid=18, thread_name="MainThread", holder_tid=9)  # at the same time, not more
    ask.request(3010, {"queue": 180, "cpu": 5}, request_id=81, pid=18, tid=8)
    assert causes(ask, "81")["gil_before"]["said"] == ("the request had arrived, and no thread read it: thread worker-1, which was to read it, waited for the GIL "
                                                       "170.0 ms of that; the longest holder was thread pdf, in render (pdf/draw.py:7)")
    # of a thread that serves requests: not a wait of the accepting thread
    ask.row("gil_wait", 2000, 180, tid=7, pid=17, holder_tid=9)
    ask.request(1900, {"cpu": 10, "gil": 280}, request_id=75, pid=17, tid=7)
    ask.request(2000, {"accept_queue": 180, "cpu": 5}, request_id=79, pid=17, tid=7)
    assert "one request at a time accepts only" in causes(ask, "79")["workers_missing"]["fix"]


def test_the_thread_that_accepts_was_asleep(ask):
    """A server of one thread that waits for the next bytes of an idle client; said of no thread if several accept, nor of less than half
    of the wait, nor where the threads had other requests."""
    recv = ["SocketIO.readinto (/usr/lib/python3.11/socket.py:706)", "handle (/srv/app/shop/server.py:9)"]
    ask.row("tcp_accept", -1000, 5, tid=8, kind="accepted")
    ask.row("off_cpu", -400, 590, tid=8, cause="net", thread_name="MainThread", py_stack=recv)
    ask.request(10, {"accept_queue": 180, "cpu": 5}, tid=8)
    [cause] = causes(ask).values()
    assert cause["cause"] == "thread_asleep" and "a proxy in front that takes whole requests" in cause["fix"], cause
    assert cause["said"] == ("the connection waited in the listener's accept queue: thread MainThread, which accepts connections, waited for the network, "
                             "in SocketIO.readinto (python3.11/socket.py:706), called from handle (shop/server.py:9), 180.0 ms of that")
    assert "MainThread, which accepts connections, waited for the network" in text(ask, "77")
    for number, (more, state, said) in enumerate([({"idle": 1}, "S", None), ({"cause": "gil"}, "S", None), ({"cause": "lock"}, "S", "waited for a lock"),
                                                  ({"cause": "sleep"}, "T", "was stopped by a signal or a debugger")]):
        at, ids = 10_000 * (number + 1), {"pid": 20 + number, "tid": 8}
        ask.row("tcp_accept", at - 1000, 5, kind="accepted", **ids)
        ask.row("off_cpu", at + 60, 130, state=state, **{**ids, "cause": "net", **more})
        ask.request(at + 10, {"queue": 180, "cpu": 5}, request_id=100 + number, **ids)
        [cause] = causes(ask, str(100 + number)).values()
        assert (cause["cause"] == "thread_asleep", said or "the cause is not known") == (bool(said), said or cause["said"][-len("the cause is not known"):]), cause
        assert not said or f"{said}" in cause["said"] and cause["said"].endswith("130.0 ms of that"), cause
    # two waits of different causes are not one that took their time
    ask.row("tcp_accept", 89_000, 5, tid=8, pid=33, kind="accepted")
    ask.row("off_cpu", 90_010, 60, tid=8, pid=33, cause="net")
    ask.row("off_cpu", 90_080, 100, tid=8, pid=33, cause="lock")
    ask.request(90_000, {"accept_queue": 190, "cpu": 5}, request_id=114, tid=8, pid=33)
    assert causes(ask, "114")["thread_asleep"]["said"].endswith(", which accepts connections, waited for a lock, 100.0 ms of that")
    # half of the wait is not enough; two threads accept; and requests are the better answer
    ask.row("tcp_accept", 59_000, 5, tid=8, pid=30, kind="accepted")
    ask.row("off_cpu", 60_000, 80, tid=8, pid=30, cause="net")
    ask.request(60_000, {"accept_queue": 180, "cpu": 5}, request_id=110, tid=8, pid=30)
    assert list(causes(ask, "110")) == ["accept_queue"]
    for tid in 8, 9:
        ask.row("tcp_accept", 69_000, 5, tid=tid, pid=31, kind="accepted")
    ask.row("off_cpu", 70_000, 180, tid=8, pid=31, cause="net")
    ask.request(70_000, {"accept_queue": 180, "cpu": 5}, request_id=111, tid=8, pid=31)
    assert list(causes(ask, "111")) == ["accept_queue"]
    ask.row("tcp_accept", 79_000, 5, tid=8, pid=32, kind="accepted")
    ask.row("off_cpu", 80_000, 180, tid=8, pid=32, cause="net")
    ask.request(79_900, {"net": 280}, request_id=113, tid=8, pid=32)
    ask.request(80_000, {"accept_queue": 180, "cpu": 5}, request_id=112, tid=8, pid=32)
    assert list(causes(ask, "112")) == ["workers_missing"]


def test_a_collection_of_another_thread(ask):
    ask.row("gc_pause", 30, 160, tid=9, generation=2, long_lived=1_234_000, collected=567, thread_name="worker-9",
            py_stack=["load (/srv/app/shop/cache.py:12)"])
    ask.request(10, {"cpu": 40, "gc_sibling": 160})
    found = causes(ask)
    assert list(found) == ["gc_sibling", "cpu"] and "gc.freeze()" in found["gc_sibling"]["fix"]
    assert "generation 2 over 1234567 objects, thread worker-9, triggered by load (shop/cache.py:12)" in found["gc_sibling"]["said"]


def test_waits_too_short_for_rows_have_the_place_of_the_sums(ask):
    """Two hundred queries of a millisecond: no wait has a row, and the thread's sums say where it waits so."""
    query = ["recv (/usr/lib/python3/dist-packages/psycopg2/pq.py:30)", "orders (/srv/app/shop/views.py:41)"]
    for off, stack in (700, query), (200, ["ping (/srv/app/shop/health.py:3)"]), (100, []):
        ask.row("off_cpu_profile", -4000, 10_000, tid=8, cause="net", off_ns=off * 1_000_000, py_stack=stack)
    ask.row("off_cpu_profile", -4000, 10_000, tid=8, cause="net", idle=1, off_ns=9_000_000_000, py_stack=["accept (/srv/app/shop/serve.py:1)"])
    ask.row("off_cpu_profile", -4000, 10_000, tid=9, cause="net", off_ns=9_000_000_000, py_stack=["other (/srv/app/shop/other.py:1)"])
    ask.row("off_cpu_profile", -24_000, 10_000, tid=8, cause="net", off_ns=9_000_000_000, py_stack=["earlier (/srv/app/shop/earlier.py:1)"])
    ask.request(10, {"net": 200, "cpu": 30, "sleep": 90}, net_peer_ip="::ffff:10.0.0.5", net_peer_port=5432, net_peer_ns=190_000_000)
    # of 1000 ms in 10 s, 300 are not in recv(): with 200 or 450 ms, most of what requests of this path waited may be among these
    assert causes(ask)["net"]["said"].endswith("port 5432")
    ask.request(1000, {"net": 250}, request_id=78)
    assert causes(ask)["net"]["said"].endswith("port 5432")
    ask.request(2000, {"net": 150}, request_id=79, path="/other")
    ask.request(2500, {"net": 50}, request_id=80, tid=9)
    assert causes(ask)["net"]["said"].endswith("port 5432")
    ask.request(3000, {"net": 50}, request_id=81, weight=5)
    found = causes(ask)
    assert "in waits without a row that names the code; of all such time of its thread in those 10 s, 70 % in recv (psycopg2/pq.py:30), called from orders (shop/views.py:41)" \
        in found["net"]["said"], found
    assert found["sleep"]["said"] == "the code slept", found  # of which the sums know nothing
    # a wait with a row is told by its row
    ask.row("off_cpu", 50, 150, tid=8, cause="net", syscall="recvfrom", py_stack=["fetch (/srv/app/shop/fetch.py:9)"])
    assert "150.0 ms of it in fetch (shop/fetch.py:9)" in causes(ask)["net"]["said"]


@pytest.mark.parametrize("model", ["thread", "loop"])
def test_a_collection_before_the_read(ask, model):
    """It stops the thread that would accept or read the request, whether or not a wait for the GIL is known."""
    ask.row("gc_pause", 20, 260, tid=9, generation=2, thread_name="worker-9", py_stack=["load (/srv/app/shop/cache.py:12)"])
    ask.row("loop_stall", 20, 262, loop="asyncio", gil_ns=260_000_000, py_stack=["handle (/srv/app/shop/api.py:12)"])
    ask.request(10, {"accept_queue": 100, "queue": 180, "cpu": 5}, model=model)
    accept, queue = answer(ask, "77")["requests"][0]["causes"][::-1]
    for cause, waited, ms in (accept, "the connection waited in the listener's accept queue", 90), (queue, "the request had arrived, and", 170):
        assert cause["cause"] == "gc_before" and cause["said"].startswith(waited) and "gc.freeze()" in cause["fix"], cause
        assert f"stopped the process {ms}.0 ms of that; the longest: generation 2, thread worker-9, triggered by load (shop/cache.py:12)" in cause["said"]


def test_the_gil_held_by(ask):
    holders = [{"tid": 9, "ns": 110_000_000, "thread_name": "pdf"}, {"tid": 10, "ns": 10_000_000, "thread_name": "other"}]
    ask.row("gil_wait", 20, 120, holder_tid=9, holder_thread_name="pdf", holder_py_stack=["render (/srv/app/pdf/draw.py:7)"], holders=holders)
    ask.request(10, {"cpu": 12, "gil": 120})
    [cause, *_] = causes(ask).values()
    assert cause["cause"] == "gil" and "thread pdf longest (110.0 ms), in render (pdf/draw.py:7)" in cause["said"] and "processes" in cause["fix"]
    # without a row, no holder is named and no remedy is given
    ask.request(900, {"cpu": 12, "gil": 120}, request_id=79)
    assert causes(ask, "79")["gil"]["said"] == "other threads held the GIL; the holders are not known" and causes(ask, "79")["gil"]["fix"] == ""


def test_a_call_that_blocks_a_loop(ask):
    """One request sleeps in a coroutine, with the line; a second request is unread during the sleep."""
    ask.row("off_cpu", 20, 300, cause="sleep", py_stack=["wait_for_it (/srv/app/shop/api.py:33)"])
    ask.request(10, {"sleep": 300, "cpu": 12}, model="loop")
    found = causes(ask)["loop_blocked"]
    assert "blocked the event loop's thread (a sleep), in wait_for_it (shop/api.py:33)" in found["said"] and "asyncio.to_thread" in found["fix"]
    # a single request that found the loop idle does not show the kind of thread; the second request does
    ask.request(-400, {"sleep": 60, "cpu": 1}, request_id=76)
    ask.row("off_cpu", -400, 60, cause="sleep", py_stack=["wait_for_it (/srv/app/shop/api.py:33)"])
    assert "blocked the event loop's thread (a sleep)" in causes(ask, "76")["loop_blocked"]["said"] and "event loop 8" in text(ask, "76")
    ask.request(400, {"sleep": 60, "cpu": 1}, request_id=75, tid=9)
    assert list(causes(ask, "75")) == ["sleep"]
    # a handler that ran a loop of its own for a while does not make its thread one
    ask.request(2000, {"sleep": 60, "cpu": 1}, request_id=81, tid=20)
    ask.request(2200, {"await": 60, "cpu": 1}, request_id=82, tid=20, model="loop")
    ask.request(2400, {"sleep": 60, "cpu": 1}, request_id=83, tid=20)
    assert [list(causes(ask, word)) for word in ("81", "82", "83")] == [["sleep"], ["await"], ["sleep"]]
    # one that had several requests at once is a loop, though requests on new connections look like a thread's (tornado)
    ask.request(3000, {"sleep": 60, "cpu": 1}, request_id=84, tid=21)
    ask.request(3200, {"await": 60, "cpu": 1}, request_id=85, tid=21, model="loop", open_requests=2)
    ask.request(3400, {"sleep": 60, "cpu": 1}, request_id=86, tid=21)
    assert [list(causes(ask, word)) for word in ("84", "85", "86")] == [["loop_blocked"], ["await"], ["loop_blocked"]]
    ask.request(15, {"queue": 290, "cpu": 2}, request_id=78, model="loop")
    assert "the event loop did not read it" in causes(ask, "78")["loop_blocked"]["said"]
    assert "event loop 8" in text(ask, "78")
    ask.request(15, {"await": 290, "loop_busy": 60}, request_id=79, model="loop", open_requests=5)
    assert list(causes(ask, "79")) == ["await", "loop_blocked"] and "while 5 requests were open, this one among them" in causes(ask, "79")["loop_blocked"]["said"]


def test_the_line_that_kept_the_loop(ask):
    """Of the stalls of the request's loop, the longest: before the read, and after. Stalls of a second loop are ignored."""
    def stall(at, ms, place, **more):
        ask.row("loop_stall", at, ms, loop="asyncio", sleep_ns=round(ms * 1e6), py_stack=[place, "main (/srv/app/shop/api.py:1)"], **more)
    stall(0, 250, "report (/srv/app/shop/api.py:12)")
    stall(260, 90, "resize (/srv/app/shop/images.py:7)")
    stall(10, 900, "not_its (/srv/app/shop/other.py:5)", tid=9)
    ask.request(15, {"queue": 290, "cpu": 2, "loop_busy": 50}, model="loop")
    [request] = answer(ask, "77")["requests"]
    fixes = [cause["fix"] for cause in request["causes"]]
    assert [(s["cause"], s["place"]) for s in request["stalls"]] == [("sleep", "report (shop/api.py:12)"), ("sleep", "resize (shop/images.py:7)")]
    assert [cause["ms"] for cause in request["causes"]] == [290, 50]
    assert fixes[0].startswith("in report (shop/api.py:12), which kept the event loop for 250.0 ms: use await")
    assert fixes[1].startswith("in resize (shop/images.py:7), which kept the event loop for 90.0 ms: use await")
    said = text(ask, "77")
    assert "event loop did not poll: sleep, in report (shop/api.py:12)" in said and "fix: in report (shop/api.py:12), which kept" in said and "not_its" not in said


def test_the_applications_line(ask):
    """Where the innermost function is a library's, the application's line that called it is named, too; the holders of a lock by place
    may have been called from several lines."""
    site = "/srv/venv/lib/python3.11/site-packages"
    stack = ["Condition.wait (/usr/lib/python3.11/threading.py:324)", f"QueuePool._do_get ({site}/sqlalchemy/pool/impl.py:124)",
             "orders (/srv/app/shop/api.py:31)", "serve (/srv/app/shop/main.py:5)", "<module> (/usr/bin/gunicorn:8)"]
    ask.row("off_cpu", 20, 300, cause="lock", py_stack=stack, waker_tid=30, waker_thread_name="worker-3")
    ask.request(10, {"lock": 300, "cpu": 12})
    lock = causes(ask)["lock"]
    assert lock["said"] == ("the thread waited for another thread (a condition, an event, a queue or a future), in Condition.wait (python3.11/threading.py:324), "
                            "called from orders (shop/api.py:31); thread worker-3 ended the wait")
    assert lock["fix"].startswith("a larger pool (of connections: SQLAlchemy")
    # nobody ended it: a pool gave up; an event tells nothing
    ask.row("off_cpu", 1020, 300, cause="lock", py_stack=stack)
    ask.request(1010, {"lock": 300, "cpu": 12}, request_id=78)
    ask.row("off_cpu", 1420, 300, cause="lock", py_stack=[stack[0], "Event.wait (/usr/lib/python3.11/threading.py:622)", *stack[2:]])
    ask.request(1410, {"lock": 300, "cpu": 12}, request_id=83)
    for request, fix in ("78", lock["fix"]), ("83", ""):
        given_up = causes(ask, request)["lock"]
        assert given_up["said"].endswith("no thread is known to have ended it: a time-out ends such a wait, too") and given_up["fix"] == fix
    ask.row("off_cpu", 1820, 300, cause="lock", py_stack=[stack[0], "Event.wait (/usr/lib/python3.11/threading.py:622)", *stack[2:]], waker_tid=30)
    ask.request(1810, {"lock": 300, "cpu": 12}, request_id=84)
    event = causes(ask, "84")["lock"]
    assert event["said"].startswith("the thread waited for an event that another thread sets, in Condition.wait (python3.11/threading.py:324), called from orders")
    assert event["fix"] == "less time until another thread sets the event"
    # no row: no evidence for a remedy
    ask.request(2010, {"lock": 300, "cpu": 12}, request_id=79)
    assert causes(ask, "79")["lock"]["said"] == "the thread waited for a lock or for another thread" and causes(ask, "79")["lock"]["fix"] == ""
    # a lock without an address, taken in two lines of the application
    taken = [["Handler.acquire (/usr/lib/python3.11/logging/__init__.py:927)", f"{line} (/srv/app/shop/api.py:{i})"] for i, line in enumerate(("pay", "refund"))]
    ask.row("off_cpu", 3020, 300, cause="lock", py_stack=taken[0], waker_tid=30, waker_thread_name="worker-3")
    ask.row("off_cpu", 3010, 110, cause="lock", py_stack=taken[1], tid=30, thread_name="worker-3", waker_tid=31, waker_thread_name="worker-4")
    ask.row("off_cpu", 3130, 180, cause="disk", py_stack=["emit (/srv/app/shop/log.py:3)"], tid=30)
    ask.request(3010, {"lock": 300, "cpu": 12}, request_id=80)
    lock = causes(ask, "80")["lock"]
    assert "in Handler.acquire (logging/__init__.py:927), called from pay (shop/api.py:0); 2 threads had it in turn, longest worker-3 (200.0 ms, 180.0 of it disk, in emit (shop/log.py:3))" in lock["said"]
    assert lock["fix"].startswith("a handler that does not write in the request (logging.handlers.QueueHandler")
    ask.row("off_cpu", 3420, 300, cause="lock", py_stack=["pay (/srv/app/shop/api.py:0)"], waker_tid=30)
    ask.request(3410, {"lock": 300, "cpu": 12}, request_id=85)
    assert "holding that lock" in causes(ask, "85")["lock"]["fix"]
    # the line that called json.dumps() and held the GIL; code that only libraries and scripts have called
    ask.row("gil_wait", 4020, 120, holder_tid=9, holder_thread_name="pdf", holders=[{"tid": 9, "ns": 110_000_000, "thread_name": "pdf"}],
            holder_py_stack=["JSONEncoder.iterencode (/usr/lib/python3.11/json/encoder.py:258)", "export (/srv/app/shop/api.py:47)"])
    ask.row("loop_stall", 4200, 120, loop="asyncio", net_ns=120_000_000, py_stack=["SocketIO.readinto (/usr/lib/python3.11/socket.py:706)", *stack[-1:]])
    ask.request(4010, {"cpu": 12, "gil": 120}, request_id=81)
    assert causes(ask, "81")["gil"]["said"].endswith("in JSONEncoder.iterencode (json/encoder.py:258), called from export (shop/api.py:47)")
    ask.request(4190, {"queue": 120, "cpu": 5}, request_id=82, model="loop")
    assert causes(ask, "82")["loop_blocked"]["fix"].startswith("in SocketIO.readinto (python3.11/socket.py:706), which kept the event loop for 120.0 ms")


def test_the_remedy_of_a_loop_is_of_its_kind_and_of_the_part(ask):
    """gevent's code has no await. Code that slept is not named for the time in which other code computed."""
    def request(number, loop, parts, **stall):
        at = 10 + 1000 * number
        ask.row("loop_stall", at, 150, loop=loop, py_stack=["read (/srv/app/shop/db.py:4)"], **stall)
        ask.request(at, parts, model="loop", request_id=100 + number)
        return [cause["fix"] for cause in answer(ask, str(100 + number))["requests"][0]["causes"]]
    slept = {"net_ns": 100_000_000, "cpu_ns": 50_000_000}
    named = "in read (shop/db.py:4), which kept the event loop for 150.0 ms: "
    net, cpu = request(0, "asyncio", {"net": 100, "cpu": 50}, **slept)
    assert net.startswith(named + "use await") and cpu.startswith("use await") and "asyncio.to_thread" in cpu
    net, cpu = request(1, "gevent", {"net": 100, "cpu": 50}, **slept)
    assert net.startswith(named + "use calls that gevent makes cooperative") and cpu.startswith("use calls that gevent") and "await" not in net + cpu
    net, _ = request(2, "trio", {"net": 100, "cpu": 50}, **slept)
    assert "trio.to_thread.run_sync" in net and "asyncio" not in net
    # without a stall it may be any loop: eventlet's and twisted's have none
    ask.request(6010, {"net": 100, "child": 50}, model="loop", request_id=106)
    for cause in answer(ask, "106")["requests"][0]["causes"]:
        assert cause["fix"].startswith("use the loop's ") and all(name in cause["fix"] for name in ("asyncio", "twisted", "gevent", "eventlet")), cause
    # a thread without a CPU was computing; the code of any stall kept the loop from reading
    net, cpu = request(3, "asyncio", {"net": 20, "cpu": 50}, runq_ns=100_000_000, cpu_ns=50_000_000)[::-1]
    assert cpu.startswith(named) and net.startswith("use await")
    assert request(4, "gevent", {"queue": 100, "cpu": 2}, **slept)[0].startswith(named + "use calls that gevent")


def test_a_loop_that_waited_for_a_child(ask):
    """A stall has no part for it: the code tells, or the thread's waits meanwhile. A remedy of the loop's kind."""
    popen = ["Popen._try_wait (/usr/lib/python3.11/subprocess.py:1955)", "Popen._wait (/usr/lib/python3.11/subprocess.py:1997)", "thumb (/srv/app/shop/images.py:7)"]
    poll = ["_PollLikeSelector.select (/usr/lib/python3.11/selectors.py:415)", "Popen._communicate (/usr/lib/python3.11/subprocess.py:2059)", *popen[2:]]
    joined = ["Popen.poll (/usr/lib/python3.11/multiprocessing/popen_fork.py:27)", *popen[2:]]
    system = ["thumb (/srv/app/shop/images.py:9)"]

    def request(number, loop, stack, parts, waits=(), part="child"):
        at = 10 + 1000 * number
        ask.row("loop_stall", at - 5, 300, loop=loop, other_ns=290_000_000, cpu_ns=10_000_000, py_stack=stack)
        for begin, ms, cause in waits:
            ask.row("off_cpu", at + begin, ms, cause=cause, py_stack=stack)
        ask.request(at, parts, model="loop", request_id=100 + number)
        [request] = answer(ask, str(100 + number))["requests"]
        return [s["cause"] for s in request["stalls"]], next(c for c in request["causes"] if c["ms"] == 280)
    child, pipe, polled, other = {"child": 280}, {"pipe": 280}, {"await": 280}, {"other": 280}
    stalls, cause = request(0, "asyncio", popen, child)
    assert stalls == ["child"] and cause["cause"] == "loop_blocked", (stalls, cause)
    assert cause["fix"].startswith("in Popen._try_wait (python3.11/subprocess.py:1955), called from thumb (shop/images.py:7), which kept the event loop for 300.0 ms: "
                                   "use await asyncio.create_subprocess_exec"), cause
    assert request(1, "trio", joined, child)[1]["fix"].count("trio.run_process") == 1
    stalls, cause = request(2, "gevent", poll, pipe, [(0, 270, "pipe")])
    assert stalls == ["child"] and "(a pipe from or to a child process), in _PollLikeSelector.select" in cause["said"] and "gevent.subprocess" in cause["fix"], cause
    # os.system() has no frame: by the thread's waits
    assert request(3, "asyncio", system, child)[0] == ["other"]
    stalls, cause = request(4, "asyncio", system, child, [(-5, 120, "child"), (116, 60, "sleep"), (180, 100, "child")])
    assert stalls == ["child"] and "in thumb (shop/images.py:9), which kept the event loop for 300.0 ms: use await asyncio.create_subprocess_exec" in cause["fix"], cause
    # not most of it
    assert request(5, "asyncio", system, child, [(0, 100, "child")])[0] == ["other"]
    # a request that waited for the loop meanwhile
    stalls, cause = request(6, "asyncio", popen, {"queue": 280})
    assert "the event loop did not read it" in cause["said"] and "create_subprocess_exec" in cause["fix"], cause
    # an epoll of a client's own, which the ledger takes for the loop's; select() is known
    for number, parts in (7, polled), (8, other):
        stalls, cause = request(number, "asyncio", system, parts, [(0, 270, "poll")])
        assert stalls == ["poll"] and cause["cause"] == "loop_blocked" and "descriptors that are not the loop's" in cause["said"], cause
        assert cause["fix"].startswith("in thumb (shop/images.py:9), which kept") and "asyncio.to_thread" in cause["fix"], cause
    # a wait of the loop beside a stall of another part, and one that is longer than all stalls
    ask.row("loop_stall", 9010, 100, loop="asyncio", other_ns=100_000_000, py_stack=system)
    ask.request(9010, {"other": 100, "await": 280}, model="loop", request_id=109)
    assert {"await", "loop_blocked"} == set(causes(ask, "109")), causes(ask, "109")
    ask.row("loop_stall", 10_010, 100, loop="asyncio", other_ns=100_000_000, py_stack=system)
    ask.request(10_010, {"await": 380}, model="loop", request_id=110)
    assert list(causes(ask, "110")) == ["await"]
    # the other request of the loop had the stall
    ask.row("loop_stall", 11_010, 300, loop="asyncio", other_ns=300_000_000, py_stack=system)
    ask.request(11_010, {"loop_busy": 300, "await": 200}, model="loop", open_requests=2, request_id=111)
    assert list(causes(ask, "111")) == ["loop_blocked", "await"]


def test_a_stall_tells_the_code_rather_than_the_sums(ask):
    """The sums of a loop's thread are of all its requests."""
    ask.row("off_cpu_profile", -4000, 10_000, tid=8, cause="net", off_ns=900_000_000, py_stack=["other (/srv/app/shop/other.py:3)"])
    ask.row("loop_stall", 10, 250, loop="asyncio", net_ns=240_000_000, py_stack=["fetch (/srv/app/shop/fetch.py:9)"])
    ask.request(10, {"net": 240}, model="loop")
    blocked = causes(ask)["loop_blocked"]
    assert blocked["said"] == "a call in a coroutine blocked the event loop's thread (a socket)" and "in fetch (shop/fetch.py:9)" in blocked["fix"], blocked
    ask.request(1010, {"net": 240}, model="loop", request_id=78)
    assert "100 % in other (shop/other.py:3)" in causes(ask, "78")["loop_blocked"]["said"]


def test_a_wait_for_another_thread_is_told_as_such(ask):
    """By the functions of the standard library that the application called; a lock only where these take one."""
    threading, futures, queues = (f"/usr/lib/python3.11/{name}.py" for name in ("threading", "concurrent/futures/_base", "queue"))
    wait, code = f"Condition.wait ({threading}:320)", "pay (/srv/app/shop/api.py:0)"
    told = {"another thread's result (a future)": ([f"Future.result ({futures}:451)"], "more threads there (max_workers)", True),
            "an item of a queue": ([f"Queue.get ({queues}:171)"], "another thread puts the item", False),
            "room in a full queue": ([f"Queue.put ({queues}:149)"], "more threads that take items", True),
            "a semaphore": ([f"Semaphore.acquire ({threading}:503)"], "a semaphore with a higher count", True),
            "other threads at a barrier": ([f"Barrier._wait ({threading}:725)", f"Barrier.wait ({threading}:690)"], "comes last to the barrier", False),
            "the start of a new thread": ([f"Event.wait ({threading}:622)", f"Thread.start ({threading}:962)"], "a thread of a pool that exists", False),
            "a condition of which another thread tells": ([], "calls notify()", False)}
    for number, (words, (frames, fix, always)) in enumerate(told.items()):
        for waker in 0, 30:
            at, request = 10 + 2000 * number + 1000 * (waker > 0), 100 + 2 * number + (waker > 0)
            ask.row("off_cpu", at, 300, cause="lock", syscall="futex", py_stack=[wait, *frames, code], waker_tid=waker)
            ask.request(at, {"lock": 300, "cpu": 12}, request_id=request)
            lock = causes(ask, str(request))["lock"]
            assert lock["said"].startswith(f"the thread waited for {words}, in Condition.wait (python3.11/threading.py:320), called from pay (shop/api.py:0); "), lock
            assert (fix in lock["fix"]) == (always or waker > 0) == bool(lock["fix"]) and "lock" not in lock["said"] + lock["fix"], lock
            assert "".join(f"waited for {words}, in Condition.wait".split()) in "".join(text(ask, str(request)).split())
            assert [w["waited_for"] for w in answer(ask, str(request))["requests"][0]["waits"]] == [words]
    # a queue's own lock
    ask.row("off_cpu", 40_010, 300, cause="lock", syscall="futex", py_stack=[f"Condition.__enter__ ({threading}:273)", f"Queue.get ({queues}:164)", code], waker_tid=30)
    ask.request(40_010, {"lock": 300, "cpu": 12}, request_id=150)
    lock = causes(ask, "150")["lock"]
    assert lock["said"].startswith("the thread waited for a lock, in Condition.__enter__ (python3.11/threading.py:273), called from pay") and "holding that lock" in lock["fix"]
    # in C, and of a file; with two threads in turn it is a lock
    lock_of = {"cause": "lock", "py_stack": [code], "lock_address": 0x7f0011224470}
    ask.row("off_cpu", 50_010, 300, **lock_of, syscall="futex", waker_tid=30)
    ask.row("off_cpu", 60_010, 300, **lock_of, syscall="futex", waker_tid=30)
    ask.row("off_cpu", 59_990, 150, **lock_of, syscall="futex", tid=30, waker_tid=31)
    ask.row("off_cpu", 70_010, 300, cause="lock", py_stack=[code], syscall="flock", waker_tid=30)
    for number, words, fix in (151, "a lock or an item of a SimpleQueue, in pay", "if it waits in SimpleQueue.get()"), (152, "a lock, in pay", "do less while holding that lock"), \
            (153, "a lock of a file, in pay", "`lslocks`"):
        ask.request(50_010 + 10_000 * (number - 151), {"lock": 300, "cpu": 12}, request_id=number)
        lock = causes(ask, str(number))["lock"]
        assert lock["said"].startswith(f"the thread waited for {words} (shop/api.py:0)") and fix in lock["fix"], lock
        assert not any("waited_for" in w for w in answer(ask, str(number))["requests"][0]["waits"])


def test_a_thread_in_select(ask):
    ask.row("off_cpu", 10, 250, cause="poll", idle=1, py_stack=["poll (/srv/app/shop/kafka.py:3)"])
    ask.request(10, {"other": 260})
    assert causes(ask)["other"]["said"] == "the thread waited for one of several descriptors (select(), poll(), epoll_wait()), in poll (shop/kafka.py:3)"


def test_psycopg_3_waits_for_its_database_in_select(ask):
    psycopg = ["wait_select (/usr/lib/python3/dist-packages/psycopg/waiting.py:219)", "Cursor.execute (/usr/lib/python3/dist-packages/psycopg/cursor.py:9)"]
    for number, stack in enumerate((psycopg, ["poll (/srv/app/shop/kafka.py:3)"])):
        ask.row("off_cpu", 1000 * number + 10, 250, cause="poll", idle=1, py_stack=[*stack, "pay (/srv/app/shop/db.py:4)"])
        ask.request(1000 * number + 10, {"other": 260}, request_id=100 + number)
    assert "wait_select (psycopg/waiting.py:219), called from pay (shop/db.py:4)" in causes(ask, "100")["other"]["said"]
    assert [causes(ask, str(100 + i))["other"]["fix"][:38] for i in range(2)] == ["psycopg waits there for its database: ", ""]


def test_who_had_the_cpus(ask):
    """By samples: threads of the request's own process, or another Python; not said of samples that are less than half of the wait."""
    other, larger = {"pid": 9, "tid": 90, "comm": "python3", "thread_name": "crunch"}, "a larger instance, or less other work on this host"
    own = {"tid": 40, "comm": "gunicorn", "thread_name": "train", "py_stack": ["fit (/srv/app/shop/model.py:8)"]}
    ready = "the thread was ready to run, and no CPU was free"
    said = []
    for number, rows in enumerate(([own] * 5 + [other] * 2, [other] * 5 + [own], [own] + [other], [{**own, "tid": 8}] * 6)):
        for i, row in enumerate(rows):
            ask.row("on_cpu", 1000 * number + 20 + 20 * i, 50, **row)
        ask.request(1000 * number + 10, {"runq": 200, "cpu": 100}, request_id=100 + number)
        said.append(causes(ask, str(100 + number))["cpu_missing"])
    assert [c["said"] for c in said] == [
        f"{ready}; meanwhile other threads of its process computed for about 250 ms, longest thread train, in fit (shop/model.py:8)",
        f"{ready}; meanwhile python3, pid 9 computed for about 250 ms, longest thread crunch", ready, ready]
    assert said[0]["fix"].startswith("fewer threads that compute at once in this process (of numpy: OMP_NUM_THREADS), ") and [c["fix"] for c in said[1:]] == [larger] * 3, said
    # two processes with the same pid in namespaces of their own, one of them with the request's; each has less than half of the wait
    for i, host_pid in enumerate((91, 92, 93, 91, 92, 93)):
        ask.row("on_cpu", 5020 + 20 * i, 50, pid=7 + i % 3 // 2 * 2, tid=90, host_pid=host_pid, comm="python3")
    ask.request(5010, {"runq": 250, "cpu": 100}, request_id=105, host_pid=7)
    assert causes(ask, "105")["cpu_missing"]["said"] == ready
    ask.row("on_cpu", 5200, 50, pid=7, tid=90, host_pid=92, comm="python3", thread_name="crunch")
    assert causes(ask, "105")["cpu_missing"]["said"] == f"{ready}; meanwhile python3, pid 7 computed for about 150 ms, longest a thread without a name"


def test_another_program_had_the_cpus(ask):
    """Said where the samples of Pythons cover little of a long wait, and the tracker ran all of the time, without losses."""
    ask.agent(0, 20, trackers=("on_cpu",))
    ask.insert("ebpf_agent", {"host": "h1", "tracker": "on_cpu", "start_time": ask.moment(20_000), "end_time": ask.moment(30_000), "lost_ring": 1})
    ready, another = "the thread was ready to run, and no CPU was free", "another program had the CPU, or the hypervisor"
    for number, (at, wait, samples, told) in enumerate(((1000, 900, 4, True), (3000, 900, 5, False), (5000, 290, 0, False), (18_000, 900, 0, True), (21_000, 900, 0, False),
                                                       (31_000, 900, 0, False))):
        for i in range(samples):
            ask.row("on_cpu", at + 100 + 60 * i, 50, pid=20 + i, tid=90, host_pid=20 + i)
        ask.request(at, {"runq": wait, "cpu": 100}, request_id=100 + number)
        said = causes(ask, str(100 + number))["cpu_missing"]["said"]
        assert said.startswith(ready) and (another in said) == told, (number, said)
        assert not told or f"computed for about {50 * samples} ms meanwhile" in said, said


def test_holder_with_several_waits(ask):
    """A holder's waits at a place count together: four at a pipe are longer than one for the network. Of the first only a part is in the time."""
    stack = ["Handler.acquire (/usr/lib/python3.11/logging/__init__.py:927)", "pay (/srv/app/shop/api.py:0)"]
    ask.row("off_cpu", 20, 400, cause="lock", py_stack=stack, waker_tid=40, waker_thread_name="writer")
    ask.row("off_cpu", 30, 90, cause="net", py_stack=["send (/srv/app/shop/net.py:8)"], tid=40)
    for at, ms in ((-60, 100), (140, 70), (220, 70), (300, 70)):
        ask.row("off_cpu", at, ms, cause="pipe", py_stack=["emit (/srv/app/shop/log.py:3)"], tid=40)
    ask.request(10, {"lock": 400, "cpu": 12})
    assert "thread writer had it (400.0 ms, 230.0 of it pipe, in emit (shop/log.py:3))" in causes(ask)["lock"]["said"]


def test_a_name_asked_by_python_in_a_pool(ask):
    """A pool's thread has no peer: getaddrinfo() is known by its name, a socket of something else is not one of DNS."""
    for number, place in enumerate(("getaddrinfo (/usr/lib/python3.11/socket.py:962)", "create_connection (/usr/lib/python3.11/socket.py:850)")):
        at = 10 + 1000 * number
        ask.row("off_cpu", at + 5, 250, cause="net", py_stack=[place, "pay (/srv/app/shop/api.py:0)"], tid=9)
        ask.request(at, {"net": 250, "cpu": 5}, model="pool", link="wake", tid=9, request_id=90 + number)
    assert "DNS server answered late" in causes(ask, "90")["net"]["fix"] and causes(ask, "91")["net"]["fix"] == ""


def test_code_that_could_not_be_read_is_not_its_callers(ask):
    """A worker that its master killed in a wait: the functions that nobody had read before are gone, those of the server's start are known."""
    server = "Worker.run (/usr/lib/python3/dist-packages/server/sync.py:125)"
    ask.row("off_cpu", 15, 1990, cause="sleep", py_stack=["<gone>", "<gone>", server, "<module> (/usr/lib/python3/dist-packages/server/__main__.py:7)"])
    ask.request(10, {"sleep": 1990, "cpu": 2}, status=None, outcome="no_answer", end_by="close")
    assert causes(ask)["sleep"]["said"] == "the code slept, in code of unknown name, called from Worker.run (server/sync.py:125)"
    ask.row("off_cpu", 3015, 50, cause="sleep", py_stack=["<gone>", "<gone>"])
    ask.request(3010, {"sleep": 50, "cpu": 2}, request_id=78)
    assert causes(ask, "78")["sleep"]["said"] == "the code slept"


def test_several_places_of_a_part(ask):
    """The place with the largest sum, not with the longest wait; where it does not have the whole part, with its own time. Of several
    waits for other threads only the longest is the named thread's."""
    stack = {name: [f"{name} (/srv/app/shop/api.py:{line})"] for line, name in enumerate(("user", "items", "nap", "rest", "first", "second"))}
    ask.row("off_cpu", 12, 30, cause="net", py_stack=stack["user"])
    for i in range(20):
        ask.row("off_cpu", 43 + 12 * i, 11, cause="net", py_stack=stack["items"])
    ask.request(10, {"net": 260, "cpu": 12}, net_peer_ip="::ffff:10.0.0.5", net_peer_port=5432, net_peer_ns=260_000_000)
    assert causes(ask)["net"]["said"] == "the thread waited for sockets, 260.0 ms of it for 10.0.0.5 port 5432, 220.0 ms of it in items (shop/api.py:1)"
    ask.row("off_cpu", 1020, 120, cause="sleep", py_stack=stack["nap"])
    ask.row("off_cpu", 1140, 80, cause="sleep", py_stack=stack["rest"])
    ask.request(1010, {"sleep": 200, "cpu": 12}, request_id=78)
    assert causes(ask, "78")["sleep"]["said"] == "the code slept, 120.0 ms of it in nap (shop/api.py:2)"
    for begin, ms in (1520, 5), (1526, 10), (1537, 25), (1563, 50):
        ask.row("off_cpu", begin, ms, cause="sleep", py_stack=stack["nap"])
    ask.request(1510, {"sleep": 90, "cpu": 12}, request_id=85)
    assert causes(ask, "85")["sleep"]["said"] == ("the code slept, in nap (shop/api.py:2), 4 times: a loop that polls, or a library that tries again, as SQLite "
                                                  "does while its database is locked")
    # the rest of the part is in waits too short for rows
    ask.row("off_cpu", 2020, 30, cause="sleep", py_stack=stack["rest"])
    ask.request(2010, {"sleep": 230, "cpu": 12}, request_id=79)
    assert causes(ask, "79")["sleep"]["said"] == "the code slept, 30.0 ms of it in rest (shop/api.py:3)"
    for i in range(12):  # of less than a millisecond, so that they are not listed one by one
        ask.row("off_cpu", 5020 + 2 * i, 0.9, cause="disk", py_stack=stack["items"])
    ask.request(5010, {"disk": 10.8, "cpu": 20}, request_id=81)
    assert causes(ask, "81")["disk"]["said"] == "the thread waited for a disk, in items (shop/api.py:1)"
    for i, name in enumerate(("first", "second")):
        ask.row("off_cpu", 3020 + 100 * i, 100 + i, cause="lock", waker_tid=30 + i, waker_thread_name=name,
                py_stack=["Condition.wait (/usr/lib/python3.11/threading.py:320)", *stack[name]])
    ask.request(3010, {"lock": 201, "cpu": 12}, request_id=80)
    said = causes(ask, "80")["lock"]["said"]
    assert ", 101.0 ms of it in Condition.wait (python3.11/threading.py:320), called from second (shop/api.py:5)" in said
    assert said.endswith("; thread second ended the longest of these waits (101.0 ms)")


def test_a_lock_that_another_process_had(ask):
    """Workers of a server have threads of the same names: the holder's process is named, too."""
    code = ["SemLock.__enter__ (/usr/lib/python3.11/multiprocessing/synchronize.py:95)", "pay (/srv/app/shop/api.py:31)"]
    ask.row("off_cpu", 20, 300, cause="lock", py_stack=code, waker_pid=9, waker_tid=9, waker_comm="gunicorn", waker_thread_name="MainThread")
    ask.request(10, {"lock": 300, "cpu": 12})
    assert "; thread MainThread of gunicorn, pid 9 had it (300.0 ms)" in causes(ask)["lock"]["said"]
    ask.row("off_cpu", 1020, 300, cause="lock", py_stack=code, waker_pid=7, waker_tid=7, waker_comm="gunicorn", waker_thread_name="MainThread")
    ask.request(1010, {"lock": 300, "cpu": 12}, request_id=78)
    assert "; thread MainThread had it (300.0 ms)" in causes(ask, "78")["lock"]["said"]


def test_a_peer_that_is_not_known(ask):
    """A socket that is not connected (UDP) has no address: none is named, and no remedy for it."""
    ask.request(10, {"net": 300, "cpu": 5}, net_peer_ip="::ffff:0.0.0.0", net_peer_port=0, net_peer_ns=300_000_000)
    assert causes(ask)["net"]["said"] == "the thread waited for sockets" and causes(ask)["net"]["fix"] == ""
    assert "0.0.0.0" not in text(ask, "77") and "0.0.0.0" not in ask.command("requests", "--since=2h").stdout


def test_a_peer_that_answers_late(ask):
    """One wait for an answer is most of the part: a row lock of a database, a queue without an item. Many waits are many questions; a wait to send
    is no late answer, nor is that of another peer."""
    peer = {"net_peer_ip": "::ffff:10.0.0.5", "net_peer_port": 5432}
    code = ["pay (/srv/app/shop/db.py:4)"]
    for number, (waits, peer_ms) in enumerate([([("recvfrom", 20, 250)], 300), ([("poll", 20, 160), ("recvfrom", 200, 100)], 300),
                                               ([("recvfrom", 10 + 60 * i, 55) for i in range(5)], 300), ([("sendto", 20, 250)], 300),
                                               ([("recvfrom", 20, 250)], 100)]):
        at = 1000 * number
        for syscall, begin, ms in waits:
            ask.row("off_cpu", at + begin, ms, cause="net", syscall=syscall, py_stack=code)
        ask.request(at + 10, {"net": 300, "cpu": 5}, request_id=100 + number, net_peer_ns=peer_ms * 1_000_000, **peer)
    fixes = [causes(ask, str(100 + number))["net"]["fix"] for number in range(5)]
    assert fixes[:2] == [f"find why that peer answered late, {ms}.0 ms in one wait (of a database: locks and slow queries), or a shorter time-out"
                         for ms in (250, 160)], fixes
    assert fixes[2:] == ["ask that peer less often or for less data"] * 3, fixes


def test_a_module_that_a_request_imports(ask):
    """Its own code, or, where that has ended, what called it; of a thread and of a loop. A function that it calls is not known as an import."""
    module, caller = "<module> (/srv/app/big.py:2)", ["_call_with_frames_removed (<frozen importlib._bootstrap>:241)", "report (/srv/app/shop/api.py:9)"]
    fix = "import that module when the application is loaded, not in a request"
    for number, stack in enumerate(([module, *caller], ["<gone>", *caller], ["compile (/srv/app/re.py:2)", *caller])):
        ask.row("off_cpu", 1000 * number + 20, 290, cause="sleep", py_stack=stack)
        ask.request(1000 * number + 10, {"sleep": 300, "cpu": 5}, request_id=100 + number)
    assert [causes(ask, str(100 + number))["sleep"]["fix"] for number in range(3)] == [fix, fix, ""]
    ask.row("on_cpu", 10_020, 50, py_stack=[module, *caller])
    ask.row("on_cpu", 10_120, 50, py_stack=[module, *caller])
    ask.row("on_cpu", 10_220, 50, py_stack=["spin (/srv/app/shop/api.py:3)"])
    ask.request(10_010, {"cpu": 300}, request_id=110)
    assert causes(ask, "110")["cpu"]["fix"] == fix
    ask.row("loop_stall", 20_010, 300, loop="asyncio", cpu_ns=300_000_000, py_stack=[module, *caller])
    ask.request(20_010, {"cpu": 300}, request_id=111, model="loop")
    blocked = causes(ask, "111")["loop_blocked"]
    assert blocked["fix"].startswith("in <module> (app/big.py:2)") and blocked["fix"].endswith(f"which kept the event loop for 300.0 ms: {fix}"), blocked


def test_a_loop_that_was_asleep_before_it_handed_a_request_on(ask):
    """The thread that accepts is an event loop: the remedy is not that of a server that waits for a client's bytes."""
    for number, (link, fix) in enumerate((("wake", "use the loop's own calls instead of blocking ones"), ("same", "where it waits for a client's next bytes"))):
        at, pid = 10_000 * number, 40 + number
        ask.row("tcp_accept", at - 1000, 5, tid=8, pid=pid, kind="accepted")
        ask.row("off_cpu", at, 290, tid=8, pid=pid, cause="net", py_stack=["query (/srv/app/shop/db.py:7)"])
        ask.request(at + 10, {"accept_queue": 280, "cpu": 5}, request_id=100 + number, pid=pid, tid=9, link=link, model="pool" if link == "wake" else "thread")
        [cause] = causes(ask, str(100 + number)).values()
        assert cause["cause"] == "thread_asleep" and "waited for the network, in query (shop/db.py:7), 280.0 ms of that" in cause["said"], cause
        assert cause["fix"].startswith(fix), cause


def test_a_coroutine_that_waits_for_a_pool(ask):
    ask.request(10, {"await": 300, "cpu": 5}, model="loop")
    ask.request(1010, {"await": 300, "cpu": 5}, request_id=78, model="loop", not_measured=["work_elsewhere"])
    # that a pool's thread ran is a possibility, and no more is said
    assert "other threads may have worked for it" in causes(ask, "78")["await"]["said"]
    assert "not measured: other threads worked for the request, or may have" in text(ask, "78")
    assert causes(ask)["await"]["said"].endswith("the event loop was idle")
    assert causes(ask, "78")["await"]["said"].endswith("or it waited until one of their pool was free (how long each was not measured)")


def test_a_pool_that_is_too_small_for_the_requests_of_a_loop(ask):
    """Which threads are the pool's is known by the wakes of the loop's thread, 8; what these waited for says where the time went."""
    work = {"cause": "net", "py_stack": ["read (/srv/app/db.py:4)"]}
    for tid, at in (20, 10), (21, 30), (22, 40):
        ask.row("off_cpu_profile", 0, 10_000, tid=tid, cause="lock", idle=tid > 20, waker_tid=8, count=3, off_ns=10**6)
        for i in range(4):
            ask.row("off_cpu", at + 100 * i, 95, tid=tid, thread_name=f"pool-{tid}", **work)
        ask.row("off_cpu", at + 395, 5, tid=tid, cause="lock", waker_tid=8)  # for work
    # an executor's thread, which had no wait for work
    ask.row("off_cpu_profile", 0, 10_000, cause="poll", idle=1, waker_pid=7, waker_tid=23, count=3, off_ns=10**6)
    for tid in 23, 24:  # 24: of an executor that this loop does not use
        ask.row("off_cpu_profile", 0, 10_000, tid=tid, cause="net", count=3, off_ns=10**6, py_stack=["read (/srv/app/db.py:4)", "_worker (/usr/lib/python3.11/concurrent/futures/thread.py:83)"])
        for i in range(4):
            ask.row("off_cpu", 20 + 100 * i, 95, tid=tid, thread_name=f"pool-{tid}", **work)
    # of no pool: a thread that an earlier request made, which has ended
    ask.row("off_cpu_profile", 0, 10_000, tid=29, cause="lock", waker_tid=8, count=1, off_ns=5000)
    ask.row("off_cpu", -200, 90, tid=29, cause="sleep")
    # of no pool: the thread waited for a coroutine's result
    ask.row("off_cpu_profile", 0, 10_000, tid=30, cause="lock", waker_tid=8, count=3, off_ns=10**6, py_stack=["result (/srv/app/timer.py:7)"])
    ask.row("off_cpu", 10, 400, tid=30, cause="sleep", py_stack=["tick (/srv/app/timer.py:9)"])
    ask.row("off_cpu", 10, 400, tid=8, cause="poll", idle=1)
    pool = {"model": "loop", "not_measured": ["work_elsewhere"]}
    ask.request(10, {"await": 400, "cpu": 5}, request_id=78, open_requests=9, **pool)
    ask.request(110, {"await": 184, "cpu": 1}, request_id=79, open_requests=9, **pool)  # not twice a wait in the pool
    ask.request(10, {"await": 400, "cpu": 5}, request_id=80, open_requests=3, **pool)  # a thread for each
    ask.request(20_000, {"await": 400, "cpu": 5}, request_id=81, open_requests=9, **pool)  # idle threads
    found = causes(ask, "78")["pool_missing"]
    assert "the 4 such threads waited 92 % of that time, longest for: net, in read (app/db.py:4) (1490.0 ms in 4 threads); 9 requests were open" in found["said"]
    assert found["fix"].startswith("a larger pool") and found["fix"].endswith("less time in read (app/db.py:4)")
    assert answer(ask, "78")["requests"][0]["pool"] == [{"cause": "net", "place": "read (app/db.py:4)", "library": "", "threads": 4, "thread_name": "pool-23",
                                                         "waited_ms": 1490.0, "pool_threads": 4, "pool_ms": 1490.0, "longest_ms": 95.0}]
    for request in "79", "80":
        assert causes(ask, request)["await"]["said"].startswith("the coroutine awaited threads") and not causes(ask, request)["await"]["fix"]
    assert "was free (how long each was not measured)" in causes(ask, "81")["await"]["said"]
    ask.row("off_cpu_profile", 0, 10_000, pid=9, tid=20, cause="lock", idle=1, waker_tid=8, count=3, off_ns=10**6)
    ask.row("off_cpu", 10, 190, pid=9, tid=20, **work)
    ask.request(10, {"await": 400}, request_id=82, pid=9, open_requests=2, **pool)
    ask.row("off_cpu", 210, 195, pid=9, tid=20, **work)
    found = causes(ask, "82")["pool_missing"]
    assert "the 1 such thread waited 96 % of that time" in found["said"] and found["fix"].startswith("more workers, or more threads: one does all"), found
    # as Django under uvicorn with uvloop: beside the only thread of its views, another pool's threads, which had no work meanwhile, or had
    for pid, got_work in (11, False), (12, True):
        for tid, name in (20, "ThreadPoolExecutor-0_0"), (21, "asyncio_0"), (22, "asyncio_1"):
            ask.row("off_cpu_profile", 0, 10_000, pid=pid, tid=tid, thread_name=name, cause="lock", idle=1, waker_tid=8, count=3, off_ns=10**6)
        for i in range(4):
            ask.row("off_cpu", 10 + 100 * i, 95, pid=pid, tid=20, thread_name="ThreadPoolExecutor-0_0", **work)
        ask.row("off_cpu", -500, 4000, pid=pid, tid=21, cause="lock", idle=1, waker_tid=8)
        if got_work:
            ask.row("off_cpu", -500, 700, pid=pid, tid=22, cause="lock", idle=1, waker_tid=8)
        ask.request(10, {"await": 400}, request_id=90 + pid, pid=pid, open_requests=3, **pool)
    found = causes(ask, "101")["pool_missing"]
    assert "the 1 such thread waited 95 % of that time" in found["said"] and found["fix"].startswith("more workers, or more threads: one does all"), found
    found = causes(ask, "102")["await"]
    assert "the 3 such threads waited 32 % of that time" in found["said"] and found["fix"] == "", found


def test_a_pool_of_connections_in_the_threads_of_a_loop(ask):
    """The remedy is of the library's pool: of a request whose thread waited for it, the one that woke the loop last before the answer, and of
    requests for which no thread was free. Not where another answer was written then, nor of waits for other work."""
    stack = ["Condition.wait (/usr/lib/python3.11/threading.py:324)", "QueuePool._do_get (/usr/lib/python3.11/site-packages/sqlalchemy/pool/impl.py:124)", "orders (/srv/app/db.py:4)"]
    pool, remedy = {"model": "loop", "not_measured": ["work_elsewhere"], "open_requests": 2}, "a larger pool (of connections: SQLAlchemy"

    def request(number, of_library, waits=(), woken=398, parts=None, **more):
        """A request of 400 ms, for which thread 20 waited so long in the library."""
        at, where = 10 + 2000 * number, {"pid": 100 + number}
        ask.row("off_cpu", at + 5, of_library, tid=20, thread_name="pool-20", cause="lock", py_stack=stack, waker_tid=21, **where)
        for begin, ms, row in waits:
            ask.row("off_cpu", at + begin, ms, **row, **where)
        ask.row("off_cpu", at + woken - 50, 50, tid=8, cause="poll", idle=1, waker_pid=100 + number, waker_tid=20, waker_thread_name="pool-20", **where)
        ask.request(at, {"await": 399, "cpu": 1, **(parts or {})}, request_id=100 + number, **{**pool, **more}, **where)
        return causes(ask, str(100 + number))["await"]
    found = request(0, 300)
    assert found["said"].endswith("; thread pool-20 woke the loop before the answer, after it had waited longest for: lock, in Condition.wait (python3.11/threading.py:324), "
                                  "called from orders (app/db.py:4) (300.0 ms)") and found["fix"].startswith(remedy), found
    assert not request(1, 150)["fix"]  # less than half
    assert "woke the loop" not in request(2, 300, woken=390)["said"]  # the coroutine went on for 10 ms
    ask.request(6200, {"await": 209}, pid=103, request_id=203, model="loop")  # its answer ends at 6409
    assert not request(3, 300)["fix"]
    # of another request: the thread had new work
    found = request(4, 300, [(310, 5, {"tid": 20, "cause": "lock", "idle": 1, "waker_tid": 8}), (320, 60, {"tid": 20, "thread_name": "pool-20", "cause": "net"})])
    assert found["said"].endswith("longest for: net (60.0 ms)") and not found["fix"], found
    # all threads of the pool waited for connections, each a third of the request's time
    for tid in 20, 21:
        ask.row("off_cpu_profile", 20_000, 10_000, pid=9, tid=tid, cause="lock", idle=1, waker_tid=8, count=3, off_ns=10**6)
        for i in range(3):
            ask.row("off_cpu", 20_012 + 130 * i, 125, pid=9, tid=tid, cause="lock", py_stack=stack, waker_tid=tid ^ 1)
    ask.request(20_010, {"await": 399}, pid=9, request_id=120, **{**pool, "open_requests": 9})
    found = causes(ask, "120")["pool_missing"]
    assert found["fix"].startswith(remedy) and found["fix"].endswith(": more threads would wait there, too"), found


def test_the_machine_and_the_client(ask):
    ask.row("cpu_throttle", 20, 90, tid=0, cgroup="/pod-a", quota_us=50_000, period_us=100_000, throttled_ns=90_000_000)
    ask.request(10, {"cpu": 50, "throttled": 90, "runq": 60, "lock": 10, "client_slow": 200})
    found = causes(ask)
    assert list(found) == ["client_slow", "cpu_limit", "cpu_missing", "cpu"]
    assert "of /pod-a was used up (0.50 CPUs)" in found["cpu_limit"]["said"] and "larger instance" in found["cpu_missing"]["fix"]
    assert "(1000 bytes)" in found["client_slow"]["said"]
    ask.request(900, {"lock": 80, "cpu": 5}, request_id=79)
    ask.row("off_cpu", 905, 70, cause="lock", py_stack=["get (/srv/app/db/pool.py:4)"])
    assert causes(ask, "79")["lock"]["said"] == ("the thread waited for a lock, in get (db/pool.py:4); no thread is known to have ended it: "
                                                 "a time-out ends such a wait, too")
    ask.request(1900, {"lock": 80, "cpu": 5}, request_id=80)
    lock = {"cause": "lock", "py_stack": ["get (/srv/app/db/pool.py:4)"], "lock_address": 0x7f0011224470}
    ask.row("off_cpu", 1905, 70, **lock, waker_tid=30, waker_thread_name="boss")
    for i in range(11):
        ask.row("off_cpu", 1910 + i, 90, tid=50 + i, **lock)
    ask.row("off_cpu", 1910, 90, tid=90, **{**lock, "lock_address": 0x7f0011224480})  # another lock at this place
    said = causes(ask, "80")["lock"]["said"]
    assert "thread boss had it (70.0 ms)" in said and said.endswith("; lock convoy: 12 threads waited for it at once (lock 0x7f0011224470)"), said


def test_a_thread_that_waited_for_a_child(ask):
    """By wait4() or by the child's output; a pipe without a child has no remedy."""
    run = ["Popen.communicate (/usr/lib/python3.11/subprocess.py:1209)", "thumb (/srv/app/shop/images.py:7)"]
    for i, (cause, stack) in enumerate((("child", run), ("pipe", run), ("pipe", ["thumb (/srv/app/shop/images.py:9)"]))):
        ask.row("off_cpu", 1012 + 1000 * i, 300, cause=cause, py_stack=stack)
        ask.request(1010 + 1000 * i, {cause: 300, "cpu": 2}, request_id=700 + i)
    child, pipe, other = causes(ask, "700")["child"], causes(ask, "701")["pipe"], causes(ask, "702")["pipe"]
    assert child["said"].startswith("the thread waited for a child process, in ") and "a pipe from or to a child process, in " in pipe["said"], (child, pipe)
    assert child["fix"] == pipe["fix"] and child["fix"].startswith("a library instead of that child process, or the work outside of requests"), (child, pipe)
    assert "for a pipe, in thumb" in other["said"] and not other["fix"], other


def test_time_in_no_part_is_said(ask):
    """A pool's request whose thread was not seen to take it: all is `other`, and rows of the thread that answered show a wait."""
    code = ["child (/srv/app/shop/api.py:23)"]
    ask.row("off_cpu", 14, 310, cause="child", py_stack=code)
    ask.request(10, {"queue": 1, "other": 313}, model="pool", link="write", not_measured=["work_elsewhere"])
    other = causes(ask)["other"]
    assert other["said"] == ("other threads worked for it, or it was not seen which thread: what they waited for is not known; "
                             "longest wait of thread 8: child, 310.0 ms, in child (shop/api.py:23)") and other["fix"] == ""
    ask.row("off_cpu", 1015, 60, cause="other", py_stack=code)
    ask.request(1010, {"other": 61, "cpu": 2}, request_id=78)
    assert causes(ask, "78")["other"]["said"] == "the thread waited for something else, in child (shop/api.py:23)"
    # the waits of a loop's thread are not this request's
    ask.request(10, {"other": 313}, request_id=79, model="loop", not_measured=["work_elsewhere"])
    assert causes(ask, "79")["other"]["said"].endswith("is not known")
    # a stall is: the coroutine that read from an eventfd has started a thread, too
    ask.row("loop_stall", 2012, 310, loop="asyncio", other_ns=309_000_000, py_stack=code)
    ask.row("off_cpu", 2012, 309, cause="other", py_stack=code)
    ask.request(2010, {"other": 309, "cpu": 4}, request_id=80, model="loop", not_measured=["work_elsewhere"])
    blocked = causes(ask, "80")["loop_blocked"]
    assert blocked["said"] == "a call in a coroutine blocked the event loop's thread (something else), in child (shop/api.py:23)", blocked
    assert blocked["fix"].startswith("in child (shop/api.py:23), which kept the event loop for 310.0 ms: use await"), blocked


def test_a_part_that_is_small_is_no_cause(ask):
    ask.request(10, {name: 0.4 for name in LEDGER_PARTS})
    assert causes(ask) == {} and "cause: no part stands out" in text(ask, "77")
