# SPDX-License-Identifier: Apache-2.0
"""`underspan offcpu` and `gil` of a window of a database: known rows in, exact numbers out; and the same seconds live and stored."""
import gzip
import json
import re
import signal
import subprocess
import time
from collections import Counter

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build, run_underspan
from answers import Answers, emptied, store_of_answers
from store_fixture import Store
from test_errors import FAILED, USAGE, check_sentence
from test_top import until_attached

pytestmark = plain_build(NO_ENGINE)
T0 = (int(time.time()) - 1800) * 1_000_000  # half an hour ago
LONG = "--since=2h"
NAP = ["nap (/srv/app.py:3)", "work (/srv/app.py:5)"]
READ = ["read (/srv/db.py:7)", "work (/srv/app.py:5)"]


class Window(Answers):
    def __init__(self, store):
        super().__init__(store, T0)

    def off(self, at, ms, cause="sleep", stack=NAP, name="worker", seconds=10, **more):
        """An interval of the sums that began at `at` seconds."""
        self.insert("ebpf_off_cpu_profile", {
            "host": "h1", "pid": 7, "tid": 8, "host_pid": 107, "host_tid": 108, "comm": "python", "thread_name": name, "service": "shop",
            "start_time": self.moment(at * 1000), "end_time": self.moment((at + seconds) * 1000), "duration_ns": seconds * 10**9,
            "count": 1, "off_ns": round(ms * 1e6), "cause": cause, "state": "S", "syscall": "clock_nanosleep", "py_stack": stack, **more})

    def waits(self, at, ms, name="worker", waits=3, **more):
        self.insert("ebpf_gil_wait_profile", {
            "host": "h1", "pid": 7, "tid": 8, "host_pid": 107, "host_tid": 108, "comm": "python", "thread_name": name, "service": "shop",
            "start_time": self.moment(at * 1000), "end_time": self.moment(at * 1000 + 10_000), "waits": waits, "wait_ns": round(ms * 1e6),
            "max_ns": round(ms * 1e6 / waits), **more})

    def wait(self, at, ms, holders, line="spin (/srv/app.py:9)", weight=1, **more):
        self.insert("ebpf_gil_wait", {
            "host": "h1", "pid": 7, "tid": 8, "host_pid": 107, "host_tid": 108, "thread_name": "worker", "service": "shop", "weight": weight,
            "start_time": self.moment(at * 1000 - ms), "end_time": self.moment(at * 1000), "duration_ns": round(ms * 1e6), "method": "sched",
            "holders": [{"tid": tid, "ns": round(part * 1e6), "thread_name": name} for tid, part, name in holders],
            "holder_py_stack": [line] if line else [], **more})

    def json(self, *arguments):
        done = self.command(*arguments, "--json")
        assert (done.returncode, done.stderr) == (0, ""), done
        return json.loads(done.stdout)

    def stacks(self, *arguments):
        """{(frames): microseconds}"""
        return {tuple(s["frames"]): s["us"] for s in self.json("offcpu", *arguments)["stacks"]}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with store_of_answers(tmp_path_factory.mktemp("window")) as store:
        yield store


@pytest.fixture
def ask(shared):
    return Window(emptied(shared))


def ago(ms):
    """An option's value for a moment after T0, on a second or two: rows lie five seconds apart from edges."""
    return f"{round(time.time() - T0 / 1e6 - ms / 1000)}s"


@pytest.fixture
def known(ask):
    """Two windows of 100 s, from -200 and from 0; an interval belongs to the window of its end."""
    ask.agent(-200_000, 300, trackers=["off_cpu_profile", "gil_wait_profile"])
    ask.off(-5, 10)              # ends at 5: of the second window
    ask.off(-15, 7)              # ends at -5: of the first
    ask.off(20, 27, weight=2)
    ask.off(40, 5, stack=READ, cause="net", syscall="recvfrom")
    ask.off(50, 2, tid=9, host_tid=109, host_pid=207, pid=17)  # the same thread name in a second process
    ask.off(60, 3, service="other", host="h2", name="MainThread")
    ask.off(0, 6, name="", comm="x")  # before the name was read
    ask.off(70, 4, tid=99, stack=[], kernel_stack=["futex_wait"], user_stack=["take", "main"], cause="lock", syscall="futex", name="")
    ask.off(85, 1, host_pid=0, pid=0, tid=0, service="", name="", stack=[], cause="disk", syscall="")
    ask.off(95, 999)             # ends later
    return ask


