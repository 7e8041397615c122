# SPDX-License-Identifier: Apache-2.0
"""The lock of a wait: its address in the row is that of the object that the program locked, for every Python."""
import collections
import json
import os
import subprocess

import pytest

import counts
import host
from agent import ROOT
from conftest import ALL_PYTHONS

TABLE = "ebpf_off_cpu"
ROUNDS, SECONDS = 10, 0.03
LONG_NS = 10_000_000  # off_cpu.min_duration_us
CLOCK_NS = 50_000
LATE_NS = 3_000_000  # between the wake-up and the next line of Python, on a busy machine


def rows_of_locks(agent, pid, line):
    """By thread, in the order of time: waits for a lock in the line of Contended.acquire()."""
    found = collections.defaultdict(list)
    rows = agent.select(TABLE, lambda r: r["host_pid"] == pid and r["cause"] == "lock" and r["py_stack"] and r["py_stack"][0].endswith(f"lock_truth.py:{line})"))
    for row in sorted(rows, key=lambda r: r["start_time"]):
        found[row["tid"]].append(row)
    return found


def check_lock(truth, rows):
    addresses, holders = set(), {tid for tid, _, _ in truth["holds"]} | {tid for tid, _, _ in truth["waits"]}
    by_thread = collections.defaultdict(list)
    for tid, start, stop in truth["waits"]:
        by_thread[tid].append((start, stop))
    for tid, waits in by_thread.items():
        long = [wait for wait in waits if wait[1] - wait[0] >= LONG_NS + LATE_NS]
        assert len(long) >= ROUNDS / 2, waits
        for start, stop in long:
            inside = [r for r in rows[tid] if start - CLOCK_NS <= host.monotonic_ns(r["start_time"]) <= stop]
            assert len(inside) == 1, (start, stop, rows[tid])
            assert inside[0]["waker_tid"] in holders, inside[0]
            addresses.add(inside[0]["lock_address"])
        assert len(rows[tid]) <= len(waits)
    assert len(addresses) == 1, addresses
    assert addresses <= set(truth["addresses"]), (addresses, truth["addresses"])
    return addresses


@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_the_address_of_each_lock(kind, start_agent, start_on_all):
    workloads = start_on_all("lock_truth.py", kind, ROUNDS, SECONDS, pythons=ALL_PYTHONS)
    agent = start_agent(*[f"--pid={w.pid}" for w in workloads], trackers=["off_cpu", "gil_wait", "gc_pause"])
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
        rows = rows_of_locks(agent, workload.pid, truth["line"])
        found = [check_lock(lock, rows) for lock in truth["locks"].values()]
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
