# SPDX-License-Identifier: Apache-2.0
"""More than the agent was made for: what it cannot take is counted, and afterwards it is as right as before."""
import os
import shutil
import signal
import time

import pytest

import counts
import impostor

NAME = '"},{"table":"ebpf_agent\n\x1b[31m\ufffd' + "x" * 300  # of a tenant that wants to write others' rows


def test_processes_whose_start_was_lost_are_found(debian_python, start_agent, start_workload):
    """A tenant floods the agent while it has no CPU; a program that starts then is watched all the same."""
    agent = start_agent(trackers=["gc_pause"])
    flood = start_workload(debian_python, "thread_storm.py", 30011, NAME).wait_covered(agent)
    agent.process.send_signal(signal.SIGSTOP)
    flood.say()
    assert flood.read()["done"]
    other = start_workload(debian_python, "gc_truth.py", 1, 101, 1)
    time.sleep(0.5)
    agent.process.send_signal(signal.SIGCONT)
    other.wait_covered(agent, timeout=30)
    other.say()
    truth = other.read()
    other.finish()
    flood.finish()
    agent.stop()
    found = counts.check(agent)
    assert found["processes"]["lost_ring"] > 0 and "looking at all processes again" in agent.stderr
    rows = agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == other.pid)
    assert len(rows) >= len(truth["collections"])
    assert not agent.broken_lines and set(agent.rows) <= {"ebpf_gc_pause", "ebpf_agent", "ebpf_probe_health"}


def test_a_target_that_is_killed_while_it_is_probed(debian_python, start_agent, start_workload):
    agent = start_agent("--off_cpu.min_duration_us=0", "--gil_wait.min_duration_us=0")
    for pause in 0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3:
        workload = start_workload(debian_python, "everything.py", 5)
        time.sleep(pause)
        os.kill(workload.pid, signal.SIGKILL)
    last = start_workload(debian_python, "gc_truth.py", 1, 53, 1).wait_covered(agent)
    last.say()
    truth = last.read()
    last.finish()
    agent.stop()
    counts.check(agent)
    rows = agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == last.pid)
    assert len(rows) >= len(truth["collections"])


MAX_BINARIES = 256  # src/probe/binaries.h


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="imitates Python as x86-64 has it")
def test_more_binaries_than_can_be_probed(start_agent, cleanup, tmp_path):
    """Those that come too late are told of, one row each, and are watched as soon as there is room for them."""
    program = impostor.build(tmp_path, "-DMINOR=13")
    agent = start_agent(f"--pid={os.getpid()}", trackers=["gc_pause"])
    running = []
    for i in range(MAX_BINARIES + 5):
        running.append(impostor.Impostor(shutil.copy(program, f"{program}-{i}"), "idle"))
        cleanup.append(running[-1])
    pids = {p.pid for p in running}
    first = {}
    for row in agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] in pids and r["tracker"] == "gc_pause"
                               and r["python_version"] in ("3.13.2", ""), n=len(running), timeout=60):
        first[row["host_pid"]] = row
    late = [p for p in running if not first[p.pid]["live"]]
    assert 5 <= len(late) <= 6 and late == running[-len(late):]  # this very process is one, too
    assert {first[p.pid]["reason"] for p in late} == {f"more than {MAX_BINARIES} Python binaries in use at once"}
    for p in late:
        p.tell("collect")
    time.sleep(0.3)
    assert not agent.select("ebpf_gc_pause", lambda r: r["host_pid"] in {p.pid for p in late})
    for p in running[:len(late)]:
        p.kill()
    for p in late:
        agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == p.pid and r["tracker"] == "gc_pause" and r["live"]
                        and r["python_version"] == "3.13.2")  # not as a fork of this process
        p.tell("collect")
        agent.wait_rows("ebpf_gc_pause", lambda r: r["host_pid"] == p.pid)
    agent.stop()
    assert sum("not traced" in line for line in agent.log) == len(late), agent.stderr
