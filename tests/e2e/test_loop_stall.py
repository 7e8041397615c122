# SPDX-License-Identifier: Apache-2.0
"""Blocking calls in coroutines compared with the coroutines' measurements around each call (workloads/loop_truth.py)."""
import pytest

import host
import ledger_services

TABLE = "ebpf_loop_stall"
CLOCK_NS = 50_000
MS = 1_000_000
N, SECONDS = 4, 0.15
THRESHOLD_NS = 100 * MS
PARTS = ["cpu", "runq", "gil", "lock", "net", "disk", "sleep", "other"]


def part(row, name):
    return row[f"{name}_ns"] or 0


def begin_ns(row):
    return host.monotonic_ns(row["start_time"])


def end_ns(row):
    return host.monotonic_ns(row["end_time"])


def close_to(ns):
    return max(2 * MS, ns // 50)


def of_process(agent, workload):
    return agent.select(TABLE, lambda r: r["host_pid"] == workload.hello["pid"])


def of_truth(agent, workload):
    """The rows between the truth's stamps; each row's parts add up."""
    rows = [r for r in of_process(agent, workload) if workload.truth["begin"] <= begin_ns(r) <= workload.truth["end"]]
    for row in rows:
        assert sum(part(row, name) for name in PARTS) == row["duration_ns"], row
    return sorted(rows, key=begin_ns)


def wait_watched(agent, workload):
    """For a program that stalls from the start: waits until the rows are split by cause."""
    agent.wait_rows(TABLE, lambda r: r["host_pid"] == workload.hello["pid"] and r["sleep_ns"] is not None and r["py_stack"], timeout=20)


def run(agent, workloads):
    for workload in workloads:
        workload.wait_covered(agent)
    for workload in workloads:
        wait_watched(agent, workload)
    for workload in workloads:
        workload.say()
    for workload in workloads:
        workload.truth = workload.read()
    for workload in workloads:
        workload.say("end")
        workload.finish()
    agent.stop()


def asleep_ns(stall):
    return stall["stop"] - stall["start"] - stall["cpu"] - stall["delay"]


def was_sampled_within(row, stall):
    """The place on a CPU is a sample, which may be of the code around the call."""
    at = begin_ns(row) + row["stack_at_ns"]
    return stall["start"] + CLOCK_NS <= at <= stall["stop"] - CLOCK_NS


def check_stall(row, stall, loop):
    """Invariants on any busy host. Returns whether the times are right to 2 ms or 2 %."""
    kind, wall = stall["kind"], stall["stop"] - stall["start"]
    assert row["loop"] == loop and row["duration_ns"] >= wall - CLOCK_NS
    assert None not in (row["gil_ns"], row["stack_at_ns"], row["waiting"]), row
    assert max(set(PARTS) - {"runq"}, key=lambda name: part(row, name)) == kind, row
    name, file, line = stall["place"]
    if kind != "cpu" or was_sampled_within(row, stall):
        assert row["py_stack"][0] == f"{name} ({file}:{line})", (row["py_stack"], stall["place"])
    assert row["stack_at_ns"] <= row["duration_ns"]
    # work of the loop besides the call is short, unless the thread waited for a CPU
    excess = row["duration_ns"] - wall - max(0, row["runq_ns"] - stall["delay"])
    if kind == "other" and loop == "trio":  # after a fork, the rest of the turn, longer here, copies the pages that it writes to
        excess -= max(0, row["cpu_ns"] - stall["cpu"])
    if kind == "cpu":
        error = stall["cpu"] - row["cpu_ns"]  # interrupts are part of the row's
    else:
        error = abs(part(row, kind) - asleep_ns(stall))
    return excess <= close_to(wall) and error <= close_to(wall)


def check_stalls(agent, workload, loop):
    stalls = workload.truth["stalls"]
    assert len(stalls) == 5 * N
    rows, right, sampled = of_truth(agent, workload), 0, 0
    for stall in stalls:
        own = [r for r in rows if begin_ns(r) - CLOCK_NS <= stall["start"] and stall["stop"] <= end_ns(r) + CLOCK_NS]
        assert len(own) == 1, (stall, own)
        rows.remove(own[0])
        right += check_stall(own[0], stall, loop)
        sampled += stall["kind"] == "cpu" and was_sampled_within(own[0], stall)
    assert right >= 0.9 * len(stalls), f"{right} of {len(stalls)}"
    assert sampled, "no stall on a CPU has a place within it"
    # a loop kept from a CPU by the host stalled, too, as did a loop that waited for a thread without a CPU
    assert not [r for r in rows if r["duration_ns"] - r["runq_ns"] - part(r, "gil") >= THRESHOLD_NS], rows


@pytest.fixture
def agent(start_agent):
    return start_agent("--loop_stall.stack_cpu_percent=0", trackers=["loop_stall", "gc_pause"])


def test_each_blocking_call_is_a_row(agent, start_on_all):
    workloads = start_on_all("loop_truth.py", "asyncio", N, SECONDS)
    run(agent, workloads)
    host.check_each(workloads, lambda workload: check_stalls(agent, workload, "asyncio"))


@pytest.mark.parametrize("loop", ["uvloop", "gevent", "trio"])
def test_other_loops(loop, agent, debian_python, start_workload):
    if loop == "trio" and (missing := ledger_services.lacking("hypercorn trio")):
        pytest.skip(f"not installed: {missing}")
    workload = start_workload(debian_python, "loop_truth.py", loop, N, SECONDS)
    run(agent, [workload])
    check_stalls(agent, workload, loop)


def test_a_loop_beside_a_thread_that_holds_the_gil(agent, debian_python, start_workload):
    """The poll returns, and the thread cannot go on: a wait for the GIL, with the stack of the poll."""
    workload = start_workload(debian_python, "loop_truth.py", "gil", N, SECONDS)
    run(agent, [workload])
    rows = of_truth(agent, workload)
    assert len(workload.truth["holds"]) == N
    for start, stop in workload.truth["holds"]:
        own = [r for r in rows if begin_ns(r) < stop and start < end_ns(r)]
        assert len(own) == 1, (start, stop, own)
        row = own[0]
        assert max(PARTS, key=lambda name: part(row, name)) == "gil", row
        # the loop came 10 ms late at most, and the wait ended with the hold
        both = min(stop, end_ns(row)) - max(start, begin_ns(row))
        assert both - row["runq_ns"] - row["cpu_ns"] - close_to(stop - start) <= row["gil_ns"], (row, start, stop)
        assert row["gil_ns"] <= stop - begin_ns(row) + close_to(stop - start) + part(row, "runq")
        assert row["py_stack"][0].startswith("EpollSelector.select ("), row


def test_what_is_no_loop_has_no_rows(agent, debian_python, start_workload):
    """The same calls in a thread that polls as asyncio does, beside a loop that proves that the agent
    watches."""
    loop = start_workload(debian_python, "loop_truth.py", "asyncio", 1, SECONDS)
    thread = start_workload(debian_python, "loop_truth.py", "thread", N, SECONDS)
    for workload in loop, thread:
        workload.wait_covered(agent)
    wait_watched(agent, loop)
    for workload in loop, thread:
        workload.say()
    for workload in loop, thread:
        workload.truth = workload.read()
        workload.say("end")
        workload.finish()
    agent.stop()
    assert len(of_truth(agent, loop)) >= 5
    assert not of_process(agent, thread)
