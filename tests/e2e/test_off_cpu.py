# SPDX-License-Identifier: Apache-2.0
"""Intervals off the CPU compared with the programs' measurements around each wait, and with the kernel's counters
(schedstat)."""
import collections
import os
import shutil
import subprocess

import pytest

import counts
import host
from agent import PATIENCE, ROOT

TABLE = "ebpf_off_cpu"
PROFILE = "ebpf_off_cpu_profile"
CLOCK_NS = 50_000
N = 101
SECONDS = 0.02
BUSY_NS = 5_000_000  # of a wait; a quiet machine takes some 50 us
NEAR_NS = 200_000 * PATIENCE  # of a wait between two reads of a clock and its row
LONG_NS = 10_000_000  # off_cpu.min_duration_us: shorter waits have no row
EVERY = "--off_cpu.min_duration_us=0"
KERNEL = [int(n) for n in os.uname().release.split(".")[:2]]

# kind: cause, system calls, idle
KINDS = {
    "sleep": ("sleep", {"clock_nanosleep", "select", "pselect6"}, 0),
    "lock": ("lock", {"futex"}, 0),
    "pair": ("net", {"recvfrom"}, 0),
    "tcp": ("net", {"recvfrom"}, 0),
    "poll": ("net", {"poll", "ppoll"}, 0),
    "listener": ("net", {"poll", "ppoll"}, 1),
    "epoll": ("poll", {"epoll_wait", "epoll_pwait"}, 1),
    "select": ("poll", {"select", "pselect6"}, 1),
    "pipe": ("pipe", {"read"}, 0),
    "output": ("pipe", {"poll", "ppoll"}, 0),
    "trigger": ("poll", {"poll", "ppoll"}, 1),
    "child": ("child", {"wait4"}, 0),
    "process": ("child" if KERNEL >= [6, 9] else "poll", {"poll", "ppoll"}, 0),
    "filelock": ("lock", {"flock"}, 0),
    "recordlock": ("lock", {"fcntl"}, 0),
    "semaphore": ("lock", {"semop", "semtimedop"}, 0),
    "stat": ("disk", {"newfstatat", "stat", "statx"}, 0),
}


def begin_ns(row):
    return host.monotonic_ns(row["start_time"])


def rows_of(agent, hello, truth, table=TABLE):
    """Of the main thread, begun between the truth's stamps, in the order of time."""
    rows = agent.select(table, lambda r: r["host_pid"] == hello["pid"] and r["tid"] == hello["tid"])
    rows = [r for r in rows if truth["begin"] - CLOCK_NS <= begin_ns(r) <= truth["end"]]
    return sorted(rows, key=lambda r: r["start_time"])


def waits_of(rows, waits):
    """(row, wait) of each row; no wait twice. A row without a wait is possible only after a wake-up without a CPU, past the end of
    the wait. The waker's time runs before the wait begins: where the thread loses its CPU in between, the wait is short."""
    pairs, left = [], list(rows)
    for start, stop, child, busy in waits:
        if left and start - CLOCK_NS <= begin_ns(left[0]) <= stop:
            pairs.append((left.pop(0), (start, stop, child, busy)))
        elif stop - start >= LONG_NS:
            assert busy > BUSY_NS, f"no row of a wait of {(stop - start) / 1e6} ms, {busy / 1e6} ms with or without a CPU"
    assert not left, left[0]
    assert len(pairs) > len(waits) / 2, [(stop - start) / 1e6 for start, stop, _, _ in waits]
    return pairs


