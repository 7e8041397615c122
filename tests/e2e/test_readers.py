# SPDX-License-Identifier: Apache-2.0
"""What has to be read of other processes holds nobody up, and what could not be read is said and counted."""
import os
import signal
import sys
import time

import pytest

import counts
import host
from agent import STOP_SECONDS, processes_with
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
    """In a file system that is seen to be a program's; in an overlay over one, and where a program answers its own page faults
    (after /proc/PID/pagemap has been looked at), which nobody can see before it hangs."""
    (tmp_path / "content").write_bytes(bytes(4 << 20))
    healthy = start_workload(debian_python, "gc_truth.py", 1, 199, 1)
    if how == "userfaultfd":
        hung = start_workload(debian_python, "hung_memory.py", how, 31)
        pid = hung.pid
    else:
        served = [sys.executable, FUSE, *["--overlay"] * (how == "overlay"), tmp_path / "content", "trap"]
        hung = start_workload(debian_python, "hung_memory.py", "{}", 31, prefix=served)
        pid = hung.read()  # what the file system says
    # all others of the host have a share in what is read a second, too
    agent = start_agent(STACKS, f"--pid={healthy.pid}", f"--pid={pid}", trackers=["gc_pause"])
    healthy.wait_covered(agent)
    hung.wait_covered(agent)
    if how != "userfaultfd":
        hung.process.send_signal(signal.SIGUSR1)
    hung.say()
    lost = hung.read()
    healthy.say()
    truth = healthy.read()
    # all there is to be said of the one that is healthy, while nothing is read of the other one
    agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                    n=len(truth["collections"]), timeout=60)
    rows = rows_of(agent, healthy.hello, truth["begin"], truth["end"])
    match(rows, truth["collections"])
    # a machine that is busy may not get round to it in two seconds
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