def window(since=0, until=100_000):
    return f"--since={ago(since)}", f"--until={ago(until)}"


NAPS = ("worker (shop)", *reversed(NAP), "clock_nanosleep [sleep]")


def test_stacks_of_a_window(known):
    assert known.stacks(*window()) == {
        NAPS: 72_000, ("worker (shop)", *reversed(READ), "recvfrom [net]"): 5_000, ("python (shop)", "main", "take", "futex_wait", "futex [lock]"): 4_000,
        ("MainThread (other)", *reversed(NAP), "clock_nanosleep [sleep]"): 3_000, ("[found no room in the kernel]", "[disk]"): 1_000}
    assert known.stacks(*window(-200_000, 0)) == {("worker", *reversed(NAP), "clock_nanosleep [sleep]"): 7_000}
    shop = {("worker", *NAPS[1:]): 72_000, ("worker", *reversed(READ), "recvfrom [net]"): 5_000, ("python", "main", "take", "futex_wait", "futex [lock]"): 4_000}
    assert known.stacks("--service=shop", *window()) == shop == known.stacks("--service=shop", "--host=h1", *window())
    assert known.stacks("-p107", *window()) == known.stacks("-p7", *window()) != shop
    assert known.stacks("-p107,207", *window())[("worker (h1, pid 207)", *NAPS[1:])] == 2_000
    assert known.stacks("--host=h2", *window()) == {("MainThread", *NAPS[1:]): 3_000}
    report = known.json("offcpu", "--service=shop", *window())
    assert (report["off_cpu_us"], report["service"], report["pids"], report["notes"]) == (81_000, "shop", [], [])
    assert (report["begin_us"], report["end_us"]) == (T0 - 5_000_000, T0 + 80_000_000)
    assert round(report["measured_s"]) == 100 and abs(report["duration_s"] - 100) < 2
    woken = known.stacks("--wakers", "--host=h2", *window())
    assert woken == {("MainThread", *NAPS[1:], "--", "[no thread: a timer or a device]"): 3_000}


def test_pods_and_containers(known):
    """Each command's answers of a namespace, a pod, a container: the rows of that alone."""
    known.agent(-200_000, 300, trackers=["request"])
    here = {"namespace": "prod", "pod": "shop-1", "container": "web", "container_id": "c" * 64}
    places = [here, {**here, "namespace": "test"}, {**here, "pod": "shop-2"}, {**here, "container": "side", "container_id": "d" * 64}]
    for i, place in enumerate(places):
        known.off(10, 2**i, name=f"at {i}", **place)
        known.waits(10, 2**i, name=f"at {i}", **place)
        known.wait(10, 2**i, [(9, 2**i, f"at {i}")], **place)
        known.insert("ebpf_request", {
            "host": "h1", "pid": 7, "tid": 8, "host_pid": 107, "host_tid": 108, "comm": "python", "service": "shop", "request_id": 1000 + i,
            "start_time": known.moment(10_000), "end_time": known.moment(10_000 + 2**i), "duration_ns": 2**i * 10**6, "method": "GET",
            "path": f"/at/{i}", "status": 200, **place})
    for chosen, which in [(["--namespace=prod"], {0, 2, 3}), (["--pod=shop-1"], {0, 1, 3}), (["--container=web"], {0, 1, 2}),
                          (["--container=dddddddddddd"], {3}), (["--container=d"], set()), (["--namespace=prod", "--pod=shop-1", "--container=web"], {0}),
                          (["--pod=' OR 1=1"], set())]:
        ms = sum(2**i for i in which)
        off, gil, top = (known.json(command, *chosen, *window()) for command in ("offcpu", "gil", "top"))
        assert (off["off_cpu_us"], gil["wait_ns"]) == (ms * 1000, ms * 1_000_000), (chosen, off, gil)
        assert {t["thread_name"] for t in gil["threads"]} == {f"at {i}" for i in which}, (chosen, gil)
        assert sum(h["wait_ns"] for h in gil["holders"]) == ms * 1_000_000, (chosen, gil)
        assert round(sum(p["requests"] or 0 for p in top["processes"])) == len(which), (chosen, top)
        requests = known.json("requests", *chosen, *window())
        assert {r["path"] for r in requests["slowest"]} == {f"/at/{i}" for i in which} and requests["requests"] == len(which), (chosen, requests)
    assert "pod shop-1" in known.command("offcpu", "--pod=shop-1", *window()).stdout


