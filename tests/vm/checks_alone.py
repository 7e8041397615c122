# SPDX-License-Identifier: Apache-2.0
"""Checks that start agents of their own, after the agent of checks.py has ended: each returns a few words, raises when rows are wrong."""
import gc
import os
import re
import time

import checks
import counts
import host
from agent import Agent, known_trackers
from checks import PYTHON, STAMP_NS, fexit_health, fexit_must_work


def check_names_and_stacks():
    """Threads that collect, and two that want the GIL: each row has the name and the lines reported by the
    program."""
    agent = Agent("--gc_pause.stack_min_us=0", "--gil_wait.min_duration_us=1000", "--gil_wait.stack_cpu_percent=100",
                  trackers=["gc_pause", "gil_wait"]).wait_ready(180)
    workload = host.Workload(PYTHON, "every_python.py", 3, 0, 17)
    workload.wait_covered(agent, 60)
    workload.say()
    truth = workload.read()
    workload.say()
    agent.stop()
    records = sorted(truth["collections"], key=lambda t: t["begin"])
    rows = [r for r in agent.rows["ebpf_gc_pause"] if truth["begin"] - STAMP_NS <= host.monotonic_ns(r["start_time"]) and
            host.monotonic_ns(r["end_time"]) <= truth["middle"] + STAMP_NS and r["host_pid"] == workload.pid]
    rows.sort(key=lambda r: r["start_time"])
    assert len(rows) == len(records) > 3 * 3 * 2, f"{len(rows)} rows for {len(records)} collections"
    for row, record in zip(rows, records):
        stack = [f"{function} ({file}:{line})" for function, file, line in record["stack"]]
        got = row["tid"], row["generation"], row["thread_name"], row["py_stack"]
        assert got == (record["tid"], record["generation"], record["name"], stack), (row, record)
    holder, waiter = truth["tids"]
    waits = [r for r in agent.rows["ebpf_gil_wait"] if (r["tid"], r["holder_tid"]) == (waiter, holder)]
    names = {(r["thread_name"], r["holder_thread_name"]) for r in waits}
    assert names == {("waiter", "holder \u2713")}, names
    for row in waits:
        for stack, function in (row["py_stack"], "wait"), (row["holder_py_stack"], "hold"):
            own = [frame for frame in stack if "every_python.py" in frame]  # none: the thread has only just begun
            assert all(re.match(rf"{function}(\.<locals>\S*)? \(", frame) for frame in own), row
    both = sum(bool(r["py_stack"] and r["holder_py_stack"]) for r in waits)
    assert both > len(waits) * 0.8, f"both stacks in {both} of {len(waits)} waits"
    return f"{len(rows)} collections whole, both stacks of {both} in {len(waits)} waits"


def check_exec():
    """600 threads other than the first of the process call exec(): no entry is kept for good, rows have stacks as
    before. (Up to 6.17 a thread on the way into exec() has an interval that waits for the stack.)"""
    agent = Agent("--off_cpu.min_duration_us=0", "--off_cpu.ring_kib=32768", "--off_cpu.profile_interval=1",
                  trackers=["gc_pause", "off_cpu"], only_count=["ebpf_off_cpu_profile"]).wait_ready(180)
    workload = host.Workload(PYTHON, "exec_threads.py", 600, "runs")
    workload.wait_covered(agent, 60)
    workload.say()
    assert workload.read() == {"states": [0]}
    read = len(agent.rows["ebpf_off_cpu"])
    workload.say()
    sleeps = [s for s in workload.read()["sleeps"] if s["switches"]]
    workload.finish()
    # an emulated CPU reads some hundred rows a second: the agent, which ends in 5 s, must not wait for a backlog, nor
    # have ten seconds of sums for the end
    host.wait_until(lambda: len(host.sleeps_among(agent.rows["ebpf_off_cpu"][read:], workload.pid)) >= len(sleeps), 30,
                    f"{len(sleeps)} sleeps are rows")
    agent.stop(20)
    own = counts.check(agent)["off_cpu"]
    rows = host.sleeps_among(agent.rows["ebpf_off_cpu"][read:], workload.pid)
    assert len(rows) == len(sleeps) > 10, f"{len(rows)} rows of {len(sleeps)} sleeps; {own}"
    for row, sleep in zip(rows, sleeps):
        assert sleep["begin"] - STAMP_NS <= host.monotonic_ns(row["start_time"]), (row, sleep)
        assert host.monotonic_ns(row["end_time"]) <= sleep["end"] + STAMP_NS, (row, sleep)
    lacking = [r for r in rows if not r["py_stack"] or not r["py_stack"][0].startswith(("sleeps (", "<unread>"))]
    assert not lacking, (len(lacking), [(r["start_time"], r["end_time"], r["py_stack"]) for r in lacking[:2]], own)
    stacks = sum("sleeps (" in r["py_stack"][0] for r in rows)
    assert stacks > len(rows) / 2, f"{stacks} of {len(rows)} sleeps with a place that was read; {own}"
    assert own["stack_room"] == own["lost_state"] == own["lost_ring"] == 0, own
    return f"600 threads, and {len(rows)} sleeps after them, {stacks} with a place that was read"


