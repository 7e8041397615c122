# SPDX-License-Identifier: Apache-2.0
"""Properties of no Python available here, from an imitation (workloads/impostor.c) that reports the truth: clones of
the collecting function, and musl's condition variables."""
import os
import shutil
import subprocess
import time

import pytest

import host
import impostor

GC, GIL = "ebpf_gc_pause", "ebpf_gil_wait"
EDGE = 3  # events while the program prints the counts

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="imitates Python as x86-64 has it")


def watch(program, cleanup, start_agent, *options, seconds=2):
    """Returns the agent, the process, and the process's reports at the beginning and at the end of the
    given seconds."""
    imitation = impostor.Impostor(program)
    cleanup.append(imitation)
    agent = start_agent(f"--pid={imitation.pid}", *options, trackers=["gc_pause", "gil_wait"])
    agent.wait_rows(GIL, lambda r: r["thread_name"] == "impostor waiter")
    before = imitation.tell("calls")
    time.sleep(seconds)
    after = imitation.tell("calls")
    agent.wait_rows(GC, lambda r: host.monotonic_ns(r["start_time"]) > after["now"])
    imitation.kill()
    agent.stop()
    return agent, before, after


def between(agent, table, before, after):
    return agent.select(table, lambda r: before["now"] <= host.monotonic_ns(r["start_time"]) < after["now"])


@pytest.mark.parametrize("minor", [11, 13])
def test_every_clone_of_the_collector_is_probed(minor, cleanup, start_agent, tmp_path):
    """With the names given by compilers. A cold part is no clone: jumps into a cold part were seen at the
    function's beginning."""
    program = impostor.build(tmp_path, f"-DMINOR={minor}", "-DCLONES")
    symbols = subprocess.run(["nm", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert symbols.count(" gc_collect_main") == 6
    agent, before, after = watch(program, cleanup, start_agent)
    calls = [b - a for a, b in zip(before["calls"], after["calls"])]
    assert len(calls) == 5 and min(calls) > 10
    assert abs(len(between(agent, GC, before, after)) - sum(calls)) <= EDGE


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="no musl-gcc: run 'deploy/dependencies.sh check'")
@pytest.mark.parametrize("linked", ["-static", "-no-pie"])
@pytest.mark.parametrize("minor", [11, 13])
def test_waits_for_the_gil_with_musl(minor, linked, cleanup, start_agent, tmp_path):
    """musl's condition variables sleep on the waiter's stack, where the scheduler shows nothing: the calls are
    probed automatically, and the waits equal the program's counts."""
    program = impostor.build(tmp_path, f"-DMINOR={minor}", linked, compiler="musl-gcc")
    agent, before, after = watch(program, cleanup, start_agent, "--gil_wait.min_duration_us=0")
    rows = between(agent, GIL, before, after)
    n, total = after["waits"] - before["waits"], after["waited_ns"] - before["waited_ns"]
    assert n > 50 and abs(len(rows) - n) <= EDGE, (len(rows), n)
    longest = max(r["duration_ns"] for r in rows)
    # the clock is read around the call, in which the thread may also lack a CPU
    slack = 0.02 * total + EDGE * longest + sum(r["runq_ns"] for r in rows)
    assert abs(sum(r["duration_ns"] for r in rows) - total) <= slack, (sum(r["duration_ns"] for r in rows), total)
    assert {r["method"] for r in rows} == {"callsite"}
    long = [r for r in rows if r["duration_ns"] > 2_000_000]
    assert len(long) > 20
    by_main = [r for r in long if (r["thread_name"], r["holder_thread_name"]) == ("impostor waiter", "impostor main")]
    assert len(by_main) >= 0.9 * len(long), (len(by_main), len(long))