def test_a_service_without_rows(known):
    """A name with a typing error: the answer names the services of that time, most rows first."""
    known.waits(10, 4)
    for command, services in ("offcpu", "shop, other"), ("gil", "shop"), ("top", "shop, other"):
        report = known.json(command, "--service=shpo", *window())
        assert report["notes"] == [f"no row is of service shpo; the services of that time: {services}"], report
    report = known.json("gil", "--service=other", *window())  # waits of other kinds
    assert report["notes"] == ["service other was watched in that time, and has no row of ebpf_gil_wait_profile"], report
    known.agent(-200_000, 300, trackers=["request"])
    report = known.json("requests", "--service=shpo", *window())
    assert report["notes"] == ["no row is of service shpo; the services of that time: none"], report


def test_a_host_without_rows(known):
    """A name with a typing error: the answer names the hosts whose agents reported in that time, printable and at most ten."""
    known.agent(-200_000, 100, host="before", trackers=["off_cpu_profile"])
    known.agent(0, 100, host="web\x1b]0;x\x07-2", trackers=["gc_pause"])
    commands = [("offcpu",), ("gil",), ("requests",), ("top", "--once"), ("timeline", "-o", "/dev/null")]
    for command in commands:
        said = known.command(*command, "--host=h3", *window())
        message = "underspan: error: nothing was measured: no agent of host h3 reported in that time; the hosts of that time: h1, web?]0;x?-2\n"
        assert (said.returncode, said.stdout, said.stderr) == (1, "", message), said
    # a host that is there, but not with the tracker
    said = known.command("requests", "--host=h1", *window()).stderr
    assert "no agent with the tracker `request` reported" in said and "hosts of that time" not in said, said
    for i in range(20):
        known.agent(0, 100, host=f"m{i:02}", trackers=["gc_pause"])
    said = known.command("gil", "--host=h3", *window()).stderr
    assert said.endswith(f"the hosts of that time: h1, {', '.join(f'm{i:02}' for i in range(9))}\n"), said
    said = known.command("requests", "--host=m19", *window()).stderr
    assert "hosts of that time" not in said, said


def test_native_frames_below_python(known):
    """Frames of the interpreter and above have the Python frames in their place; a preempted thread has no native stack."""
    native = {"kernel_stack": ["futex_wait", "do_futex"], "user_stack": ["sem_wait", "acquire", "_PyEval_EvalFrameDefault", "main"]}
    known.off(20, 8, stack=READ, cause="lock", syscall="futex", **native)
    known.off(25, 9, stack=[], cause="lock", syscall="futex", **native)
    known.off(30, 2, stack=READ, cause="preempt", syscall="", state="R", **native)
    python, below = ("worker", *reversed(READ)), ("acquire", "sem_wait", "do_futex", "futex_wait", "futex [lock]")
    stacks = known.stacks("--native", "--service=shop", *window())
    assert (stacks[(*python, *below)], stacks[("worker", "main", "_PyEval_EvalFrameDefault", *below)], stacks[(*python, "[preempt]")]) == (8_000, 9_000, 2_000)
    assert known.stacks("--service=shop", *window())[(*python, "futex [lock]")] == 8_000