@pytest.mark.parametrize("kind", KINDS)
def test_each_wait_is_a_row(kind, debian_python, start_agent, start_workload):
    workload = start_workload(debian_python, "off_cpu_truth.py", kind, N, SECONDS)
    # only the workload: a busy host's waits may fill the ring buffer
    agent = start_agent(f"--pid={workload.pid}", trackers=["off_cpu", "gc_pause"])
    workload.wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    lost = counts.check(agent)["off_cpu"]
    # a child may end right after an untraced wake-up; a loss of the waiting thread would be a missing row
    assert lost["lost_ring"] == 0 and (kind in ("child", "process") or lost["lost_state"] == 0), lost
    cause, calls, idle = KINDS[kind]
    rows = [r for r in rows_of(agent, workload.hello, truth) if r["cause"] == cause]
    pairs = waits_of(rows, truth["waits"])
    for row, (start, stop, child, busy) in pairs:
        # the wait ended before the second read of the clock; a busy machine may have taken the CPU away in
        # between
        assert row["duration_ns"] <= stop - start
        # the thread that ends the wait may have begun to count before the wait began
        if kind == "sleep":  # to a moment: a CPU that was missing before the sleep makes the sleep shorter
            assert row["duration_ns"] + busy >= SECONDS * 0.99e9, (row, busy)
        else:
            assert row["duration_ns"] >= SECONDS * 0.5e9 or busy > BUSY_NS, (row, busy)
        assert (row["state"], row["idle"]) == ("S", idle) and row["syscall"] in calls
        assert row["user_stack"]
        assert row["runq_ns"] <= row["duration_ns"]
        if truth["waker"]:
            assert (row["waker_tid"], row["waker_pid"]) == (truth["waker"], workload.hello["pid"])
        else:
            assert row["waker_tid"] == (child or 0), row
    # a wake-up without a tracepoint has no kernel stack
    assert sum(bool(r["kernel_stack"]) for r in rows) >= 0.9 * len(rows)
    # each to a hundredth, except for waits with a preemption just before or after
    quiet = [(row["duration_ns"], stop - start) for row, (start, stop, _, busy) in pairs if busy <= BUSY_NS]
    right = sum(abs(ns - waited) <= max(NEAR_NS, waited // 100) for ns, waited in quiet)
    assert right >= 0.9 * len(quiet) or kind in ("child", "process")


def sums_of(agent, hello):
    return agent.select(PROFILE, lambda r: r["host_pid"] == hello["pid"])


@pytest.mark.parametrize("degrade", [(), ("--degrade=task_storage",)], ids=["task_storage", "hash"])
def test_the_profile_is_the_sum_of_all_intervals(degrade, debian_python, start_agent, start_workload):
    agent = start_agent(EVERY, *degrade, "--off_cpu.profile_interval=1", "--off_cpu.ring_kib=32768",
                        "--governor.cpu_percent=0", "--governor.tracker_cpu_percent=0",
                        trackers=["off_cpu", "gil_wait", "gc_pause"])
    workload = start_workload(debian_python, "off_cpu_work.py", "pingpong").wait_covered(agent)
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    found = counts.check(agent)["off_cpu"]
    assert not found["sampled"] and not found["lost_ring"], found
    rows = agent.select(TABLE, lambda r: r["host_pid"] == workload.hello["pid"])
    assert len(rows) > 5000
    for columns in (("tid",), ("tid", "cause"), ("tid", "cause", "waker_tid", "syscall", "state")):
        want, have = collections.Counter(), collections.Counter()
        for row in rows:
            want[tuple(row[c] for c in columns)] += 1
            want[tuple(row[c] for c in columns) + ("ns",)] += row["duration_ns"]
            want[tuple(row[c] for c in columns) + ("runq",)] += row["runq_ns"]
        for row in sums_of(agent, workload.hello):
            have[tuple(row[c] for c in columns)] += row["count"]
            have[tuple(row[c] for c in columns) + ("ns",)] += row["off_ns"]
            have[tuple(row[c] for c in columns) + ("runq",)] += row["runq_ns"]
        assert +want == +have


def test_pingpong_names_the_waker(debian_python, start_agent, start_workload):
    agent = start_agent(EVERY, trackers=["off_cpu", "gc_pause"])
    workload = start_workload(debian_python, "off_cpu_work.py", "pingpong").wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    waits = [r for r in rows_of(agent, workload.hello, truth) if r["cause"] in ("lock", "gil")]
    # some virtual machines hide the tracepoint of a wake-up now and then: the waker is missing then, never wrong
    named = [r for r in waits if r["waker_tid"]]
    assert len(named) >= 0.99 * len(waits) > 0
    assert {r["waker_tid"] for r in named} == {truth["other"]}
    assert {r["waker_comm"] for r in named} == {waits[0]["comm"]}


def test_who_is_at_another_lock_wakes_nobody(debian_python, start_agent, cleanup):
    """A wait for a lock that times out is ended by an interrupt, which runs on top of threads at different locks, of
    the same process and of a second process."""
    program = """
import _thread, threading, time
lock = threading.Lock()
lock.acquire()
def others(own=threading.Lock()):
    while True:
        with own: pass
        threading.Event().wait(0.0005)
threading.Thread(target=others, daemon=True).start()
print("up", flush=True)
while True: lock.acquire(timeout=0.003)
"""
    waiter = subprocess.Popen([debian_python.path, "-c", program], stdout=subprocess.PIPE)
    cleanup.append(waiter)
    waiter.stdout.readline()
    noise = subprocess.Popen([os.path.join(ROOT, "build", "tests", "e2e", "wakes"), "60"], stdout=subprocess.PIPE)
    cleanup.append(noise)
    noise.stdout.readline()
    agent = start_agent(EVERY, f"--pid={waiter.pid}", "--duration=3", trackers=["off_cpu", "gil_wait"])
    assert agent.wait_end(20) == 0
    rows = agent.select(TABLE, lambda r: r["host_tid"] == waiter.pid and r["cause"] == "lock" and r["state"] == "S"
                        and r["duration_ns"] > 2.5e6)
    assert len(rows) > 100
    assert not any(r["waker_tid"] for r in rows), collections.Counter((r["waker_comm"], r["waker_pid"]) for r in rows)


def test_idle_threads_are_told_from_those_kept_waiting(start_agent, start_on_all):
    """All threads sleep on locks; the Python stacks tell the difference."""
    agent = start_agent(trackers=["off_cpu", "gc_pause"])
    workloads = start_on_all("off_cpu_idle.py", 31)
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        for name, tid in workload.truth["tids"].items():
            waits = agent.select(TABLE, lambda r: (r["host_pid"], r["host_tid"], r["cause"], r["state"]) ==
                                 (workload.hello["pid"], tid, "lock", "S") and r["duration_ns"] > 15e6)
            known = [r for r in waits if r["py_stack"] and not r["py_stack"][0].startswith(("<gone>", "<unread>"))]
            assert len(known) >= 15, (name, len(waits), len(known))
            wrong = [r for r in known if r["idle"] != name.startswith("idle")]
            assert not wrong, (name, len(wrong), wrong[0]["py_stack"])
    host.check_each(workloads, check)


@pytest.mark.parametrize("fate", ["stays", "replaced", "stripped"])
def test_user_stacks_are_the_chain_of_calls(fate, tmp_path, start_agent, cleanup):
    """Of a program with frame pointers, by name, also after the file was replaced; without symbols the file is
    named, never a wrong function."""
    program = tmp_path / "frames"
    shutil.copy(os.path.join(ROOT, "build", "tests", "e2e", "frames"), program)
    if fate == "stripped":
        subprocess.run(["strip", program], check=True)
    process = subprocess.Popen([program, "13"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    cleanup.append(process)
    process.stdout.readline()
    if fate == "replaced":
        program.unlink()
        shutil.copy("/bin/ls", program)
    agent = start_agent(f"--pid={process.pid}", trackers=["off_cpu"])
    process.stdin.write(b"x")
    process.stdin.flush()
    process.stdout.readline()
    agent.stop()
    process.stdin.close()
    process.wait()
    stacks = [r["user_stack"] for r in agent.rows[TABLE] if r["cause"] == "sleep"]
    stacks += [r["user_stack"] for r in agent.rows[PROFILE] if r["cause"] == "sleep" for _ in range(r["count"])]
    assert len(stacks) == 2 * 13
    names = ["sleep_20_ms", *(f"chain_{i}" for i in range(11)), "main"]
    for stack in stacks:
        assert stack[:13] == (["[frames]"] * 13 if fate == "stripped" else names)
        assert "[unknown]" not in stack


@pytest.mark.alone
def test_stacks_of_processes_that_are_gone_have_names(debian_python, start_agent, start_workload):
    """Short-lived children, and sums written after the end of the children."""
    agent = start_agent("--off_cpu.profile_interval=3600", trackers=["off_cpu", "gc_pause"])
    workload = start_workload(debian_python, "off_cpu_truth.py", "child", 31, SECONDS).wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    children = {wait[2] for wait in truth["waits"]}
    # of a thread that ends right after an untraced wake-up, only this loss is known
    lost = counts.check(agent)["off_cpu"]["lost_state"]
    sleeps = agent.select(TABLE, lambda r: r["host_pid"] in children and r["cause"] == "sleep")
    sums = agent.select(PROFILE, lambda r: r["host_pid"] in children and r["cause"] == "sleep")
    assert len(sleeps) == sum(r["count"] for r in sums) >= max(31 - lost, 25)
    for row in (*sleeps, *sums):
        assert row["user_stack"] and "nanosleep" in row["user_stack"][0], row["user_stack"]


def test_preempted_is_told_from_blocked(debian_python, start_agent, start_workload):
    agent = start_agent(EVERY, trackers=["off_cpu", "gc_pause"])
    workload = start_workload(debian_python, "off_cpu_work.py", "compute").wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    rows = rows_of(agent, workload.hello, truth)
    preempted = [r for r in rows if r["cause"] == "preempt"]
    assert {r["state"] for r in preempted} == {"R"}
    assert all(r["runq_ns"] == r["duration_ns"] and r["waker_tid"] == 0 for r in preempted)
    # at least half of the two seconds belonged to further threads
    assert sum(r["duration_ns"] for r in preempted) > 0.8e9
    assert sum(r["runq_ns"] for r in rows) == pytest.approx(truth["run_delay_ns"], rel=0.02)
    wall = truth["end"] - truth["begin"]
    assert sum(r["duration_ns"] for r in rows) + truth["on_cpu_ns"] == pytest.approx(wall, rel=0.02)


@pytest.mark.alone
def test_disk(debian_python, start_agent, start_workload):
    agent = start_agent(EVERY, trackers=["off_cpu", "gc_pause"])
    workload = start_workload(debian_python, "off_cpu_work.py", "disk").wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    rows = rows_of(agent, workload.hello, truth)
    synced = [r for r in rows if r["syscall"] in ("fsync", "fdatasync") and r["cause"] != "preempt"]
    assert len(synced) >= 53 and {r["cause"] for r in synced} == {"disk"}
    # the thread did nothing besides: time off the CPU was a wait for the disk, or for a CPU
    wall = truth["end"] - truth["begin"]
    off = sum(r["duration_ns"] for r in rows if r["cause"] in ("disk", "preempt"))
    # the scheduler's clock stops and starts a few microseconds before the tracepoint: much for a fast disk
    assert off + truth["on_cpu_ns"] == pytest.approx(wall, abs=0.03 * wall + 10_000 * len(rows))


def test_page_faults(debian_python, start_agent, start_workload):
    agent = start_agent(EVERY, trackers=["off_cpu", "gc_pause"])
    workload = start_workload(debian_python, "off_cpu_work.py", "fault").wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    if truth["major_faults"] < 50:
        pytest.skip(f"{truth['major_faults']} major faults: the file stays in memory here")
    faults = [r for r in rows_of(agent, workload.hello, truth) if r["cause"] == "page_fault"]
    assert {(r["state"], r["syscall"]) for r in faults} == {("D", "")}
    # a fault with an immediate page does not sleep, a fault may also sleep twice
    assert 0.5 * truth["major_faults"] <= len(faults) <= 2 * truth["major_faults"]


def test_a_cgroup_is_followed(tmp_path, debian_python, start_agent, cleanup):
    """Any program in the cgroup, Python or not."""
    with open("/proc/mounts") as f:
        mounts = [line.split()[1] for line in f if line.split()[2] == "cgroup2"]
    if not mounts:
        pytest.skip("no unified hierarchy of cgroups here")
    directory = f"{mounts[0]}/underspan-test-{os.getpid()}"
    os.mkdir(directory)
    try:
        agent = start_agent(f"--off_cpu.cgroup={directory}", trackers=["off_cpu"])
        script = f"echo $$ > {directory}/cgroup.procs; for i in 1 2 3 4 5; do sleep 0.05; done; echo $$"
        shell = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True)
        agent.stop()
    finally:
        os.rmdir(directory)
    waits = agent.select(TABLE, lambda r: r["host_pid"] == int(shell.stdout) and r["cause"] == "child")
    assert len(waits) == 5
    sleeps = [r for r in agent.rows[TABLE] if r["comm"] == "sleep" and r["cause"] == "sleep"]
    assert len(sleeps) == 5 and all(50e6 <= r["duration_ns"] for r in sleeps)
