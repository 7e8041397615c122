# SPDX-License-Identifier: Apache-2.0
"""The agent in a PID namespace below the host's, or with the /proc of a different namespace: the kernel's events name
processes by the host's numbers, which mean different processes there. The agent logs the reason and the right way to
start, and makes no row. So in a time namespace with clocks of its own."""
import json
import os
import subprocess
import sys

import pytest

from agent import UNDERSPAN, run_underspan
from test_errors import FAILED, check_sentence

pytestmark = pytest.mark.light

OWN = ["unshare", "--pid", "--fork", "--mount-proc"]  # a container without hostPID
HOST_PROC = ["unshare", "--pid", "--fork"]  # the same with the host's /proc mounted
FIX = "hostPID: true", "--pid=host"


@pytest.fixture
def other_proc(cleanup, tmp_path):
    """In the host's PID namespace, with the /proc of a child's."""
    inner = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", "echo up; exec sleep 100"],
                             stdout=subprocess.PIPE)
    cleanup.append(inner)
    inner.stdout.readline()
    with open(f"/proc/{inner.pid}/task/{inner.pid}/children") as f:
        child = f.read().split()[0]
    # /proc/PID/root/proc is the mount of the child's mount namespace
    return ["nsenter", f"--mount=/proc/{child}/ns/mnt"]


@pytest.mark.parametrize("prefix", [OWN, HOST_PROC], ids=["own", "host-proc"])
@pytest.mark.parametrize("command", [["run", "--stdout", "--duration=1"], ["gil", "-p", "1", "-d", "1"], ["offcpu", "1", "-d1"]],
                         ids=lambda c: c[0])
def test_a_namespace_of_its_own_is_refused(prefix, command):
    result = run_underspan(*command, prefix=prefix, timeout=30)
    assert result.stdout == ""
    check_sentence(result, FAILED, "PID namespace", *FIX)


def test_another_ones_proc_is_refused(other_proc):
    result = run_underspan("run", "--stdout", "--duration=1", prefix=other_proc, timeout=30)
    assert result.stdout == ""
    check_sentence(result, FAILED, "/proc belongs to a different PID namespace", "mount")


@pytest.mark.parametrize("prefix", [OWN, HOST_PROC], ids=["own", "host-proc"])
def test_doctor_says_it(prefix):
    result = run_underspan("doctor", prefix=prefix, timeout=60)
    assert result.returncode == FAILED and "PID namespace" in result.stdout and FIX[0] in result.stdout, result.stdout
    result = run_underspan("doctor", "--json", prefix=prefix, timeout=60)
    assert result.returncode == FAILED and FIX[0] in result.stdout and json.loads(result.stdout)


CLOCKS = ["unshare", "--time", "--fork", "--kill-child"]


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/time"), reason="this kernel has no time namespaces")
@pytest.mark.parametrize("clock", ["--monotonic", "--boottime"])
def test_clocks_of_its_own_are_refused(clock):
    """Rows would have times that are wrong by the offset: 100,000 s here."""
    prefix = [*CLOCKS, clock, "100000"]
    result = run_underspan("run", "--stdout", "--duration=1", prefix=prefix, timeout=30)
    assert result.stdout == ""
    check_sentence(result, FAILED, "time namespace", "timeOffsets")
    result = run_underspan("doctor", prefix=prefix, timeout=60)
    assert result.returncode == FAILED and "time namespace" in result.stdout, result.stdout


def test_namespaces_that_do_no_harm():
    """Private namespaces of all remaining kinds, a time namespace without offsets; the PID namespace entered by name."""
    for prefix in (["unshare", "--mount", "--net", "--uts", "--ipc"], *[CLOCKS] * os.path.exists("/proc/self/ns/time"), ["nsenter", "--pid=/proc/self/ns/pid", "--"]):
        result = run_underspan("run", "--stdout", "--duration=0.1", "--trackers=gc_pause", prefix=prefix, timeout=30)
        assert result.returncode == 0, result.stderr
