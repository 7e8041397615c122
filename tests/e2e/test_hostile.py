# SPDX-License-Identifier: Apache-2.0
"""Programs that imitate Python (workloads/impostor.c): those that pass for one and then lie, and what they start."""
import json
import os
import subprocess
import time

import pytest

import host
import impostor

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="lies as x86-64 has it")
GC = "ebpf_gc_pause"
REASON = "its state is not where this build should have it"


@pytest.fixture(params=[11, 13], ids=["3.11", "3.13"])
def program(request, tmp_path):
    return impostor.build(tmp_path, f"-DMINOR={request.param}")


@pytest.fixture
def start(cleanup):
    def started(path):
        cleanup.append(impostor.Impostor(path))
        return cleanup[-1]
    return started


def python_rows(agent, pid, timeout=10):
    return agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == pid and r["tracker"] == "python", timeout=timeout)


def test_a_forked_child_is_looked_at_itself(program, start, start_agent):
    """It has its parent's state; what it does with it is its own."""
    agent = start_agent(trackers=["gc_pause"])
    parent = start(program)
    assert python_rows(agent, parent.pid)[0]["live"]
    honest, liar = parent.tell("fork")["child"], parent.tell("fork garbage")["child"]
    assert python_rows(agent, honest)[0]["live"]
    rows = python_rows(agent, liar)
    assert not rows[0]["live"] and rows[0]["reason"].startswith(REASON), rows
    agent.wait_rows(GC, lambda r: r["host_pid"] == honest, n=50)
    before = len(agent.select(GC, lambda r: r["host_pid"] == liar))
    agent.wait_rows(GC, lambda r: r["host_pid"] == honest, n=500)  # meanwhile the liar calls its collector as often
    assert len(agent.select(GC, lambda r: r["host_pid"] == liar)) == before
    assert not agent.select("ebpf_probe_health", lambda r: r["host_pid"] in (parent.pid, honest) and not r["live"])
    agent.stop()


@pytest.mark.parametrize("chosen", [True, False])
def test_children_of_what_was_refused_are_refused(program, start, start_agent, chosen):
    parent = start(program)
    parent.tell("garbage")
    agent = start_agent(*[f"--pid={parent.pid}"] * chosen, trackers=["gc_pause"])
    assert not python_rows(agent, parent.pid)[0]["live"]
    child = parent.tell("fork")["child"]
    time.sleep(3)
    assert os.path.exists(f"/proc/{child}")
    agent.stop()
    assert not agent.select(GC, lambda r: r["host_pid"] == child)
    counts = [r for r in agent.rows["ebpf_agent"] if r["tracker"] == "gc_pause"]
    assert sum(r["filtered"] for r in counts) > 200, counts


def test_python_children_are_looked_at_too(start_agent, debian_python):
    """Forked with Python's knowledge, as pre-fork servers are."""
    agent = start_agent(trackers=["gc_pause"])
    code = ("import json, os, time\nchildren = []\nfor _ in range(3):\n pid = os.fork()\n if not pid: time.sleep(60)\n"
            " children.append(pid)\nprint(json.dumps(children), flush=True)\ninput()\nfor pid in children: os.kill(pid, 9)\n")
    parent = subprocess.Popen([debian_python.path, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    children = json.loads(parent.stdout.readline())
    for pid in children:
        (row,) = python_rows(agent, pid)
        assert row["live"] and row["python_version"] == "%d.%d.%d" % debian_python.version
    parent.communicate("\n")
    agent.stop()
