# SPDX-License-Identifier: Apache-2.0
"""A Python with an unread interpreter (a free-threaded build, or an imitation): trackers without need of the interpreter
watch the process all the same, and the rest is refused with the reason."""
import pytest

import counts
import host
from agent import run_underspan
from cgroups import QuotaCgroup
from conftest import ALL_PYTHONS
from test_counts import EVERYTHING
from test_doctor import REASON, call_it_free_threaded, imitations, lines_of  # noqa: F401, imitations is a fixture
from test_gc_pause import copy_python

WATCHED = ["handoff", "off_cpu", "tcp_accept", "tcp_connect", "tcp_loss", "cpu_throttle"]
REFUSED = ["gc_pause", "gil_wait", "loop_stall", "on_cpu"]
STACKS = ("py_stack", "holder_py_stack")


def check_health(agent, pid, reason):
    health = {r["tracker"]: (r["live"], r["reason"]) for r in agent.select("ebpf_probe_health", lambda r: r["host_pid"] == pid)}
    health.pop("python", None)
    for tracker, (live, told) in health.items():
        assert live == (tracker in WATCHED) and reason in told, (tracker, health)
        assert not live or told.startswith("rows have no Python stacks and no names of threads: "), told
    return set(health)


@pytest.mark.parametrize("python", [p for p in ALL_PYTHONS if p.version >= (3, 13)][:1], ids=str)
def test_a_free_threaded_python_keeps_what_needs_no_interpreter(python, start_agent, start_workload, tmp_path, cleanup):
    copy, env = copy_python(python, tmp_path)
    call_it_free_threaded(copy.image)
    agent = start_agent(*EVERYTHING, trackers=WATCHED + REFUSED)
    workload = start_workload(copy, "everything.py", 2, env=env)
    pid = workload.read()["pid"]
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == pid, n=len(WATCHED + REFUSED))
    cgroup = QuotaCgroup(50_000)
    cleanup.append(cgroup)
    with open(f"{cgroup.path}/cgroup.procs", "w") as f:
        f.write(str(pid))
    told = host.time.time_ns() // 1000
    workload.say()
    workload.read()
    reason = f"free-threaded Python 3.{python.version[1]} is not supported"
    doctor = lines_of(run_underspan("doctor", f"--pid={pid}", timeout=60).stdout, pid)
    workload.finish()
    agent.stop()
    assert check_health(agent, pid, reason) == {*WATCHED, *REFUSED}
    assert doctor["Python"] == (False, reason)
    assert {t: doctor[t][0] for t in WATCHED + REFUSED} == {t: t in WATCHED for t in WATCHED + REFUSED}, doctor
    found = counts.check(agent)
    for tracker in set(WATCHED) - {"tcp_loss"}:
        rows = agent.select("ebpf_" + tracker, lambda r: r["host_pid"] == pid)
        assert rows, (tracker, found[tracker])
        # before exec() the process was the test, an ordinary Python
        assert not any(r.get(column) for r in rows for column in STACKS if r["start_time"] >= told), tracker
    assert not [r for t in REFUSED for r in agent.rows["ebpf_" + t] if r["host_pid"] == pid]


def test_what_passes_for_python_gets_no_more_than_a_python(imitations, start_agent):  # noqa: F811
    """The sleeps are rows, as any user may start a Python; the memory is never read, however often the program
    collects."""
    agent = start_agent("--off_cpu.min_duration_us=0", trackers=["off_cpu", "gc_pause", "gil_wait"])
    for what, process in imitations:
        agent.wait_rows("ebpf_off_cpu", lambda r, pid=process.pid: r["host_pid"] == pid and r["cause"] == "sleep", 3)
    agent.stop()
    for what, process in imitations:
        refused = agent.select("ebpf_probe_health", lambda r: r["host_pid"] == process.pid and not r["live"])
        assert any(r["reason"].startswith(REASON) for r in refused), (what, refused)
        live = agent.select("ebpf_probe_health", lambda r: r["host_pid"] == process.pid and r["live"] and REASON in r["reason"])
        assert {r["tracker"] for r in live} == {"off_cpu"}, (what, live)
        assert not agent.select("ebpf_off_cpu", lambda r: r["host_pid"] == process.pid and r["py_stack"]), what