def test_two_windows(known):
    arguments = [*window(), f"--against-since={ago(-200_000)}", f"--against-until={ago(0)}", "--service=shop"]
    report = known.json("offcpu", *arguments)
    changes = {tuple(s["frames"]): (s["before_us"], s["us"]) for s in report["stacks"]}
    assert changes[("worker", *NAPS[1:])] == (7_000, 72_000) and len(changes) == 3
    assert report["against"]["to_us"] < report["to_us"] and round(report["against"]["measured_s"]) == 200
    text = known.command("offcpu", *arguments).stdout
    assert re.search(r"81\.000 ms off the CPU, before 7\.000 ms \(", text) and re.search(r"\+65\.000 +7\.000 +72\.000 +worker", text), text
    # as long a window, which ends so long ago
    shorter = known.json("offcpu", *window(), f"--against-since={ago(-100_000)}")
    assert abs(shorter["against"]["to_us"] - T0) < 2_500_000
    waits = known.json("gil", *window(), f"--against-since={ago(-100_000)}")
    assert (waits["wait_ns"], waits["before_ns"]) == (0, 0)


def test_windows_of_different_lengths(known):
    """Sums are compared as they are, which is said."""
    before = f"--against-since={ago(-200_000)}", f"--against-until={ago(0)}"
    said = "50.0 s are compared with 200.0 s before: sums of a longer time are longer"
    for name in "offcpu", "gil":
        notes = known.json(name, "--service=shop", "--host=h1", f"--since={ago(0)}", f"--until={ago(50_000)}", *before)["notes"]
        assert [re.sub(r"\d+\.\d s", lambda m: f"{round(float(m[0][:-2]) / 50) * 50}.0 s", n) for n in notes if "compared" in n] == [said], notes
        assert not any("compared" in n for n in known.json(name, "--service=shop", "--host=h1", *window(), f"--against-since={ago(-100_000)}", f"--against-until={ago(0)}")["notes"])


def test_all_forms(known, tmp_path):
    def written(name):
        done = known.command("offcpu", "--service=shop", *window(), "-o", str(tmp_path / name))
        assert (done.returncode, done.stderr) == (0, ""), done
        return (tmp_path / name).read_bytes()
    folded = known.command("offcpu", "--service=shop", *window(), "--folded").stdout.splitlines()
    assert f"{';'.join(('worker', *NAPS[1:]))} 72000" in folded and len(folded) == 3
    assert b"work (/srv/app.py:5) (77.000 ms" in written("x.svg") and b"service shop" in written("x.svg")
    assert b"service shop" in written("x.html")
    assert sum(json.loads(written("x.speedscope.json"))["profiles"][0]["weights"]) == 81_000
    assert len(gzip.decompress(written("x.pb.gz"))) > 100
    text = known.command("offcpu", "--service=shop", *window()).stdout
    assert re.match(r"service shop, .* UTC, measured for [\d.]+ s: 81\.000 ms off the CPU\n", text), text
    assert re.search(r"72\.000 +88\.9%  worker: clock_nanosleep \[sleep\]; nap \(app.py:3\) < work", text), text


def test_idle_threads_come_last(known):
    """However long they waited, as a page leaves them out: shares are of the other time, the sum says how much is idle; JSON has all, longest first."""
    spare = {"cause": "lock", "syscall": "futex", "idle": 1}
    for i in range(6):
        known.off(10, 90_000 + i, stack=[f"spare{i} (/srv/app.py:{i + 1})"], **spare)
    arguments = "--service=shop", *window()
    lines = known.command("offcpu", *arguments).stdout.splitlines()
    assert lines[0].endswith(": 540.1 s off the CPU, 540.0 s of it idle"), lines
    table = [tuple(line.split(maxsplit=2)[:2]) for line in lines[2:]]
    assert table[:3] == [("72.000", "88.9%"), ("5.000", "6.2%"), ("4.000", "4.9%")], lines
    assert table[3:9] == [(f"{90_000 + i}.000", "idle") for i in reversed(range(6))] and "worker: futex [lock, idle]; spare5 (app.py:6)" in lines[5], lines
    for i in range(25):
        known.off(10, 100 + i, stack=[f"busy{i} (/srv/app.py:{i + 1})"])
    lines = known.command("offcpu", *arguments).stdout.splitlines()
    shown, rest = sum(100 + i for i in range(5, 25)), 81 + sum(100 + i for i in range(5))
    assert [line.split()[0] for line in lines[2:22]] == [f"{100 + i}.000" for i in reversed(range(25))][:20]
    assert lines[22].split() == [f"{rest}.000", f"{100 * rest / (shown + rest):.1f}%", "8", "more", "stacks"]
    assert [line.split()[:2] for line in lines[23:26]] == [[f"{90_000 + i}.000", "idle"] for i in (5, 4, 3)]
    assert lines[26].split() == ["270003.000", "idle", "3", "more", "stacks"], lines
    report = known.json("offcpu", *arguments)
    assert len(report["stacks"]) == 34 and report["off_cpu_us"] == 540_015_000 + (shown + rest) * 1000
    assert [s["us"] for s in report["stacks"]] == sorted((s["us"] for s in report["stacks"]), reverse=True) and report["stacks"][0]["us"] == 90_005_000
    changes = known.command("offcpu", *arguments, f"--against-since={ago(-200_000)}", f"--against-until={ago(0)}").stdout.splitlines()
    assert "idle]" not in "".join(changes[2:22]) and [line.split()[0] for line in changes[2:4]] == ["+124.000", "+123.000"], changes


