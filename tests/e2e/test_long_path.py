# SPDX-License-Identifier: Apache-2.0
"""A Python whose file is below a path longer than PATH_MAX, which no system call takes as a whole: watched like any other."""
import copy
import os
import shutil
import subprocess
import sys

import pytest

import host
from conftest import PYTHONS

pytestmark = pytest.mark.light

# moves a folder into 18 folders of 250 characters
MOVE = """
import os, sys
here = os.open(".", os.O_PATH)
for _ in range(18):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
os.rename(sys.argv[1], "moved", src_dir_fd=here)
"""
SHARED = [p for p in PYTHONS if p.image != os.path.realpath(p.path)][-1:]


@pytest.fixture
def start(start_workload, tmp_path):
    """A program that runs a copy of `file`, which is moved when it runs."""
    def start_and_move(python, file, **environment):
        (tmp_path / "lib").mkdir()
        copied = shutil.copy2(file, tmp_path / "lib")
        if file == python.path:
            python = copy.copy(python)
            python.path = copied
        workload = start_workload(python, "gc_truth.py", 2, 37, 1, env=environment)
        workload.hello = workload.read()
        subprocess.run([sys.executable, "-c", MOVE, "lib"], cwd=tmp_path, check=True)
        with open(f"/proc/{workload.pid}/maps") as f:
            assert any(len(line) > 4500 for line in f)
        return workload
    return start_and_move


def check(agent, workload):
    agent.wait_rows("ebpf_gc_pause", lambda r: r["host_pid"] == workload.pid, timeout=20)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    rows = [r for r in agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == workload.pid)
            if truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"]]
    assert len(rows) == len(truth["collections"])
    assert all(r["py_stack"] for r in rows)


@pytest.mark.parametrize("python", SHARED, ids=repr)
def test_a_library(python, start_agent, start, tmp_path):
    workload = start(python, python.image, LD_PRELOAD=str(tmp_path / "lib" / os.path.basename(python.image)))
    check(start_agent("--gc_pause.stack_min_us=0", trackers=["gc_pause"]), workload)


def test_a_program(debian_python, start_agent, start):
    workload = start(debian_python, debian_python.path, PYTHONHOME="/usr")
    check(start_agent("--gc_pause.stack_min_us=0", trackers=["gc_pause"]), workload)


@pytest.mark.parametrize("python", SHARED, ids=repr)
def test_without_the_right_to_open_mapped_files(python, start_agent, start, tmp_path):
    """Then only the path leads to the library: no tracker of Python, with the reason."""
    workload = start(python, python.image, LD_PRELOAD=str(tmp_path / "lib" / os.path.basename(python.image)))
    agent = start_agent(trackers=["tcp_accept"], prefix=["setpriv", "--bounding-set=-sys_admin,-checkpoint_restore"])
    [refused] = agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == workload.pid, timeout=20)
    assert "the path of its libpython is longer than 4096 bytes" in refused["reason"], refused
    agent.stop()
