# SPDX-License-Identifier: Apache-2.0
"""Programs that imitate Python (workloads/impostor.c): accepted as Python, with lies in memory; and children of
such programs."""
import json
import os
import re
import subprocess
import time

import pytest

import counts
import host
import impostor
from agent import PATIENCE, SANITIZER, plain_build
from test_gc_pause import check_rows

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="lies as x86-64 has it")
GC = "ebpf_gc_pause"
TABLES = GC, "ebpf_gil_wait", "ebpf_off_cpu"
LIES = ["circle", "dict", "wide", "name", "file", "negative", "fault", "garbage", "flood"]
# contents of the program's memory
NAMES = re.compile("|impostor (main|waiter|sleeper)|A{511}")
PLACES = re.compile(r"<unread>|<gone>|<cut>|impostor (main|waiter|sleeper)_function \(impostor/inner\.py(:\d+)?\)"
                    r"|outer \(impostor/outer\.py:7\)|A+…? \(A+…?(:\d+)?\)"
                    r"|flood_\d_\d+_f+…? \((flood_\d_\d+_f+|A+)…?(:\d+)?\)")
REASON = "the interpreter's state is not where expected for this build"


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
    """A forked child has the parent's state, and develops separately."""
    agent = start_agent(trackers=["gc_pause"])
    parent = start(program)
    assert python_rows(agent, parent.pid)[0]["live"]
    honest, liar = parent.tell("fork")["child"], parent.tell("fork garbage")["child"]
    assert python_rows(agent, honest)[0]["live"]
    rows = python_rows(agent, liar)
    assert not rows[0]["live"] and rows[0]["reason"].startswith(REASON), rows
    agent.wait_rows(GC, lambda r: r["host_pid"] == honest, n=50)
    before = len(agent.select(GC, lambda r: r["host_pid"] == liar))
    agent.wait_rows(GC, lambda r: r["host_pid"] == honest, n=500)  # during these collections the liar calls the collector as often
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


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kb(pid):
    """Private memory: pages of program and libraries come and go as the code runs."""
    return int(host.status_field(pid, "RssAnon")[0])


def check_is_in_memory(row):
    for column, value in row.items():
        if column == "waker_thread_name" and row["waker_comm"] != row["comm"]:
            continue  # an unrelated process, interrupted by the timer
        if column.endswith("thread_name"):
            assert NAMES.fullmatch(value), (column, row)
        elif column.endswith("py_stack"):
            wrong = [place for place in value if not PLACES.fullmatch(place)]
            assert not wrong, (column, wrong[:3])
    for holder in row.get("holders", ()):
        assert NAMES.fullmatch(holder["thread_name"]), row


# watches nothing else on this host
OPTIONS = [f"--pid={os.getpid()}", "--gil_wait.min_duration_us=500", "--gc_pause.stack_min_us=0", "--off_cpu.min_duration_us=500"]


@pytest.mark.pair  # rows of lies are ten times as long, and a busy machine lets rows queue up: 25 MB were seen
@pytest.mark.parametrize("lie", LIES)
def test_what_passes_for_python_and_then_lies(lie, program, start, start_agent, start_workload, debian_python):
    """The rows contain nothing from outside the program's memory, and cost no more than before; honest
    programs lose nothing."""
    agent = start_agent(*OPTIONS, trackers=["gc_pause", "gil_wait", "off_cpu"])
    liar = start(program)
    assert python_rows(agent, liar.pid)[0]["live"]
    real = start_workload(debian_python, "gc_truth.py", 1, 200, 1).wait_covered(agent)
    for table in TABLES:
        agent.wait_rows(table, lambda r: r["host_pid"] == liar.pid, n=20)
    before, since = cpu_seconds(agent.pid), time.monotonic()
    time.sleep(2)
    honest = (cpu_seconds(agent.pid) - before) / (time.monotonic() - since)
    memory = rss_kb(agent.pid)
    assert liar.tell(lie)["lies"] == 1
    before, since = cpu_seconds(agent.pid), time.monotonic()
    real.say()
    real.truth = real.read()
    time.sleep(3)
    lied = (cpu_seconds(agent.pid) - before) / (time.monotonic() - since)
    grown = rss_kb(agent.pid) - memory
    real.finish()
    liar.kill()
    agent.stop()
    counts.check(agent)
    check_rows(agent, real)
    rows = [r for table in TABLES for r in agent.select(table, lambda r: r["host_pid"] == liar.pid)]
    assert len(rows) > 100
    for row in rows:
        check_is_in_memory(row)
    # with such long names, rows of 24 kB each are written
    assert SANITIZER or lied < 3 * honest + (0.5 if lie in ("file", "flood") else 0.25), (lied, honest)
    # rows of long names are long, and wait within memory_bytes: tested separately
    assert SANITIZER or lie in ("file", "flood") or grown < 8192 * PATIENCE, f"{grown} kB"


@pytest.mark.sole  # rows queued up by a busy machine are memory, too
@plain_build("what it keeps in memory is counted")
@pytest.mark.parametrize("lie", ["file", "flood"])
def test_endless_code_and_names_cost_bounded_memory(lie, program, start, start_agent):
    agent = start_agent(*OPTIONS, "--memory_bytes=2097152", "--batch_bytes=65536", trackers=["gc_pause", "gil_wait", "off_cpu"])
    liar = start(program)
    agent.wait_rows(GC, lambda r: r["host_pid"] == liar.pid, n=20)
    memory = rss_kb(agent.pid)
    liar.tell(lie)
    most = 0
    for _ in range(40):
        time.sleep(0.2)
        most = max(most, rss_kb(agent.pid) - memory)
    liar.kill()
    agent.kill()
    assert most < 8192, f"{most} kB"
