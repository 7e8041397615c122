# SPDX-License-Identifier: Apache-2.0
"""`underspan top` of a window of a database: known rows in, exact shares out; and the same seconds live and stored."""
import json
import re
import signal
import subprocess
import time

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build, run_underspan
from answers import store_of_answers
from test_errors import FAILED, USAGE, check_sentence
from test_top import COMPUTES, check_computed, until_attached
from test_printable import EVIL, check_printable
from test_window import LONG, Window, ago, emptied

pytestmark = plain_build(NO_ENGINE)
TRACKERS = ["off_cpu_profile", "gil_wait_profile", "gc_pause", "loop_stall", "request", "on_cpu"]
APP = "get (/srv/app.py:3)"
LIBRARY = ["select (/usr/lib/python3.11/selectors.py:1)", APP]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with store_of_answers(tmp_path_factory.mktemp("top")) as store:
        yield store


@pytest.fixture
def ask(shared):
    return Window(emptied(shared))


@pytest.fixture
def known(ask):
    """100 s from T0, with 10 s of the tracker loop_stall."""
    ask.agent(0, 100, trackers=TRACKERS[:3] + TRACKERS[4:])
    ask.agent(0, 10, trackers=["loop_stall"])
    for tracker in "gil_wait", "on_cpu":
        ask.known(pid=107, tracker=tracker)
    ask.off(10, 1000, stack=LIBRARY, runq_ns=200_000_000)            # worker: sleep 800, runq 200 ms
    ask.off(20, 500, cause="gil", stack=[APP], weight=2)             # 1,000 ms
    ask.off(20, 300, cause="lock", tid=9, host_tid=109, name="pool_1", stack=[])
    ask.off(20, 100, cause="net", tid=10, host_tid=110, name="pool_2", stack=LIBRARY[:1])
    ask.off(30, 9000, cause="net", idle=1, tid=10, host_tid=110, name="", stack=[])  # named by the other row
    ask.off(30, 700, cause="preempt", pid=17, host_pid=207, host_tid=207, tid=17, name="", comm="celery", service="other", stack=[])
    ask.off(95, 999)                                                 # ends later
    ask.waits(20, 1000, holder_tid=9, holder_host_tid=109)
    ask.waits(20, 50, weight=2, tid=9, host_tid=109, holder_tid=8, holder_host_tid=108)
    ask.row("gc_pause", 5000, 250, host_pid=107, host_tid=108, thread_name="worker", service="shop", comm="python", py_stack=[APP], generation=2)
    ask.row("loop_stall", 6000, 400, host_pid=107, host_tid=108, thread_name="worker", service="shop", comm="python", py_stack=[APP])
    for at, stack, more in (5000, LIBRARY, {"weight": 2}), (5100, [APP], {}), (5200, [], {"host_tid": 109, "tid": 9, "thread_name": "pool_1"}):
        ask.row("on_cpu", at, 50, **{**dict(host_pid=107, host_tid=108, tid=8, thread_name="worker", service="shop", comm="python"), **more}, py_stack=stack)
    for at, more in (7000, {"busy_threads": 3, "queue_depth": 4}), (8000, {"weight": 3, "queue_depth": None}):
        ask.request(at, {"queue": 20, "cpu": 30, "gil": 5, "net": 7}, host_pid=107, host_tid=108, comm="python", service="shop", **more)
    return ask


def window():
    return f"--since={ago(0)}", f"--until={ago(100_000)}"


def ms(shares, seconds=100):
    """Milliseconds of the window other than 0; None: not measured."""
    return {part: None if share is None else round(share * seconds * 1000, 1) for part, share in shares.items() if share is None or share}