EVIL = "</script><script>alert(1)</script>\x1b]0;x\x07;\u202e\n"


@pytest.mark.parametrize("form", ["html", "svg", "folded", "json", "pb.gz", "speedscope.json"])
def test_hostile_names_and_long_paths(ask, tmp_path, form):
    """A path of a megabyte, names with script, separators and terminal codes: the time is right, a file small, nothing controls anything."""
    ask.agent(-200_000, 300, trackers=["off_cpu_profile"])
    ask.off(20, 30, name=EVIL, stack=[f"f{EVIL} (/{'deep/' * 200_000}app.py:3)", "work (/srv/app.py:5)"])
    path = tmp_path / f"x.{form}"
    done = ask.command("offcpu", *window(), "-o", str(path))
    assert (done.returncode, done.stderr) == (0, ""), done
    content = gzip.decompress(path.read_bytes()) if form == "pb.gz" else path.read_bytes()
    text = content.decode(errors="replace" if form == "pb.gz" else "strict")
    assert len(content) < 200_000, len(content)
    assert not any(c in text for c in "\x1b\x07\u202e") or form == "pb.gz" and b"\x1b]0" not in content
    if form in ("html", "svg"):
        assert "<script>alert" not in text
    if form == "folded":
        [line] = text.splitlines()
        frames, us = line.rsplit(" ", 1)
        assert us == "30000" and len(frames.split(";")) == 4, line[:300]
    if form.endswith("json"):
        assert "30000" in json.dumps(json.loads(text))


def test_gil_of_a_window(known):
    known.waits(10, 40, waits=4)
    known.waits(20, 10, waits=1, tid=9, host_tid=109)
    known.waits(30, 2, name="MainThread", weight=3)
    known.waits(30, 77, host="h2", service="other", name="x")
    known.waits(95, 99)  # ends later
    known.wait(15, 30, [(9, 20, "spinner"), (10, 8, "MainThread")], weight=2)
    known.wait(16, 10, [(9, 10, "spinner")], line="")
    report = known.json("gil", "--service=shop", *window())
    assert (report["waits"], report["wait_ns"], report["method"]) == (14, 56_000_000, "sched")
    assert [(t["thread_name"], t["threads"], t["waits"], t["wait_ns"], t["max_ns"], t["p99_ns"]) for t in report["threads"]] == [
        ("worker", 2, 5, 50_000_000, 10_000_000, None), ("MainThread", 1, 9, 6_000_000, 666_667, None)]
    assert [(h["thread_name"], h["waits"], h["wait_ns"], h["share"]) for h in report["holders"]] == [
        ("spinner", 3, 50_000_000, pytest.approx(5 / 7)), ("MainThread", 2, 16_000_000, pytest.approx(16 / 70))]
    assert report["holders"][0]["lines"] == [{"line": "spin (/srv/app.py:9)", "waits": 2, "wait_ns": 40_000_000}]
    assert report["holder_unknown_ns"] == 4_000_000
    text = known.command("gil", "--service=shop", *window()).stdout
    assert re.search(r"service shop, .*: 14 waits for the GIL, 56\.000 ms", text) and re.search(r" 2 x  worker +5 +50\.000", text), text
    apart = known.json("gil", *window(), "--host=h1", "-p107,999")
    assert apart["threads"][0]["thread_name"] == "worker (h1, pid 107)"
    page = known.command("gil", "--service=shop", *window(), "--html").stdout
    assert "spinner" in page and "service shop" in page


