# SPDX-License-Identifier: Apache-2.0
"""`underspan timeline`: a trace of Perfetto, decoded by protoc with Perfetto's definition, against known rows and a program's own times."""
import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build
from answers import Answers, emptied, store_of_answers
from browser import NARROW, Keys
from perfetto import Trace
from test_errors import FAILED, USAGE, check_sentence
from test_top import until_attached

T0 = (int(time.time()) - 1800) * 1_000_000  # half an hour ago
WINDOW = "--since=2h"
EVIL = "n\x1b]0;x\x07<script>alert(1)</script>\u202e"
stored = plain_build(NO_ENGINE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with store_of_answers(tmp_path_factory.mktemp("timeline")) as store:
        yield store


class Timeline(Answers):
    def __init__(self, store, directory):
        super().__init__(emptied(store), T0)
        self.path = directory / "x.pftrace"

    def thread(self, table, at, ms, tid=8, name="worker", **more):
        self.row(table, at, ms, tid=tid, host_pid=107, host_tid=100 + tid, comm="gunicorn", thread_name=name, service="shop", **more)

    def trace(self, *arguments, said=""):
        done = self.command("timeline", "-o", str(self.path), *arguments)
        assert done.returncode == 0 and re.fullmatch(said, done.stderr, re.S), done
        return Trace(self.path.read_bytes())


@pytest.fixture
def ask(shared, tmp_path):
    ask = Timeline(shared, tmp_path)
    ask.agent(-10_000, 300, trackers=["off_cpu", "gil_wait", "gc_pause", "handoff", "loop_stall", "request", "on_cpu"])
    return ask


def at(ask, s):
    """(begin in ms after T0, length in ms)"""
    return round((s.begin - T0 * 1000) / 1e6, 6), round(s.ns / 1e6, 6)


@stored
def test_threads(ask):
    ask.thread("gil_wait", 100, 30, holders=[{"tid": 9, "ns": 20_000_000, "thread_name": "spinner"}, {"tid": 10, "ns": 9_500_000, "thread_name": ""}],
               holder_py_stack=["spin (/srv/app.py:9)", "run (/srv/app.py:1)"], py_stack=["get (/srv/app.py:3)"], runq_ns=500_000)
    ask.thread("off_cpu", 100, 30, cause="gil", state="S", syscall="futex", runq_ns=500_000, waker_host_tid=109, waker_comm="gunicorn",
               py_stack=["get (/srv/app.py:3)", "work (/srv/app.py:5)"])
    ask.thread("loop_stall", 50, 200, loop="asyncio", cpu_ns=100_000_000, waiting=4)
    ask.thread("gc_pause", 200, 40, generation=2, reason="threshold", collected=77)
    ask.thread("off_cpu", 300, 10, cause="net", idle=1, name="", kernel_stack=["ep_poll"], user_stack=["epoll_wait"])
    ask.thread("off_cpu", 310, 2, cause="preempt", weight=4)
    ask.thread("off_cpu", 5, 1, cause="lock", tid=7, name="MainThread")
    ask.thread("gil_wait", 110, 15, tid=7, name="MainThread", holders=[{"tid": 9, "ns": 15_000_000, "thread_name": "spinner"}])
    trace = ask.trace(WINDOW)
    assert trace.processes == {107: "shop (gunicorn)"} and trace.threads == {(107, 107): "MainThread", (107, 108): "worker"}
    assert [(s.name, s.depth, *at(ask, s)) for s in trace.of("worker")] == [
        ("event loop stalled", 0, 50, 200), ("waits for the GIL", 1, 100, 30), ("off the CPU: gil", 2, 100, 30),
        ("collection, generation 2", 1, 200, 40), ("idle", 0, 300, 10), ("waits for a CPU", 0, 310, 2)]
    stall, wait, off, gc, idle, preempt = trace.of("worker")
    assert wait.notes == {"held by": "spinner 20.000 ms, thread 10 9.500 ms", "stack of the first holder": "spin (/srv/app.py:9) < run (/srv/app.py:1)",
                          "waited for a CPU, ms": 0.5, "Python stack": "get (/srv/app.py:3)", "duration, ms": 30}
    assert off.notes == {"cause": "gil", "state": "S", "system call": "futex", "waited for a CPU, ms": 0.5, "woken by": "gunicorn (109)",
                         "Python stack": "get (/srv/app.py:3) < work (/srv/app.py:5)", "duration, ms": 30}
    assert (stall.notes["loop"], stall.notes["cpu, ms"], stall.notes["ready events"]) == ("asyncio", 100, 4) and "gil, ms" not in stall.notes
    assert (gc.notes["collected"], gc.notes["reason"]) == (77, "threshold")
    assert (idle.notes["kernel stack"], idle.notes["native stack"]) == ("ep_poll", "epoll_wait") and preempt.notes["stands for"] == 4
    # two threads waited for the same holder at once: one slice
    assert [(s.name, *at(ask, s), s.notes.get("waits of other threads"), s.notes.get("at")) for s in trace.of("holder of the GIL, while others wait")] == [
        ("spinner", 100, 25, 2, "spin (/srv/app.py:9)"), ("thread 10", 120, 9.5, 1, None)]
    [window] = trace.of("underspan")
    assert re.fullmatch(r"all services, .* UTC, measured for [\d.]+ s", window.name) and window.notes == {}
    assert abs(window.ns / 1e9 - 7200) < 1 and trace.clock_ns == {1: window.begin, 6: window.begin}


@stored
def test_samples(ask):
    """Of the moment of the clock, between the slices of the thread that was on a CPU; hostile names are text. A thread with samples only has a track."""
    ask.thread("loop_stall", 50, 200, loop="asyncio")
    ask.thread("off_cpu", 100, 30, cause="net")
    for end in 90, 140:
        ask.thread("on_cpu", end - 52, 52, cpu=3, py_stack=["spin (/srv/app.py:9)", "run (/srv/app.py:1)"])
    ask.thread("on_cpu", 210, 52, weight=2)
    ask.thread("on_cpu", 0, 52, tid=9, name="other", py_stack=[EVIL + " (/srv/app.py:40)"])
    trace = ask.trace(WINDOW)
    assert [(s.name, s.depth, s.instant, *at(ask, s)) for s in trace.of("worker")] == [
        ("event loop stalled", 0, False, 50, 200), ("on a CPU: spin (/srv/app.py:9)", 1, True, 90, 0), ("off the CPU: net", 1, False, 100, 30),
        ("on a CPU: spin (/srv/app.py:9)", 1, True, 140, 0), ("on a CPU", 0, True, 262, 0)]
    _, spin, _, _, native = trace.of("worker")
    assert spin.notes == {"CPU": 3, "Python stack": "spin (/srv/app.py:9) < run (/srv/app.py:1)", "CPU time by the clock, ms": 52}
    assert native.notes == {"CPU": 0, "CPU time by the clock, ms": 52, "stands for": 2}
    [other] = trace.of("other")
    assert other.name.startswith("on a CPU: n") and "<script>alert(1)" in other.name and other.name.isprintable()


@stored
def test_more_samples_than_a_file_holds(ask):
    """All of the slowest requests, and an even choice of the others: by thread and over time as they were."""
    most, rows, slow = 40_000, 60_000, 50
    ask.request(100, {"cpu": 100}, request_id=1, host_pid=107, host_tid=108)
    for tid, name, n, of_begin in (5, "rare", rows // 4, "number * 40000"), (6, "frequent", rows // 4 * 3, "intDiv(number * 40000, 3)"), (8, "worker", slow, "101000 + number * 1900"):
        ask.store.ask(f"""INSERT INTO ebpf_on_cpu (host, pid, tid, host_pid, host_tid, comm, thread_name, start_time, end_time, duration_ns)
            SELECT 'h1', 7, {tid}, 107, 100 + {tid}, 'gunicorn', '{name}', e - toIntervalMicrosecond(1000), fromUnixTimestamp64Micro({ask.us(0)} + {of_begin}, 'UTC') AS e, 1000000
            FROM numbers({n})""")
    trace = ask.trace(WINDOW, said=".*only .*")
    notes = trace.of("underspan")[0].notes.values()
    left = rows + slow - most
    assert f"samples of CPU time: only {most} of {rows + slow} rows, those of the slowest requests and an even choice of the others; left out: {left} rows, {left / 1000:.3f} s together" in notes, notes
    assert len(trace.of("worker")) == slow and len(trace.of("rare")) + len(trace.of("frequent")) == most - slow
    for name, n in ("rare", rows // 4), ("frequent", rows // 4 * 3):
        tenths = [0] * 10
        for s in trace.of(name):
            tenths[int(at(ask, s)[0] / 60_000)] += 1
        expected = n * (most - slow) / rows / 10
        assert all(0.9 * expected < count < 1.1 * expected for count in tenths), (name, expected, tenths)


@stored
def test_as_a_page(ask, browser):
    """A lane for each thread, with its events where they were; a request by the parts of its wait; hostile names are text."""
    ask.request(0, {"accept_queue": 10, "queue": 40, "cpu": 30, "gil": 120}, host_pid=107, host_tid=108, comm="gunicorn", service="shop", thread_name="worker")
    ask.thread("gil_wait", 100, 30, holders=[{"tid": 9, "ns": 30_000_000, "thread_name": "spinner"}], holder_py_stack=["spin (/srv/app.py:9)", "run (/srv/app.py:1)"])
    ask.thread("gc_pause", 150, 40, generation=2, py_stack=["load (/srv/app.py:12)"])
    ask.thread("handoff", 200, 25, handoff_ns=25_000_000)
    ask.thread("loop_stall", 300, 90, tid=9, name="spinner", py_stack=["export (/srv/app.py:30)"])
    ask.thread("off_cpu", 400, 7, tid=10, name=EVIL, cause="net", py_stack=[EVIL + " (/srv/app.py:40)"])
    ask.thread("off_cpu", 500, 5_000, tid=11, name="sleeper", cause="lock", idle=1)
    ask.thread("on_cpu", 138, 52, tid=9, name="spinner", py_stack=["spin (/srv/app.py:9)"])
    ask.path = ask.path.with_name("x.html")
    done = ask.command("timeline", "-o", str(ask.path), WINDOW)
    assert (done.returncode, done.stderr) == (0, ""), done
    browser.open(ask.path)
    lanes = [lane.get_attribute("aria-label").split(":")[0] for lane in browser.all(".lane canvas")]
    assert lanes[:3] == ["requests", "hand-offs", "holder of the GIL, while others wait"] and lanes[3] == "spinner (109)" and lanes[4] == "worker (108)", lanes
    assert len(lanes) == 6 and browser.all("h3")[0].text == "shop (gunicorn), pid 107" and "1 wait of idle threads, 5.000 s, is left out" in browser.text()
    rows = {row[2]: (row[0], row[1], row[3]) for row in browser.rows(browser.table("Longest: threads and requests"))}
    moment = time.strftime("%H:%M:%S", time.gmtime(T0 // 1_000_000))
    assert rows["GET /orders, thread worker"] == (f"{moment}.000", "200.0", "requests") and rows["waits for the GIL, held by spinner 30.000 ms, in spin (/srv/app.py:9)"][1] == "30.0"
    assert rows["collection, generation 2, set off in load (/srv/app.py:12)"][2] == "worker (108)" and rows["event loop stalled, in export (/srv/app.py:30)"][1] == "90.0"
    assert rows["spinner, in spin (/srv/app.py:9)"][2] == "holder of the GIL, while others wait" and rows["hand-off, to worker"][1] == "25.0"
    assert any("<script>alert(1)" in what for what in rows) and not re.search("[\x1b\x07\u202e]", browser.text())

    def colours(lane, *at_ms):
        """Of points of a lane, in milliseconds after T0."""
        return browser.script("""const lane = document.querySelectorAll(".lane canvas")[arguments[0]], context = lane.getContext("2d");
            const begin = arguments[1], end = arguments[2], line = context.getImageData(0, 4, lane.width, 1).data;
            return arguments[3].map((ms) => Math.round((ms - begin) / (end - begin) * lane.width)).map((x) => [...line.slice(4 * x, 4 * x + 3)])""",
                              lane, *view, at_ms)

    browser.script("document.querySelector('.timeline').look(arguments[0], arguments[1])", T0, T0 + 400_000)
    view = 0, 400
    queue, accepted, thread = colours(0, 30, 5, 120)
    assert (accepted, queue, thread) == ([0xb3, 0x26, 0x1e], [0xe8, 0x59, 0x0c], [0x5c, 0x83, 0x74])
    assert colours(4, 120, 170, 250) == [[0x5f, 0x3d, 0xc4], [0xd9, 0x48, 0x0f], [0, 0, 0]]  # the GIL, the collection, nothing
    computes = [0x2b, 0x8a, 0x3e]
    assert sum(colour == computes for colour in colours(3, *(186 + i / 4 for i in range(33)))) in range(1, 4)  # a mark at 190 ms
    browser.all(".lane canvas")[3].send_keys(Keys.ARROW_RIGHT)
    assert browser.one(".timeline .status").text == f"spinner (109): on a CPU: spin (/srv/app.py:9), at {moment}.190"
    assert not any("on a CPU" in what for what in rows)
    browser.all(".lane canvas")[4].send_keys(Keys.ARROW_RIGHT)
    assert browser.one(".timeline .status").text.startswith("worker (108): waits for the GIL, held by spinner 30.000 ms")
    [link] = [b for b in browser.all("button.link") if b.text.startswith("event loop stalled")]
    browser.script("arguments[0].click()", link)
    assert [browser.all(".axis span")[i].text for i in (0, 4)] == [time.strftime("%H:%M:%S", time.gmtime(T0 // 1_000_000)) + end for end in (".277", ".412")]
    browser.check_quiet(ask.path)
    browser.open(ask.path, width=NARROW)
    assert browser.sideways() == 0


@stored
def test_a_page_stays_small(ask):
    """20,000 waits of distinct names: the longest are drawn, the rest is counted."""
    ask.store.ask("INSERT INTO ebpf_off_cpu (host, pid, tid, host_pid, host_tid, comm, thread_name, start_time, end_time, duration_ns, cause, py_stack) "
                  f"SELECT 'h1', 7, 8, 107, 108, 'python3', 'worker', fromUnixTimestamp64Micro({T0} + number * 10), fromUnixTimestamp64Micro({T0} + number * 10 + 9), "
                  "number * 1000 + 1000, 'net', [concat(repeat('<', 100), toString(number), ' (/srv/app.py:1)')] FROM numbers(20000)")
    ask.path = ask.path.with_name("x.html")
    done = ask.command("timeline", "-o", str(ask.path), WINDOW)
    assert done.returncode == 0 and ask.path.stat().st_size < 2_000_000, done
    body = json.loads(re.search(r'id="data">(.*?)</script>', ask.path.read_text(), re.S)[1])["body"]
    events = [e for lane in body["window"]["lanes"] for e in lane["events"]]
    [said] = body["window"]["notes"]
    left, seconds = re.match(r"(\d+) shorter events, ([\d.]+) s together, are left out", said).groups()
    assert len(events) + int(left) == 20_000 and len(events) > 500
    assert min(e[1] for e in events) == (int(left) + 1) * 1000 and float(seconds) == pytest.approx(sum(range(1, int(left) + 1)) / 1e6, abs=0.001)


@stored
def test_samples_of_a_page(ask):
    """They have room beside a flood of waits, and what has none is counted apart."""
    waits, samples = 20_000, 8_000
    for table, n, tid, more in ("off_cpu", waits, 8, "repeat('<', 100)"), ("on_cpu", samples, 9, "''"):
        ask.store.ask(f"INSERT INTO ebpf_{table} (host, pid, tid, host_pid, host_tid, comm, thread_name, start_time, end_time, duration_ns, py_stack) "
                      f"SELECT 'h1', 7, {tid}, 107, 100 + {tid}, 'python3', 'worker', fromUnixTimestamp64Micro({T0} + number * 10), fromUnixTimestamp64Micro({T0} + number * 10 + 9), "
                      f"9000, [concat({more}, toString(number % 4000), ' (/srv/app.py:1)')] FROM numbers({n})")
    ask.path = ask.path.with_name("x.html")
    done = ask.command("timeline", "-o", str(ask.path), WINDOW)
    assert done.returncode == 0 and ask.path.stat().st_size < 2_000_000, done
    body = json.loads(re.search(r'id="data">(.*?)</script>', ask.path.read_text(), re.S)[1])["body"]
    drawn = {lane["host_tid"]: len(lane["events"]) for lane in body["window"]["lanes"]}
    assert drawn[109] > 1000, drawn
    said = " ".join(body["window"]["notes"])
    for tid, n, what in (108, waits, "shorter events"), (109, samples, "samples of CPU time"):
        left = n - drawn[tid]
        assert left > 0 and f"{left} {what}, {left * 9e-6:.3f} s together, are left out" in said, (said, drawn)


@stored
def test_a_service_without_rows(ask):
    """A name with a typing error: the services that waited in that time."""
    ask.thread("off_cpu_profile", 0, 1000, off_ns=1000, cause="net")
    said = "no row is of service shpo; the services of that time: shop"
    [window] = ask.trace(WINDOW, "--service=shpo", said=f".*{said}.*").of("underspan")
    assert said in str(window.notes), window.notes


@stored
def test_requests(ask):
    parts = {"accept_queue": 5, "queue": 20, "cpu": 30, "gil": 45, "gc_own": None}
    ask.request(0, parts, request_id=2**63 + 1, host_pid=107, host_tid=108, comm="gunicorn", trace_id="ab" * 16, thread_name="worker", queue_depth=3)
    ask.request(50, {"cpu": 100}, request_id=2, host_pid=107, host_tid=109, path="/b")  # overlaps
    ask.request(60, {"cpu": 10}, request_id=3, host_pid=107, host_tid=110, path="/c")   # within another
    ask.thread("handoff", 5, 20, queue="accept", pickup="read", handoff_ns=18_000_000)
    trace = ask.trace(WINDOW)
    requests = [s for s in trace.of("requests") if not s.depth]
    assert [(s.name, *at(ask, s)) for s in requests] == [("GET /orders", 0, 100), ("GET /b", 50, 100), ("GET /c", 60, 10)]
    parts = [(s.name, *at(ask, s)) for s in trace.of("requests") if s.depth]
    assert sorted(parts) == sorted([("in the accept queue", 0, 5), ("waits to be read", 5, 20), ("a thread has it", 25, 75),
                                    ("a thread has it", 50, 100), ("a thread has it", 60, 10)]), parts
    notes = requests[0].notes
    assert (notes["request id"], notes["trace id"], notes["status"], notes["gil, ms"], notes["queue depth"]) == (str(2**63 + 1), "ab" * 16, 200, 45, 3)
    assert "gc_own, ms" not in notes and notes["lock, ms"] == 0  # NULL is no figure
    assert [(s.name, *at(ask, s), s.notes["worker"], s.notes["waited for a thread, ms"]) for s in trace.of("hand-offs")] == [
        ("hand-off", 5, 20, "worker", 18)]


@stored
def test_random_rows_keep_their_durations(ask):
    """Overlapping waits at any microsecond: every row is a slice, no slice crosses another, lengths are those of the rows."""
    import random
    chance = random.Random(5)
    rows = [(chance.randrange(0, 50_000_000), chance.randrange(0, 3_000_000), chance.randrange(3)) for _ in range(3000)]
    ask.insert("ebpf_off_cpu", *[{"host": "h1", "pid": 7, "tid": tid, "host_pid": 107, "host_tid": 100 + tid, "thread_name": f"t{tid}", "cause": "lock",
                                 "start_time": ask.moment(begin // 1000 / 1000), "end_time": ask.moment((begin + ns) // 1000 / 1000), "duration_ns": ns}
                                for begin, ns, tid in rows])
    trace = ask.trace(WINDOW)
    for tid in range(3):
        slices = [s for s in trace.slices if s.track == f"t{tid}"]
        expected = sorted((T0 * 1000 + begin // 1000 * 1000, ns) for begin, ns, t in rows if t == tid)
        assert sorted((s.begin, round(s.notes["duration, ms"] * 1e6)) for s in slices) == expected
        assert all(0 <= round(s.notes["duration, ms"] * 1e6) - s.ns <= 2000 for s in slices)


@stored
def test_more_rows_than_a_file_holds(ask):
    """All of the slowest requests' threads, then the longest; what is left out is told to the nanosecond."""
    most, rows, short = 40_000, 45_000, 50
    ask.request(100, {"cpu": 100}, request_id=1, host_pid=107, host_tid=108)
    thread = "'h1', 7, {tid}, 107, 100 + {tid}, 'gunicorn', '{name}', 'lock'"
    for tid, name, n, of_begin, us in (5, "other", rows, "number * 20000", "10000 + number"), (8, "worker", short, "100000 + number * 1500", "1 + number"):
        begin = f"fromUnixTimestamp64Micro({ask.us(0)} + {of_begin}, 'UTC')"
        ask.store.ask(f"""INSERT INTO ebpf_off_cpu (host, pid, tid, host_pid, host_tid, comm, thread_name, cause, start_time, end_time, duration_ns, py_stack)
            SELECT {thread.format(tid=tid, name=name)}, {begin} AS b, b + toIntervalMicrosecond({us}), ({us}) * 1000,
            arrayMap(i -> concat(repeat('f', 110), toString(i)), range({15 if tid == 5 else 1})) FROM numbers({n})""")
    trace = ask.trace(WINDOW, said=".*only .* of 45050 rows.*")
    [note] = [text for text in trace.of("underspan")[0].notes.values() if "left out" in text]
    kept = most // 2  # 40,000 rows with such stacks are more than the 64 MiB that the client takes
    assert len(trace.of("worker")) == short and len(trace.of("other")) == kept - short
    assert min(s.notes["duration, ms"] for s in trace.of("other")) == pytest.approx((10000 + rows - (kept - short)) / 1000)
    left_us = sum(10000 + i for i in range(rows - (kept - short)))
    assert note == (f"waits off the CPU: only {kept} of {rows + short} rows, those of the slowest requests and the longest; "
                    f"left out: {rows + short - kept} rows, {left_us / 1e6:.3f} s together")


@stored
def test_two_windows(ask):
    """The window before lies at the same place of the time axis, its processes apart; threads of the same ids are not mixed."""
    ask.agent(-600_000, 100, trackers=["off_cpu", "gil_wait", "gc_pause", "handoff", "loop_stall", "request", "on_cpu"])
    ask.thread("off_cpu", 50, 5, cause="lock")
    for begin, ms in (-559_000, 7), (-558_000, 9):
        ask.thread("off_cpu", begin, ms, cause="net")
    ask.thread("gc_pause", -557_000, 20, tid=9, name="old", generation=1)
    ask.request(-556_000, {"cpu": 30}, request_id=4, host_pid=107, host_tid=108, comm="gunicorn", service="shop")
    since = round(time.time() - T0 / 1e6)
    trace = ask.trace(f"--since={since + 10}s", f"--until={since - 200}s", f"--against-since={since + 570}s", f"--against-until={since + 500}s")
    assert trace.processes == {107: "shop (gunicorn)"} and trace.threads == {(107, 108): "worker"}
    [window], [before] = trace.of("underspan"), trace.of("underspan: before")
    assert (window.begin, round(window.ns / 1e9), round(before.ns / 1e9)) == (before.begin, 210, 70)
    assert re.fullmatch(r"\S+ \S+ to \S+ UTC, measured for [67]\d\.\d s", before.name)
    shifted = lambda s: (round(at(ask, s)[0] - (window.begin - T0 * 1000) / 1e6), at(ask, s)[1])  # from the begin of the window
    place = {name: [shifted(s) for s in trace.of(name, process="shop (gunicorn)")] for name in ("worker", "requests")}
    [(here, ms)] = place["worker"]
    assert ms == 5 and abs(here - 10_050) < 2000 and not place["requests"]
    slices = {name: [shifted(s) for s in trace.of(name, process="")] for name in ("worker", "old", "requests")}
    first = slices["worker"][0][0]
    assert abs(first - 11_000) < 2000 and slices["worker"] == [(first, 7), (first + 1000, 9)]
    assert slices["old"] == [(first + 2000, 20)] and slices["requests"][0] == (first + 3000, 30)
    assert [name for name in {s.track for s in trace.slices} if name.startswith("before")] == []
    assert ("", "before: shop (gunicorn) (107)") in trace.tracks.values()
    ask.row("off_cpu", -558_000, 6, host="h2", cause="net", pid=1, tid=1, host_pid=201, host_tid=201)
    check_sentence(ask.command("timeline", f"--since={since + 10}s", f"--against-since={since + 570}s", "-o", "/dev/null"), USAGE, "several hosts", "--host")


@stored
def test_choice(ask):
    ask.thread("off_cpu", 0, 5, cause="lock")
    ask.row("off_cpu", 0, 6, cause="net", pid=1, tid=1, host_pid=201, host_tid=201, service="other", comm="c")
    assert sorted(ask.trace(WINDOW).processes) == [107, 201]
    for arguments in ("--service=shop",), ("-p107",), ("-p7",):
        assert list(ask.trace(WINDOW, *arguments).processes) == [107]
    [window] = ask.trace(f"--since={round(time.time() - T0 / 1e6) - 100}s", "--until=1500s").slices  # measured, and nothing waited
    assert window.track == "underspan"
    ask.row("off_cpu", 0, 6, host="h2", cause="net", pid=1, tid=1, host_pid=201, host_tid=201)
    check_sentence(ask.command("timeline", WINDOW, "-o", "/dev/null"), USAGE, "several hosts", "--host")
    assert ask.trace(WINDOW, "--host=h2", said="underspan: warning: not measured.*").processes == {201: ""}


@stored
def test_not_measured(ask, shared, tmp_path):
    ask = Timeline(shared, tmp_path)
    check_sentence(ask.command("timeline", WINDOW, "-o", str(ask.path)), FAILED, "nothing was measured")
    assert not ask.path.exists()
    ask.agent(-10_000, 300, trackers=["gc_pause"])
    ask.thread("gc_pause", 0, 5, generation=1)
    [window] = ask.trace(WINDOW, said=".*").of("underspan")
    assert sorted(window.notes.values()) == sorted(f"not measured: {what}" for what in (
        "requests", "hand-offs", "waits for the GIL", "stalls of event loops", "waits off the CPU", "samples of CPU time"))


@stored
def test_hostile_names(ask):
    ask.thread("off_cpu", 0, 5, name=EVIL, cause="lock", py_stack=[EVIL * 10_000], syscall=EVIL)
    ask.request(0, {"cpu": 5}, host_pid=107, host_tid=108, path="/" + EVIL, comm=EVIL)
    trace = ask.trace(WINDOW)
    texts = [*trace.processes.values(), *trace.threads.values()]
    for s in trace.slices:
        texts += [s.name, s.track, *s.notes, *(v for v in s.notes.values() if isinstance(v, str))]
    assert sum("alert(1)" in t for t in texts) >= 6 and all(t.isprintable() for t in texts) and len(ask.path.read_bytes()) < 50_000


def test_bad_input(tmp_path):
    run = lambda *a: subprocess.run([UNDERSPAN, "timeline", *a], capture_output=True, text=True, timeout=60)
    check_sentence(run(), USAGE, "pid")
    check_sentence(run("-p1"), USAGE, "output", "FILE.pftrace")
    check_sentence(run("-p1", "-o", str(tmp_path / "no" / "x.html")), FAILED, "cannot be written")
    check_sentence(run("--since=5m", "-d1", "-o", str(tmp_path / "x.html")), USAGE, "leave out -d")
    check_sentence(run("--since=5m", "-o", str(tmp_path / "x.PFTRACE")), USAGE, "no database given")
    for name in "x", "x.xyz", "x.pftrace.gz", "x.htm", "html":
        check_sentence(run("--since=5m", "--store=/dev/null", "-o", str(tmp_path / name)), USAGE, f"output: {tmp_path / name}: use FILE.html for a page, or FILE.pftrace")
    assert not any(tmp_path.iterdir())


PROGRAM = """
import gc, threading, time, json
naps = []
def nap(): time.sleep(0.05)
def work():
    while True:
        begin = time.time_ns(); nap(); naps.append([begin, time.time_ns()])
def spin():
    while True: sum(range(100000))
threading.Thread(target=work, name="napper", daemon=True).start()
threading.Thread(target=spin, name="spinner", daemon=True).start()
threading.Thread(target=spin, name="rival", daemon=True).start()
heap = [[i] for i in range(1_000_000)]
print("ready", flush=True)
truth = []
def seen(phase, info):
    if phase == "start": truth.append([time.time_ns(), 0])
    else: truth[-1][1] = time.time_ns()
gc.disable()
gc.callbacks.append(seen)
input()
for _ in range(3):
    gc.collect()
    time.sleep(0.2)
print(json.dumps([truth, naps]), flush=True)
input()
"""


def cpu_ns(pid):
    """CPU time of each thread, as the kernel counts it."""
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()}


def test_live(tmp_path, cleanup):
    """Collections lie where the program says, to 2 ms; a napper sleeps 50 ms; the spinners hold the GIL while others wait, and have the samples."""
    process = subprocess.Popen(["/usr/bin/python3", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    cleanup.append(process)
    process.stdout.readline()
    path = tmp_path / "live.pftrace"
    command = subprocess.Popen([UNDERSPAN, "timeline", f"-p{process.pid}", "-d10", "-o", path], stderr=subprocess.PIPE, text=True)
    cleanup.append(command)
    until_attached(command.pid)
    cpu, begin = cpu_ns(process.pid), time.monotonic_ns()
    process.stdin.write("\n")
    process.stdin.flush()
    truth, told = json.loads(process.stdout.readline())
    time.sleep(5)
    share = {tid: (ns - cpu[tid]) / (time.monotonic_ns() - begin) for tid, ns in cpu_ns(process.pid).items()}
    assert command.wait(60) == 0, command.stderr.read()
    trace = Trace(path.read_bytes())
    assert list(trace.processes) == [process.pid] and {"MainThread", "napper", "spinner", "rival"} <= set(trace.threads.values())
    collections = [s for s in trace.of("MainThread") if s.name == "collection, generation 2"]
    assert len(collections) == 3
    for s, (begin, end) in zip(collections, truth):
        # the program's own reading at the end may wait, for the GIL or a CPU, also for less than has a row
        waited = sum(w.ns for w in trace.of("MainThread") if w.depth == 0 and s.end <= w.begin < end)
        assert abs(s.begin - begin) < 2e6 and -1e5 < end - s.end < waited + 15e6, (s, begin, end, waited)
    naps = [s for s in trace.of("napper") if s.name == "off the CPU: sleep"]
    told = [(begin, end) for begin, end in told if naps[0].begin < begin]
    found = [[s for s in naps if begin <= s.begin and s.end <= end] for begin, end in told]
    assert len(told) > 20 and sum(map(len, found)) == len([s for s in naps if told[0][0] <= s.begin <= told[-1][1]])  # none outside of a nap
    assert sum(len(slices) == 1 for slices in found) > 0.95 * len(found), found  # a thread may be preempted before the sleep
    unnamed = [s for s in naps if not s.notes.get("Python stack", "").startswith("nap (<string>:4) < work")]
    assert len(unnamed) <= 3, unnamed  # the first, while the trackers attach
    waits = [s for name in ("rival", "spinner") for s in trace.of(name) if s.name == "waits for the GIL"]
    held = {name: sum(s.ns for s in trace.of("holder of the GIL, while others wait") if s.name == name) for name in ("spinner", "rival")}
    assert waits and all(ns > 5e8 for ns in held.values()), held
    [window] = trace.of("underspan")
    samples = {name: [s for s in trace.of(name) if s.instant] for name in ("spinner", "rival")}
    share = {name: share[tid] for (_, tid), name in trace.threads.items()}
    for name, found in samples.items():
        sampled = sum(s.notes["CPU time by the clock, ms"] * 1e6 for s in found) / window.ns
        assert 0.75 * share[name] < sampled < 1.25 * share[name] and share[name] > 0.1, (name, sampled, share)
        assert sum(s.name == "on a CPU: spin (<string>:9)" for s in found) > 0.95 * len(found), [s.name for s in found]
        waits = [w for w in trace.of(name) if w.name.startswith(("off", "waits for a CPU"))]
        assert sum(w.begin + 1e5 < s.begin < w.end - 1e5 for w in waits for s in found) <= len(found) / 100  # a thread that waits computes nothing
    assert 9.5e9 < window.ns < 16e9 and window.begin < collections[0].begin < window.end