def test_known_rows(known):
    report = known.json("top", *window(), "--threads")
    assert report["duration_s"] == pytest.approx(100, abs=2) and report["not_measured"] == ["loop_stall"], report
    seconds = report["duration_s"]
    shop, other = report["processes"]
    assert (shop["host_pid"], shop["comm"], shop["service"], shop["gil_measured"]) == (107, "python", "shop", True)
    assert (other["host_pid"], other["comm"], other["service"], other["gil_measured"]) == (207, "celery", "other", False)
    assert ms(shop["shares"], seconds) == {"gil": 1000, "lock": 300, "net": 100, "sleep": 800, "runq": 200, "idle": 9000, "gc": 250, "cpu": 200}
    assert ms(other["shares"], seconds) == {"gil": None, "other": 0, "runq": 700, "cpu": None} or ms(other["shares"], seconds) == {"gil": None, "runq": 700, "cpu": None}
    threads = {t["name"]: ms(t["shares"], seconds) for t in shop["threads"]}
    assert threads == {"worker": {"gil": 1000, "sleep": 800, "runq": 200, "gc": 250, "held": 100, "cpu": 150},
                       "pool_1": {"lock": 300, "held": 1000, "cpu": 50}, "pool_2": {"net": 100, "idle": 9000}}
    lines = {line["line"]: ms(line["shares"], seconds) for line in shop["lines"]}
    assert lines == {APP: {"gil": 1000, "sleep": 800, "runq": 200, "gc": 250, "cpu": 150}, LIBRARY[0]: {"net": 100},
                     "(no Python stack)": {"lock": 300, "idle": 9000, "cpu": 50}}, lines
    assert (shop["requests"], shop["busy_max"], shop["waiting_max"], shop["lag_ns"]) == (4, 4, 4, 400_000_000)
    assert shop["hidden_share"] * seconds == pytest.approx(0.1) and shop["request_parts_ns"]["net"] == 28e6
    pools = {t["name"]: t["threads"] for t in known.json("top", *window())["processes"][0]["threads"]}
    assert pools == {"worker": 1, "pool_*": 2}


def test_missing_parts(ask):
    """The hidden time of requests that lack a part is a least value, and is said to be."""
    ask.agent(0, 100, trackers=TRACKERS)
    for host_pid, at, parts in ((107, 7000, {"queue": 20, "gil": None}), (107, 8000, {"queue": 30, "gil": 5}), (207, 7000, {"queue": None, "gil": 4}),
                                (307, 7000, {"queue": 1, "gc_own": None})):
        ask.request(at, parts, request_id=at + host_pid, pid=host_pid - 100, host_pid=host_pid, host_tid=host_pid, comm="python", service="shop")
    by_pid = {p["host_pid"]: p for p in ask.json("top", *window())["processes"]}
    assert {pid: p["hidden_is_least"] for pid, p in by_pid.items()} == {107: True, 207: True, 307: False}
    assert {pid: [p["request_parts_ns"][part] for part in ("queue", "gil", "gc_own")] for pid, p in by_pid.items()} == {
        107: [50e6, 5e6, 0], 207: [None, 4e6, 0], 307: [1e6, 0, None]}
    # the column "hidden"
    shown = ask.command("top", *window()).stdout
    assert sum(re.search(r"\d\+ ", line) is not None for line in shown.splitlines()) == 2, shown


def test_choice(known):
    for arguments, pids in (("--service=other",), [207]), (("-p107",), [107]), (("-p17",), [207]), (("--host=h1",), [107, 207]):
        assert [p["host_pid"] for p in known.json("top", *window(), *arguments)["processes"]] == pids, arguments
    known.off(20, 1, host="h2")
    check_sentence(known.command("top", *window()), USAGE, "several hosts", "--host")
    assert len(known.json("top", *window(), "--host=h1")["processes"]) == 2


def test_text(known):
    text = known.command("top", *window()).stdout
    assert re.match(r"all services, .* UTC, measured for [\d.]+ s; CPU times by samples\n", text) and max(map(len, text.splitlines()[1:])) <= 80
    assert "not measured all the time (-): loop_stall" in text
    assert re.search(r"^ *107 shop \(python\) .* 4 +4 ", text, re.M) and re.search(r"^ *107 pool_\* +2 ", text, re.M), text
    assert APP in text