def test_gil_of_names_with_a_semicolon(known):
    """It ends a frame in folded stacks, which gil does not make."""
    for at, (name, ms) in enumerate({"pool;1": 40, "pool;2": 30, "pool:1": 20}.items()):
        known.waits(10 + at, ms, name=name)
    known.wait(15, 30, [(9, 20, "spin;ner")])
    report = known.json("gil", "--service=shop", *window())
    assert [(t["thread_name"], t["wait_ns"]) for t in report["threads"]] == [("pool;1", 40_000_000), ("pool;2", 30_000_000), ("pool:1", 20_000_000)]
    assert [h["thread_name"] for h in report["holders"]] == ["spin;ner"]
    text = known.command("gil", "--service=shop", *window()).stdout
    assert all(name in text for name in ("pool;1", "pool;2", "pool:1", "spin;ner")), text


def test_smaller_stacks_are_summed(known):
    """More than an answer holds: nothing is missing from the total, and each thread keeps its part of what is summed."""
    known.store.ask(
        "INSERT INTO ebpf_off_cpu_profile (host, pid, host_pid, thread_name, start_time, end_time, off_ns, cause, state, py_stack) "
        f"SELECT 'h3', 1, 1, if(number % 3, 't', 'u'), fromUnixTimestamp64Micro({T0} + 20000000), fromUnixTimestamp64Micro({T0} + 30000000), 1000 * (number + 1), "
        "if(number % 2, 'lock', 'net'), 'S', arrayMap(i -> concat('function_', toString(number), '_', toString(i), ' (/srv/a/long/path/file.py:1)'), range(100)) "
        "FROM numbers(12000)")
    known.agent(-200_000, 300, host="h3", trackers=["off_cpu_profile"])
    report = known.json("offcpu", "--host=h3", *window())
    assert report["off_cpu_us"] == sum(range(1, 12001))
    rest = {(s["frames"][0], s["frames"][2]): s["us"] for s in report["stacks"] if s["frames"][1] == "(smaller stacks)"}
    assert set(rest) == {(thread, cause) for thread in "tu" for cause in ("[lock]", "[net]")} and 100 < len(report["stacks"]) < 12000
    of_u = sum(us for (thread, _), us in rest.items() if thread == "u") + sum(s["us"] for s in report["stacks"] if s["frames"][0] == "u" and s["frames"][1] != "(smaller stacks)")
    assert of_u == sum(range(1, 12001, 3))


@pytest.mark.parametrize("table, columns, values, options", [
    ("ebpf_off_cpu_profile", "off_ns, cause, state", "1000 * (number + 1), 'lock', 'S'", []), ("ebpf_on_cpu", "duration_ns", "1000 * (number + 1)", ["--cpu"])])
def test_many_stacks_need_little_memory(tmp_path, table, columns, values, options):
    """300,000 stacks of 500 bytes: their texts would be more than the engine may take."""
    with Store(tmp_path / "db", "--max_memory_mb=500") as store:
        ask = Window(store)
        ask.apply()
        ask.agent(-200_000, 300, trackers=["off_cpu_profile", "on_cpu"])
        store.ask(f"SYSTEM STOP MERGES {table}")  # they need memory as well
        for begin in range(0, 300_000, 10_000):
            store.ask(
                f"INSERT INTO {table} (host, pid, host_pid, thread_name, start_time, end_time, py_stack, {columns}) "
                f"SELECT 'h1', 7, 107, 't', fromUnixTimestamp64Micro({T0} + 20000000), fromUnixTimestamp64Micro({T0} + 30000000), "
                f"arrayMap(i -> concat('function_', toString(number), '_', toString(i), ' (/srv/a/long/path/of/a/file.py:1)'), range(8)), {values} "
                f"FROM numbers({begin}, 10000)")
        path = tmp_path / "x.html"
        done = ask.command("offcpu", *options, *window(), "-o", str(path))
        assert (done.returncode, done.stderr) == (0, "") and path.stat().st_size < 2_000_000, done
        body = json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)[1])["body"]
        assert sum(s[0] for s in body["stacks"]) == sum(range(1, 300_001))
        assert max(s[0] for s in body["stacks"] if body["frames"][s[3]] != "(smaller stacks)") == 300_000


