# SPDX-License-Identifier: Apache-2.0
"""Without features of newer kernels, every tracker uses the fallback, and the counts add up."""
import re

import pytest

import counts
from agent import run_underspan
from test_counts import EVERYTHING

WATCHED = ["handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept", "tcp_connect"]


def features():
    """{name: present} as reported by doctor."""
    text = run_underspan("doctor", "-v", timeout=60).stdout
    found = {name: mark == "yes" for mark, name in re.findall(r"^  (yes|no) +(\w+)", text, re.M)}
    assert {"task_storage", "attach_cookie", "sk_data_ready", "sys_exit_accept"} <= set(found), text
    return found


def test_doctor_tells_what_is_done_without():
    text = run_underspan("doctor", "-v", "--degrade=task_storage", timeout=60).stdout
    assert re.search(r"^  no +task_storage +fallback: off_cpu, gil_wait: ", text, re.M), text


@pytest.mark.parametrize("which", ["all", "syscalls"])
def test_trackers_work_without(which, debian_python, start_agent, start_workload):
    names = [name for name in features() if which == "all" or name.startswith("sys_")]
    agent = start_agent("--degrade=" + ",".join(names), *EVERYTHING)
    workload = start_workload(debian_python, "everything.py", 1.5).wait_covered(agent)
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    found = counts.check(agent)
    for tracker in WATCHED:
        assert agent.select("ebpf_" + tracker, lambda r: r["host_pid"] == workload.pid), (tracker, found[tracker])


def test_a_feature_that_is_none():
    result = run_underspan("run", "--stdout", "--degrade=task_storage,no_such_feature", "--duration=1")
    assert result.returncode == 2 and "no_such_feature" in result.stderr and "sk_data_ready" in result.stderr


HIDE_TRACEFS = ["unshare", "--mount", "sh", "-c", "umount -l /sys/kernel/debug/tracing /sys/kernel/debug /sys/kernel/tracing "
                "2>/dev/null; ! [ -e /sys/kernel/tracing/events ] && exec \"$@\"", "sh"]
PAYING = {"handoff", "loop_stall", "request", "tcp_accept", "tcp_connect"}


def test_programs_of_every_system_call_are_told(start_agent):
    """Where tracefs is not mounted and the agent may not mount it: by the log, in the tables and by doctor, with the fix."""
    agent = start_agent("--degrade=private_tracefs", prefix=HIDE_TRACEFS)
    agent.stop()
    rows = [r for r in agent.rows["ebpf_probe_health"] if r["method"] == "every system call"]
    assert {r["tracker"] for r in rows if r["live"]} == PAYING and len(rows) == len(PAYING), rows
    for row in rows:
        assert re.search(r"every system call .* \d+-\d+ ns .*mount -t tracefs", row["reason"]), row
        told = [line for line in agent.log if f"warning: {row['tracker']}: every system call" in line]
        assert len(told) == 1 and "mount -t tracefs" in told[0], agent.log
    text = run_underspan("doctor", "--degrade=private_tracefs", timeout=60, prefix=HIDE_TRACEFS).stdout
    assert {t for t in PAYING if re.search(rf"^  ok +{t} .*every system call .*mount -t tracefs", text, re.M)} == PAYING, text


def test_nothing_is_told_where_nobody_pays(start_agent):
    agent = start_agent()
    agent.stop()
    assert not [r for r in agent.rows["ebpf_probe_health"] if r["method"] == "every system call"]
    assert "every system call" not in agent.stderr + run_underspan("doctor", timeout=60).stdout.split("\nkernel features (run")[0]