def test_not_measured(ask):
    check_sentence(ask.command("top", LONG), FAILED, "nothing was measured")
    ask.agent(0, 100, trackers=TRACKERS)
    assert ask.json("top", LONG)["processes"] == []
    check_sentence(ask.command("top", LONG, "-p55"), FAILED, r"no agent watched a process of \[55\]")
    ask.off(10, 5)
    [found] = ask.json("top", LONG)["processes"]
    assert (found["gil_measured"], found["shares"]["gil"], found["busy_max"]) == (False, None, None)


def test_trackers_that_say_the_same_are_one_note(ask):
    ask.agent(0, 100, trackers=TRACKERS)
    ask.off(10, 5)
    for tracker in TRACKERS:
        ask.known(pid=55, tracker=tracker, live=0, reason="its file is not read")
    ask.known(pid=56, tracker="request", live=0, reason="its ports are not watched")
    # which events the governor's word is of must be seen
    ask.known(pid=0, tracker="gc_pause", live=0, reason="taken out by the governor: not measured since 10:00")
    notes = ask.json("top", LONG)["notes"]
    assert sorted(notes) == ["host h1, collections: taken out by the governor: not measured since 10:00",
                             "host h1, pid 55: its file is not read", "host h1, pid 56: its ports are not watched"]


def test_bad_input(ask):
    check_sentence(run_underspan("top", "--since=5m"), USAGE, "no database given")
    check_sentence(ask.command("top", "--since=5m", "-d1"), USAGE, "leave out -d")
    check_sentence(ask.command("top", "--since=5m", "--until=6m"), USAGE, "until")


def against():
    """The 100 s from T0, and the 100 s before."""
    return *window(), f"--against-since={ago(-100_000)}", f"--against-until={ago(0)}"


@pytest.fixture
def two(known):
    """The known window, and before it one of 10 measured seconds, of the service's processes before a restart: other pids, one with two workers."""
    known.agent(-100_000, 10, trackers=TRACKERS)
    for pid in 57, 58:
        for tracker in "gil_wait", "on_cpu":
            known.known(pid=pid, tracker=tracker)
    known.row("on_cpu", -65_000, 70, pid=57, tid=57, host_pid=57, host_tid=57, thread_name="worker", service="shop", comm="python", py_stack=[APP])
    for pid, ms in (57, 300), (58, 100):
        known.off(-90, ms, stack=LIBRARY, pid=pid, tid=pid, host_pid=pid, host_tid=pid, name="worker")
    known.off(-80, 250, cause="gil", stack=[APP], pid=57, tid=59, host_pid=57, host_tid=59, name="old")
    known.off(-80, 500, cause="preempt", pid=61, host_pid=61, host_tid=61, tid=61, name="", comm="flower", service="", stack=[])
    known.row("gc_pause", -70_000, 50, pid=57, tid=57, host_pid=57, host_tid=57, thread_name="worker", service="shop", comm="python", py_stack=[APP], generation=2)
    for at, pid, more in (-60_000, 57, {"busy_threads": 1, "queue_depth": 9}), (-59_000, 58, {"busy_threads": 6, "queue_depth": None}):
        known.request(at, {"queue": 40, "cpu": 30, "gil": 5}, request_id=-at, pid=pid, host_pid=pid, host_tid=pid, comm="python", service="shop", **more)
    return known


