# SPDX-License-Identifier: Apache-2.0
"""The lock of a wait: its address in the row is that of the object that the program locked, for every Python; `underspan offcpu`
sums waits by lock and names storms, live and of a database."""
import collections
import json
import os
import subprocess
import time

import pytest

import counts
import host
from agent import NO_ENGINE, ROOT, UNDERSPAN, plain_build
from answers import Answers, store_of_answers
from conftest import ALL_PYTHONS, PYTHONS
from test_top import until_attached

TABLE = "ebpf_off_cpu"
ROUNDS, SECONDS = 10, 0.03
EVERY = "--off_cpu.min_duration_us=0"
LONG_NS = 10_000_000
CLOCK_NS = 50_000


def rows_by_thread(agent, pid):
    found = collections.defaultdict(list)
    for row in agent.select(TABLE, lambda r: r["host_pid"] == pid):
        found[row["tid"]].append(row)
    return found


def split(rows, line, start, stop):
    """Of the rows that began in a wait: long waits for a lock in the line of Contended.acquire(), and the time of all others."""
    inside = [r for r in rows if start - CLOCK_NS <= host.monotonic_ns(r["start_time"]) <= stop]
    waits = [r for r in inside if r["cause"] == "lock" and r["duration_ns"] >= LONG_NS and r["py_stack"][:1] and r["py_stack"][0].endswith(f"lock_truth.py:{line})")]
    return waits, sum(r["duration_ns"] for r in inside if r not in waits)


def check_lock(truth, rows, line):
    addresses, holders = set(), {tid for tid, _, _ in truth["holds"]} | {tid for tid, _, _ in truth["waits"]}
    by_thread = collections.defaultdict(list)
    for tid, start, stop in truth["waits"]:
        by_thread[tid].append((start, stop))
    for tid, waits in by_thread.items():
        seen = 0
        for start, stop in waits:
            found, other_ns = split(rows[tid], line, start, stop)
            # a busy machine: the thread had no CPU before it came to wait
            assert len(found) == 1 or (not found and stop - start - other_ns < LONG_NS), (start, stop, found, rows[tid])
            for row in found:
                assert row["waker_tid"] in holders, row
                addresses.add(row["lock_address"])
            seen += len(found)
        assert seen >= ROUNDS / 2, waits
    assert len(addresses) == 1, addresses
    assert addresses <= set(truth["addresses"]), (addresses, truth["addresses"])
    return addresses


@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_the_address_of_each_lock(kind, start_agent, start_on_all):
    workloads = start_on_all("lock_truth.py", kind, ROUNDS, SECONDS, pythons=ALL_PYTHONS)
    agent = start_agent(*[f"--pid={w.pid}" for w in workloads], EVERY, trackers=["off_cpu", "gil_wait", "gc_pause"])
    for workload in workloads:
        workload.wait_covered(agent)
    truths = []
    for workload in workloads:  # in turn: their waits are short
        workload.say()
        truths.append(workload.read())
        workload.finish()
    agent.stop()
    assert counts.check(agent)["off_cpu"]["lost_ring"] == 0
    for workload, truth in zip(workloads, truths):
        rows = rows_by_thread(agent, workload.pid)
        found = [check_lock(lock, rows, truth["line"]) for lock in truth["locks"].values()]
        assert not found[0] & found[1], workload
        of_gil = agent.select(TABLE, lambda r: r["host_pid"] == workload.pid and r["cause"] != "lock")
        assert of_gil and not any(r["lock_address"] for r in of_gil), workload


