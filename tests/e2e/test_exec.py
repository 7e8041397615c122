# SPDX-License-Identifier: Apache-2.0
"""A thread other than the first of the process calls exec(): the thread takes over the first thread's id, and the
kernel side's state of threads is found all the same."""
import signal

import pytest

import bpf_maps
import counts
import host

TABLE = "ebpf_off_cpu"
CLOCK_NS = 1_000_000  # of stamps and rows of the same sleep; two sleeps are 12 ms apart
N = 600  # more than the capacity of any map of waiting threads


@pytest.mark.alone
@pytest.mark.parametrize("fate", ["runs", "leads no more", "dies"])
@pytest.mark.parametrize("without", ["sched_exit_tp", "sched_exit_tp,task_storage"])
def test_exec_of_another_thread_leaves_no_place_taken(without, fate, debian_python, start_agent, start_workload):
    """Without sched_exit_tp: as on kernels up to 6.17. 600 threads that exec(), or die of an exec() in a
    sibling."""
    agent = start_agent(f"--degrade={without}", "--off_cpu.min_duration_us=0", "--off_cpu.ring_kib=32768",
                        "--off_cpu.max_threads=4096", trackers=["off_cpu", "gil_wait", "gc_pause"])
    workload = start_workload(debian_python, "exec_threads.py", N, fate).wait_covered(agent)
    maps = ["off_cpu_deferred", "gil_calls", "gil_processes", "python_processes", "processes"]
    maps += ["sched_thread_hash"] if "task_storage" in without else []
    before = {name: bpf_maps.occupied(agent.pid, name) for name in maps}
    workload.say()
    truth = workload.read()
    assert truth["states"] == [signal.SIGSEGV if fate == "dies" else 0], truth

    def left():
        now = {name: bpf_maps.occupied(agent.pid, name) for name in maps}
        usual = before | {"sched_thread_hash": max(before.get("sched_thread_hash", 0), host.threads_of_all())}
        return {name: n - usual[name] for name, n in now.items() if n - usual[name] > 20}  # entries of unrelated processes come and go
    try:
        host.wait_until(lambda: not left(), 3, "no place is taken any more")
    except AssertionError:
        raise AssertionError(f"places taken by threads that are gone: {left()}") from None
    workload.say()
    sleeps = [s for s in workload.read()["sleeps"] if s["switches"]]
    workload.finish()
    agent.stop()
    own = counts.check(agent)["off_cpu"]
    assert not own["stack_room"] and own["lost_state"] < N / 20, own  # some returns are not traced
    rows = host.sleeps_among(agent.rows[TABLE], workload.pid)
    assert len(rows) == len(sleeps) > 10, f"{len(rows)} rows of {len(sleeps)} sleeps; {own}"
    for row, sleep in zip(rows, sleeps):
        assert sleep["begin"] <= host.monotonic_ns(row["start_time"]) + CLOCK_NS, (row, sleep)
        assert host.monotonic_ns(row["end_time"]) <= sleep["end"] + CLOCK_NS, (row, sleep)
        assert not row["py_stack"] or row["py_stack"][0].startswith("sleeps "), row
    # the limit of what stacks may cost; the 600 threads have used the most of it
    without_stack = sum(not row["py_stack"] for row in rows)
    assert without_stack <= own["stack_share"] and without_stack < len(rows) / 2, (without_stack, own)