def test_not_measured(ask):
    check_sentence(ask.command("offcpu", LONG), FAILED, "nothing was measured: no agent with the tracker `off_cpu` reported")
    check_sentence(ask.command("gil", LONG), FAILED, "nothing was measured: no agent with the tracker `gil_wait` reported")
    ask.insert("ebpf_probe_health", {"host": "h1", "host_pid": 0, "time": ask.moment(0), "tracker": "gil_wait_profile", "live": 0, "reason": "x"})
    ask.agent(0, 100, trackers=["off_cpu_profile", "gil_wait_profile"])
    assert ask.stacks(LONG) == {}  # watched, and nothing waited
    assert ask.json("gil", LONG)["waits"] == 0
    check_sentence(ask.command("offcpu", LONG, "-p55"), FAILED, r"no agent watched a process of \[55\]")
    check_sentence(ask.command("gil", LONG, "-p55"), FAILED, r"no agent watched a process of \[55\]")
    ask.known(pid=55, tracker="gil_wait", live=0, reason="a free-threaded build")
    assert ask.stacks(LONG, "-p55") == {}
    check_sentence(ask.command("gil", LONG, "-p55"), FAILED, r"no agent watched a process of \[55\]")
    check_sentence(ask.command("offcpu", "--since=1h", "--against-since=5h"), FAILED, "nothing was measured")  # of the first


@pytest.mark.parametrize("last, ago, until, measured", [
    (7, 20, 0, (27, 27)),  # in order: the last report is a short one
    (10, 20, 0, (50, 65)),  # the next one may be under way
    (10, 80, 0, (30, 30)),  # it is overdue: killed
    (10, 80, 60, (30, 30)),  # also of a window that ends soon after
    (10, 40, 30, (40, 40)),  # the window ended before the next one was due
])
def test_an_agent_that_ended_measures_no_more(ask, last, ago, until, measured):
    """Three reports of 10 s, the last of `last` s, until `ago` s ago; a window until `until` s ago."""
    begin = (time.time() - T0 / 1e6) * 1000 - (20 + last + ago) * 1000
    for at, seconds in (0, 10), (10, 10), (20, last):
        ask.insert("ebpf_agent", {"host": "h1", "tracker": "off_cpu_profile", "start_time": ask.moment(begin + at * 1000), "end_time": ask.moment(begin + (at + seconds) * 1000)})
    least, most = measured
    found = ask.json("offcpu", "--since=5m", *([f"--until={until}s"] if until else []))["measured_s"]
    assert least - 0.1 < found < most + (2 if until else 0.1), found


def test_a_tracker_that_was_taken_out_measures_no_more(ask):
    """The agent has reported since; of the tracker its last report was 20 s ago. In the last 10 s, nothing was measured."""
    begin = (time.time() - T0 / 1e6) * 1000 - 50_000
    for tracker, n in ("off_cpu_profile", 3), ("agent", 5):
        for i in range(n):
            ask.insert("ebpf_agent", {"host": "h1", "tracker": tracker, "start_time": ask.moment(begin + 10_000 * i), "end_time": ask.moment(begin + 10_000 * (i + 1))})
    assert 29.9 < ask.json("offcpu", "--since=5m")["measured_s"] < 30.1
    check_sentence(ask.command("offcpu", "--since=10s"), FAILED, "nothing was measured")


def test_the_time_since_the_last_report_is_of_the_window(ask):
    """A window of 10 s has no more than that, though the last report was 20 s ago."""
    begin = (time.time() - T0 / 1e6) * 1000 - 50_000
    for i in range(3):
        ask.insert("ebpf_agent", {"host": "h1", "tracker": "off_cpu_profile", "start_time": ask.moment(begin + 10_000 * i), "end_time": ask.moment(begin + 10_000 * (i + 1))})
    assert 9.9 < ask.json("offcpu", "--since=10s")["measured_s"] < 10.1