def check_alone():
    """Each tracker alone, without the capabilities of the rest; and without CAP_SYS_ADMIN."""
    no_admin = ["/usr/bin/python3", "-c", "import ctypes, os, sys; assert not ctypes.CDLL(None).prctl(24, 21, 0, 0, 0); "
                "os.execv(sys.argv[1], sys.argv[1:])"]  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
    with open("/proc/sys/kernel/perf_event_paranoid") as f:
        paranoid = f.read().strip()
    syscalls = "handoff,tcp_accept,tcp_connect,tcp_loss"
    assert not [t for t in known_trackers() if not hasattr(checks, f"check_{t}")]
    for wanted, prefix in [*((t, ()) for t in known_trackers()), (syscalls, no_admin)]:
        agent = Agent("--duration=1", trackers=[wanted], prefix=prefix).wait_ready(60)
        assert agent.wait_end(20) == 0
        assert not [line for line in agent.log if "does not run" in line], (wanted, prefix, agent.log)
    return f"{len(known_trackers())} trackers, and those of system calls without CAP_SYS_ADMIN; perf_event_paranoid {paranoid}"


def check_clock_step():
    """The machine's clock goes an hour forth and back, twice: each row has the clock's time of the event."""
    agent = Agent("--flush_interval=1", trackers=["gc_pause"]).wait_ready(60)
    host.wait_until(lambda: (gc.collect(), agent.rows["ebpf_gc_pause"])[1], 30, "a first row")
    begin_ns, started = time.time_ns(), time.monotonic_ns()
    truth = []
    steps = [0, 3600, -3600, -3600, 3600]
    for i, step in enumerate(steps):
        if step:
            time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + step * 10**9)
            host.wait_until(lambda n=i: agent.stderr.count("was stepped by") >= n, 30, "the step is noticed")
        begin = time.time_ns() // 1000
        for _ in range(7):
            gc.collect()
        truth.append((begin, time.time_ns() // 1000))
        # at once: the rows are still in the kernel, or without a time, when the clock is stepped again
    off = time.time_ns() - begin_ns - (time.monotonic_ns() - started)
    assert abs(off) < 10**9, f"the clock was left {off} ns off"
    agent.stop()
    rows = [r for r in agent.rows["ebpf_gc_pause"] if r["host_pid"] == os.getpid() and r["generation"] == 2]
    us = STAMP_NS // 1000
    for step, (begin, end) in zip(steps, truth):
        inside = [r for r in rows if begin - us <= r["start_time"] and r["end_time"] <= end + us]
        assert len(inside) == 7, (step, begin, end, [r["start_time"] for r in rows])
    told = [r["reason"] for r in agent.rows["ebpf_probe_health"] if "was stepped by" in r["reason"]]
    assert len(told) == len(steps) - 1, told
    return f"{7 * len(steps)} rows in their own hours, {len(told)} steps told"


def check_ena_module():
    """The real driver is loaded, without a device: the program attaches to the driver."""
    agent = Agent("--duration=3", trackers=["ena"]).wait_ready()
    agent.wait_end(20)
    assert agent.select("ebpf_probe_health", lambda r: "no interface of driver ena" in r["reason"])
    fexit = fexit_health(agent)
    assert fexit["live"] or not fexit_must_work(), fexit["reason"]
    return "fexit on the ena module" if fexit["live"] else f"ioctl only; fexit: {fexit['reason']}"