def test_two_windows(two):
    """Processes of a service are one; each figure of both windows is exact, also of what is in one window only."""
    report = two.json("top", *against(), "--threads")
    now_s, before_s = report["duration_s"], report["before"]["duration_s"]
    assert (now_s, before_s) == (pytest.approx(100, abs=2), pytest.approx(10, abs=2))
    assert (report["not_measured"], report["before"]["not_measured"]) == (["loop_stall"], [])
    assert report["against"]["to_us"] == pytest.approx(report["from_us"], abs=3e6)
    by_name = {p["service"] or p["comm"]: p for p in report["processes"]}
    assert {name: (p["processes"], p["before"]["processes"]) for name, p in by_name.items()} == {"shop": (1, 2), "other": (1, 0), "flower": (0, 1)}
    shop, other, flower = by_name["shop"], by_name["other"], by_name["flower"]
    assert ms(shop["shares"], now_s) == {"gil": 1000, "lock": 300, "net": 100, "sleep": 800, "runq": 200, "idle": 9000, "gc": 250, "cpu": 200}
    assert ms(shop["before"]["shares"], before_s) == {"gil": 250, "sleep": 400, "gc": 50, "cpu": 70}
    assert (ms(flower["shares"], now_s), ms(flower["before"]["shares"], before_s)) == ({"gil": None, "cpu": None}, {"gil": None, "runq": 500, "cpu": None})
    assert ms(other["before"]["shares"], before_s) == {"gil": None, "cpu": None} and ms(other["shares"], now_s)["runq"] == 700
    assert [(p["requests"], p["busy_max"], p["waiting_max"], p["request_parts_ns"]["queue"]) for p in (shop, shop["before"])] == [
        (4, 4, 4, 80e6), (2, 7, 9, 80e6)]
    assert shop["before"]["hidden_share"] * before_s == pytest.approx(0.09) and (shop["lag_ns"], shop["before"]["lag_ns"]) == (400_000_000, None)
    threads = {t["name"]: (ms(t["shares"], now_s), t["threads"], ms(t["before"]["shares"], before_s), t["before"]["threads"]) for t in shop["threads"]}
    assert threads["worker"] == ({"gil": 1000, "sleep": 800, "runq": 200, "gc": 250, "held": 100, "cpu": 150}, 1, {"sleep": 400, "gc": 50, "cpu": 70}, 2)
    assert threads["old"] == ({}, 0, {"gil": 250}, 1) and set(threads) == {"worker", "old", "pool_1", "pool_2"}
    lines = {line["line"]: (ms(line["shares"], now_s), ms(line["before"]["shares"], before_s)) for line in shop["lines"]}
    assert lines[APP] == ({"gil": 1000, "sleep": 800, "runq": 200, "gc": 250, "cpu": 150}, {"gil": 250, "sleep": 400, "gc": 50, "cpu": 70})
    # what changed most is first, as a share of the time: 0 against 50 of 1,000, 26 against 70, 7 against 0
    assert [p["service"] or p["comm"] for p in report["processes"]] == ["flower", "shop", "other"]


def test_text_of_two_windows(two):
    text = two.command("top", *against()).stdout
    lines = text.splitlines()
    assert re.match(r"before, .* UTC, measured for [\d.]+ s; what changed most is first$", lines[1]) and max(map(len, lines[2:])) <= 80
    assert re.search(r"^ *1 x shop \(python\) .*\n *2 x +before .* 7 +9 ", text, re.M), text
    assert re.search(r"^ *0 x flower .*\n *1 x +before ", text, re.M) and "not measured all the time (-): loop_stall" in lines


def test_before_nothing_was_measured(known):
    report = known.json("top", *window(), f"--against-since={ago(-300_000)}", f"--against-until={ago(-200_000)}")
    assert "before: nothing was measured in that time" in report["notes"]
    [shop] = [p for p in report["processes"] if p["service"] == "shop"]
    assert set(shop["before"]["shares"].values()) == {None} and report["before"]["duration_s"] == 0
    check_sentence(known.command("top", *window(), "--against-since=5s"), USAGE, "against-since", "--against-until")
    check_sentence(run_underspan("top", "--against-since=1h"), USAGE, "no database given")


def test_hostile_names(known):
    evil = EVIL.decode("utf-8", "replace")
    known.off(20, 5000, name=evil, comm=evil[:15], service=evil, stack=[evil + " (x.py:1)"])
    done = known.command("top", *window())
    assert done.returncode == 0 and "owned" in done.stdout
    check_printable(done.stdout.encode(), "top")