def test_every_form_of_a_wait(start_agent, cleanup, tmp_path):
    """A program without Python: each form of futex() with the address of its word; of several words none; memory that is used again."""
    program = subprocess.Popen([os.path.join(ROOT, "build", "tests", "e2e", "futexes"), str(tmp_path / "go")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    cleanup.append(program)
    agent = start_agent(f"--pid={program.pid}", trackers=["off_cpu"])
    (tmp_path / "go").write_text("")
    expected = json.loads(program.stdout.readline())
    program.stdin.close()
    assert program.wait(10) == 0
    agent.stop()
    assert counts.check(agent)["off_cpu"]["lost_ring"] == 0
    assert expected["mutex"] == expected["again"] and not expected["vector"]
    kernel = [int(n) for n in os.uname().release.split(".")[:2]]
    forms = set(expected) if kernel >= [6, 7] else set(expected) - {"futex2", "vector"}
    for form in forms:
        [row] = [r for r in agent.rows[TABLE] if r["comm"] == form and r["cause"] == "lock"]
        assert row["lock_address"] == expected[form], form
        assert 45_000_000 < row["duration_ns"] < 500_000_000
        assert row["waker_tid"] == program.pid, form


# ---- underspan offcpu ----

CONVOY = """
import threading, time, sys, json, os
lock, condition, waits, herd = threading.Lock(), threading.Condition(), [], []
def convoy():
    begin = time.monotonic_ns()
    with lock:  # LINE
        end = time.monotonic_ns()
        time.sleep(0.002)
    waits.append([begin, end])
def wait_for_all():
    with condition:
        condition.wait_for(lambda: herd)
print("up", flush=True)
sys.stdin.readline()
idle = [threading.Thread(target=wait_for_all) for _ in range(50)]
threads = [threading.Thread(target=convoy, name="convoy") for _ in range(50)]
lock.acquire()
for t in threads + idle: t.start()
time.sleep(0.2)
lock.release()
for t in threads: t.join()
with condition:
    herd.append(1)
    condition.notify_all()
for t in idle: t.join()
print(json.dumps(waits), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("python", [PYTHONS[1], PYTHONS[-1], ALL_PYTHONS[-1]], ids=str)
def test_a_convoy_and_a_herd(python, cleanup, tmp_path):
    """50 threads that queue at one lock, and 50 that one thread wakes."""
    line = CONVOY.splitlines().index("    with lock:  # LINE") + 1
    script = os.path.join(ROOT, "build", f"convoy-{os.getpid()}-{python}.py")  # a folder that is there in all roots
    with open(script, "w") as f:
        f.write(CONVOY)
    try:
        process = subprocess.Popen([*python.start, python.path, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cleanup.append(process)
        assert process.stdout.readline() == "up\n"
        with open(tmp_path / "out", "w") as out:
            offcpu = subprocess.Popen([UNDERSPAN, "offcpu", f"-p{process.pid}", "-d0", "--json"], stdout=out)
        cleanup.append(offcpu)
        until_attached(offcpu.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        waits = json.loads(process.stdout.readline())
        time.sleep(1.5)
        offcpu.send_signal(2)
        assert offcpu.wait(20) == 0
    finally:
        os.unlink(script)
    report = json.loads((tmp_path / "out").read_text())["by_lock"]
    place = f"convoy ({os.path.basename(script)}:{line})"
    [found] = [lock for lock in report["locks"] if lock["place"] == place and lock["address"]]
    assert (found["waits"], found["threads"], found["at_once"]) == (50, 50, 50), found
    lengths = [(end - begin) / 1e6 for begin, end in waits]
    assert abs(found["ms"] - sum(lengths)) < 0.02 * sum(lengths) + 50, (found["ms"], sum(lengths))
    assert abs(found["longest_ms"] - max(lengths)) < 0.02 * max(lengths) + 5
    # no moment is counted for two threads
    queue_ms = (max(end for _, end in waits) - min(begin for begin, _ in waits)) / 1e6
    assert sum(w["times"] for w in found["wakers"]) <= 50 and 0 < sum(w["held_ms"] for w in found["wakers"]) <= queue_ms, found
    # the C library's own locks may have one, too: 100 threads begin at once
    convoys = [s for s in report["storms"] if s["kind"] == "convoy" and s["place"] == place]
    assert [(s["threads"], s["address"], s["place"]) for s in convoys] == [(50, found["address"], place)]
    herds = [s for s in report["storms"] if s["kind"] == "herd"]
    assert [s for s in herds if s["threads"] == 50 and s["place"].startswith("wait_for_all (")], report["storms"]


COMPUTE = """
import threading
def compute():
    while True: sum(i * i for i in range(1000))
for _ in range(20): threading.Thread(target=compute, daemon=True).start()
print("up", flush=True)
input()
"""


def test_the_gil_is_no_lock(cleanup):
    """20 threads that only compute wait for the GIL, also in the moments before its address is found: no lock, no convoy."""
    process = subprocess.Popen([*PYTHONS[-1].start, PYTHONS[-1].path, "-c", COMPUTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    cleanup.append(process)
    assert process.stdout.readline() == "up\n"
    done = subprocess.run([UNDERSPAN, "offcpu", f"-p{process.pid}", "-d3", "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert sum(stack["us"] for stack in report["stacks"] if stack["frames"][-1].endswith("[gil]")) > 10_000_000
    assert (report["by_lock"]["locks"], report["by_lock"]["storms"]) == ([], [])


T0 = (int(time.time()) - 1800) * 1_000_000


@plain_build(NO_ENGINE)
def test_locks_of_a_window(tmp_path):
    """Known rows: two locks, one of which two processes have at the same address; a lock without an address; idle waits."""
    with store_of_answers(tmp_path) as store:
        ask = Answers(store, T0)
        ask.agent(0, 60, trackers=["off_cpu_profile"])
        take = {"host_pid": 107, "cause": "lock", "syscall": "futex", "state": "S", "service": "shop", "py_stack": ["take (/srv/app.py:3)"], "waker_host_tid": 33,
                "waker_thread_name": "boss"}
        ask.row("off_cpu_profile", 0, 10_000, count=1, off_ns=10**9, **take)
        for i, ms in enumerate((100, 200, 300)):
            ask.row("off_cpu", 1000, ms, host_tid=20 + i, thread_name=f"t{i}", lock_address=0x7f0011224470, **take)
        ask.row("off_cpu", 1000, 50, host_tid=20, thread_name="t0", lock_address=0x7f0011224480, weight=4, waker_pid=9, **take)
        ask.row("off_cpu", 1000, 40, host_tid=40, lock_address=0x7f0011224470, **{**take, "host_pid": 108})
        ask.row("off_cpu", 1000, 30, host_tid=20, lock_address=0, **take)
        ask.row("off_cpu", 1000, 20_000, host_tid=20, lock_address=0x7f0011224490, idle=1, **take)
        done = ask.command("offcpu", "--since=3h", "--json")
        assert (done.returncode, done.stderr) == (0, ""), done
        locks = json.loads(done.stdout)["by_lock"]["locks"]
        assert [(k["address"], k["host_pid"], k["waits"], k["ms"], k["longest_ms"], k["threads"], k["at_once"]) for k in locks] == [
            ("0x7f0011224470", 107, 3, 600, 300, 3, 3), ("0x7f0011224480", 107, 4, 200, 50, 1, 1), ("0x7f0011224470", 108, 1, 40, 40, 1, 1),
            (None, 107, 1, 30, 30, 1, 1)]
        assert {k["place"] for k in locks} == {"take (app.py:3)"}
        assert locks[0]["wakers"] == [{"thread": "boss", "host_tid": 33, "times": 3, "held_ms": 300}] and locks[3]["wakers"][0]["held_ms"] is None
        assert [w["thread"] for w in locks[1]["wakers"]] == ["boss of pid 9"]  # a worker has threads of the same names
        text = ask.command("offcpu", "--since=3h", "--by=lock").stdout
        assert "0x7f0011224470, in take (app.py:3); released by boss (3 times, others waited 300.0 ms)" in text and "\n      30.000" in text
        store.ask("ALTER TABLE ebpf_off_cpu DROP COLUMN lock_address")  # as of an older schema
        done = ask.command("offcpu", "--since=3h", "--json")
        assert done.returncode == 0, done
        report = json.loads(done.stdout)
        assert "by_lock" not in report and report["off_cpu_us"] == 1_000_000
        assert any("waits by lock are not known" in note for note in report["notes"]), report["notes"]