def test_what_the_governor_left_out_is_said(known):
    """Sums have the weights of their rows' tracker; nothing is said where only short events were left out, or at another time."""
    def agent(at, tracker, **more):
        known.insert("ebpf_agent", {"host": "h1", "tracker": tracker, "start_time": known.moment(at), "end_time": known.moment(at + 10_000), **more})
    agent(20_000, "gil_wait", sampling_level=3)
    agent(-180_000, "off_cpu", skip_shift=5)
    assert known.json("offcpu", *window(), "--service=shop")["notes"] == known.json("gil", *window())["notes"] == []
    agent(20_000, "off_cpu", skip_shift=1, sampling_level=2)
    agent(40_000, "off_cpu", skip_shift=2)
    said = "host h1: at times only one event of off_cpu in 4 was kept, as the agent held its limit of CPU (governor.cpu_percent): its sums are estimates, and events are missing"
    assert known.json("offcpu", *window(), "--service=shop")["notes"] == [said]
    assert said in known.command("offcpu", *window(), "--service=shop").stdout + known.command("offcpu", *window(), "--service=shop").stderr
    assert known.json("gil", *window())["notes"] == []


def test_bad_input(ask, tmp_path):
    for name in "offcpu", "gil":
        check_sentence(run_underspan(name), USAGE, "pid", "-p PID")
        check_sentence(run_underspan(name, "--since=5m"), USAGE, "no database given")
        check_sentence(ask.command(name, "--since=5m", "-d1"), USAGE, "leave out -d")
        check_sentence(ask.command(name, "--since=5m", "--until=6m"), USAGE, "until")
        check_sentence(ask.command(name, "--since=5m", "--against-since=2m"), USAGE, "against-until")
        check_sentence(ask.command(name, "--against-since=5m", "--against-until=6m"), USAGE, "against-until")
    check_sentence(ask.command("offcpu", "--top", "--since=5m"), USAGE, "top")
    with Store(tmp_path / "empty") as store:
        check_sentence(Answers(store).command("offcpu"), FAILED, "underspan schema --apply")


PROGRAM = """
import threading, time
def nap(): time.sleep(0.02)
def work():
    for _ in range(150): nap()
threads = [threading.Thread(target=work, name=f"napper-{i}") for i in range(3)]
print("ready", flush=True)
input()
begin = time.monotonic_ns()
for t in threads: t.start()
for t in threads: t.join()
print("done", flush=True)
input()
"""


def naps_of(report):
    """{thread: us}: a thread has a stack for each cause."""
    found = Counter()
    for s in report["stacks"]:
        if any(f.startswith("nap (") for f in s["frames"]):
            found[s["frames"][0]] += s["us"]
    return found


def test_live_and_stored_agree(ask, tmp_path, cleanup):
    """Three threads sleep 150 times 20 ms: an agent with a database and a live measurement see the same seconds."""
    process = subprocess.Popen(["/usr/bin/python3", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    cleanup.append(process)
    process.stdout.readline()
    agent = subprocess.Popen([UNDERSPAN, "run", f"--clickhouse={ask.store.url}", f"--pid={process.pid}", "--trackers=off_cpu,gil_wait",
                              "--off_cpu.profile_interval=1", f"--spool.directory={tmp_path}", "--report_interval=1",
                              "--governor.cpu_percent=0"], env=ask.env, stderr=subprocess.PIPE, text=True)
    cleanup.append(agent)
    until_attached(agent.pid)
    live = subprocess.Popen([UNDERSPAN, "offcpu", f"-p{process.pid}", "-d0", "--json"], stdout=subprocess.PIPE, text=True)
    cleanup.append(live)
    until_attached(live.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    time.sleep(0.5)
    live.send_signal(signal.SIGINT)
    seen = naps_of(json.loads(live.communicate(timeout=60)[0]))
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait()
    agent.terminate()
    assert agent.wait(20) == 0, agent.stderr.read()
    stored = naps_of(ask.json("offcpu", "--since=60s", f"-p{process.pid}"))
    assert set(seen) == set(stored) == {f"napper-{i}" for i in range(3)}, (seen, stored)
    for name, us in stored.items():
        assert 3_000_000 <= us < 4_500_000, (name, us)  # 150 sleeps of 20 ms, each a little longer
        assert abs(us - seen[name]) < 0.02 * us, (name, us, seen[name])