PROGRAM = """
import gc, threading, time
lock = threading.Lock()
def nap(): time.sleep(0.02)
def work():
    for _ in range(150): nap()
def hold():
    for _ in range(30):
        with lock: time.sleep(0.05)
        time.sleep(0.02)
def wait():
    for _ in range(30):
        with lock: pass
        time.sleep(0.005)
threads = [threading.Thread(target=work, name=f"napper-{i}") for i in range(2)] + [threading.Thread(target=f, name=f.__name__) for f in (hold, wait)]
print("ready", flush=True)
input()
for t in threads: t.start()
for t in threads: t.join()
print("done", flush=True)
input()
"""


def test_tables_of_an_older_agent(ask):
    """No CPU time is not the same as not measured."""
    ask.agent(0, 100, trackers=TRACKERS[:-1])
    ask.off(10, 5)
    ask.store.ask("DROP TABLE ebpf_on_cpu")
    report = ask.json("top", *window())
    assert report["not_measured"] == ["on_cpu"] and report["processes"][0]["shares"]["cpu"] is None, report
    assert report["processes"][0]["shares"]["sleep"] > 0
    text = ask.command("top", *window()).stdout
    assert "not measured all the time (-): on_cpu" in text, text
    ask.apply()


def run_both(ask, tmp_path, cleanup, program, *options):
    """An agent with a database and a live `top` beside the program: what it told, and the reports."""
    process = subprocess.Popen(["/usr/bin/python3", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    cleanup.append(process)
    process.stdout.readline()
    agent = subprocess.Popen([UNDERSPAN, "run", f"--clickhouse={ask.store.url}", f"--pid={process.pid}", "--off_cpu.profile_interval=1",
                              f"--spool.directory={tmp_path}", "--report_interval=1", "--governor.cpu_percent=0", *options], env=ask.env, stderr=subprocess.PIPE,
                             text=True)
    cleanup.append(agent)
    until_attached(agent.pid)
    live = subprocess.Popen([UNDERSPAN, "top", f"-p{process.pid}", "-d0", "--once", "--json", "--threads"], stdout=subprocess.PIPE, text=True)
    cleanup.append(live)
    until_attached(live.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    told = process.stdout.readline()
    time.sleep(1.5)
    live.send_signal(signal.SIGINT)
    seen = json.loads(live.communicate(timeout=60)[0])
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait()
    agent.terminate()
    assert agent.wait(20) == 0, agent.stderr.read()
    return told, seen, ask.json("top", "--since=60s", f"-p{process.pid}", "--threads")


def test_live_and_stored_agree(ask, tmp_path, cleanup):
    """An agent with a database and a live `top` see the same seconds."""
    _, seen, stored = run_both(ask, tmp_path, cleanup, PROGRAM)
    times = [{t["name"]: {part: (t["shares"][part] or 0) * report["duration_s"] for part in ("sleep", "lock")} for t in report["processes"][0]["threads"]}
             for report in (seen, stored)]
    for name in "napper-0", "napper-1", "hold", "wait":
        assert all(name in of_report for of_report in times), (name, [list(of_report) for of_report in times])
        for part in "sleep", "lock":
            assert times[1][name][part] == pytest.approx(times[0][name][part], rel=0.03, abs=0.02), (name, part, times, stored["notes"], stored["not_measured"])
    assert 3 <= times[1]["napper-0"]["sleep"] < 4.5 and times[1]["wait"]["lock"] > 0.1, times


def test_computation_stored_is_the_threads_own(ask, tmp_path, cleanup):
    """Of a window all CPU times are by samples, and of all threads and lines; each against the thread's own clock, as of a live `top`."""
    told, seen, stored = run_both(ask, tmp_path, cleanup, COMPUTES, "--on_cpu.hertz=97")
    for report, hertz, exact in (seen, 49, True), (stored, 97, False):
        assert "on_cpu" not in report["not_measured"], report
        check_computed(report["processes"][0], report["duration_s"], json.loads(told), hertz, exact)
