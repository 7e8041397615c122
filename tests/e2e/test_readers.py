# SPDX-License-Identifier: Apache-2.0
"""Reads of a process delay nothing else in the agent; failed reads are marked and counted."""
import os
import signal
import sys
import time

import pytest

import counts
import host
from agent import PATIENCE, STOP_SECONDS, processes_with
from test_gc_pause import match, rows_of

GC = "ebpf_gc_pause"
FUSE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuse.py")
STACKS = "--gc_pause.stack_min_us=0"


def kernel_stack(pid):
    try:
        with open(f"/proc/{pid}/stack") as f:
            return f.read()
    except OSError:
        return ""


@pytest.mark.alone
@pytest.mark.parametrize("how, kernel_waits_in", [("served", None), ("overlay", "request_wait_answer"), ("userfaultfd", "handle_userfault")])
def test_memory_that_hangs_holds_nobody_up(how, kernel_waits_in, debian_python, start_agent, start_workload, tmp_path):
    """In a file system recognised as a FUSE; in an overlay over a FUSE; and with a program that answers page faults by
    userfaultfd (after a check of /proc/PID/pagemap), which cannot be recognised before the hang."""
    (tmp_path / "content").write_bytes(bytes(4 << 20))
    healthy = start_workload(debian_python, "gc_truth.py", 1, 199, 1)
    if how == "userfaultfd":
        hung = start_workload(debian_python, "hung_memory.py", how, 31)
        pid = hung.pid
    else:
        served = [sys.executable, FUSE, *["--overlay"] * (how == "overlay"), tmp_path / "content", "trap"]
        hung = start_workload(debian_python, "hung_memory.py", "{}", 31, prefix=served)
        pid = hung.read()  # printed by the file system
    # all processes of the host share the limit of reads per second
    agent = start_agent(STACKS, f"--pid={healthy.pid}", f"--pid={pid}", trackers=["gc_pause"])
    healthy.wait_covered(agent)
    hung.wait_covered(agent)
    if how != "userfaultfd":
        hung.process.send_signal(signal.SIGUSR1)
    hung.say()
    lost = hung.read()
    healthy.say()
    truth = healthy.read()
    # complete rows of the healthy process, while reads of the hung process wait
    agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                    n=len(truth["collections"]), timeout=60)
    rows = rows_of(agent, healthy.hello, truth["begin"], truth["end"])
    match(rows, truth["collections"])
    # a busy machine may not finish the reads within two seconds
    assert counts.having(rows, "<unread>") + sum(not r["thread_name"] for r in rows) <= len(rows) // 10
    rows = agent.wait_rows(GC, lambda r: r["tid"] == lost["tid"] and host.monotonic_ns(r["start_time"]) >= lost["begin"], n=31,
                           timeout=60)
    assert len(rows) == counts.having(rows, "<unread>") == 31
    if kernel_waits_in:
        assert any(kernel_waits_in in kernel_stack(reader) for reader in processes_with(agent._marker)), "nothing hangs"
    told = time.monotonic()
    agent.process.terminate()
    assert agent.wait_end(STOP_SECONDS) == 0 and time.monotonic() - told < STOP_SECONDS
    found = counts.check(agent)["gc_pause"]
    assert found["rows_unread"] >= 31, found
    hung.kill()
    host.wait_until(lambda: not processes_with(agent._marker), 10, "the end of what reads")


READERS_OF_OWNER, MANY = 6, 300  # src/workers/reader_process.h


@pytest.mark.alone
def test_memory_of_many_processes_that_hangs(debian_python, start_agent, start_workload, tmp_path):
    """Processes of one user whose names cannot be read: few readers hang, each process has its rows, and so have the others."""
    (tmp_path / "content").write_bytes(bytes(4 << 20))
    healthy = start_workload(debian_python, "gc_truth.py", 1, 199, 1)
    hung = start_workload(debian_python, "hung_memory.py", "{}", 31, MANY, prefix=[sys.executable, FUSE, "--overlay", tmp_path / "content", "trap"])
    pid = hung.read()  # printed by the file system
    agent = start_agent(STACKS, trackers=["gc_pause"])
    for one in healthy, hung:
        one.wait_covered(agent)
    hung.process.send_signal(signal.SIGUSR1)
    hung.say()
    lost = hung.read()
    children = set(host.children_of(pid))
    assert len(children) == MANY
    of_children = lambda: {r["host_pid"] for r in agent.select(GC, lambda r: r["host_pid"] in children)}
    host.wait_until(lambda: of_children() == children, 60 * PATIENCE, "a row of each process")
    healthy.say()
    truth = healthy.read()
    agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                    n=len(truth["collections"]), timeout=60)
    match(rows_of(agent, healthy.hello, truth["begin"], truth["end"]), truth["collections"])
    assert 0 < sum("request_wait_answer" in kernel_stack(reader) for reader in processes_with(agent._marker)) <= READERS_OF_OWNER
    agent.wait_rows(GC, lambda r: r["tid"] == lost["tid"] and host.monotonic_ns(r["start_time"]) >= lost["begin"], n=31, timeout=60)
    told = time.monotonic()
    agent.process.terminate()
    assert agent.wait_end(STOP_SECONDS) == 0 and time.monotonic() - told < STOP_SECONDS
    counts.check(agent)
    hung.kill()
    host.wait_until(lambda: not processes_with(agent._marker), 10, "the end of what reads")


def test_code_that_dies_is_gone_and_counted(debian_python, start_agent, start_workload):
    agent = start_agent(STACKS, trackers=["gc_pause"])
    workload = start_workload(debian_python, "dying_code.py", 499).wait_covered(agent)
    workload.say()
    truth = workload.read()
    agent.stop()
    rows = rows_of(agent, workload.hello, truth["begin"], truth["end"])
    assert len(rows) == 499
    for i, row in enumerate(rows):
        assert row["py_stack"][0] in ("<gone>", "<unread>", f"<module> (dies/{i:04}.py:1)"), (i, row["py_stack"])
    found = counts.check(agent)["gc_pause"]
    print(f"\n  {found['rows_gone']} of 499 gone, {found['rows_unread']} unread", end=" ")
    assert found["rows_gone"] > 0, found
    workload.finish()
