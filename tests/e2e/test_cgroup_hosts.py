# SPDX-License-Identifier: Apache-2.0
"""Hosts with hierarchies of cgroups of version 1 and 2: a cgroup of version 2 may hold the processes of several containers,
and only the paths in version 1 tell these apart."""
import os
import subprocess
import sys
import time

import pytest

import cgroups

pytestmark = pytest.mark.light

GC = "ebpf_gc_pause"
PROGRAM = "import gc, time\nwhile True: gc.collect(); time.sleep(0.05)"
ENTER = 'for f in "$@"; do echo $$ > $f/cgroup.procs || exit; done; exec "$PYTHON" -c "$PROGRAM"'


@pytest.fixture
def unified(tmp_path):
    """The unified hierarchy, as containerd's service has there: one cgroup for all containers."""
    if os.path.exists(f"{cgroups.ROOT}/cgroup.controllers"):
        pytest.skip("this host has version 2 only")
    folder = str(tmp_path / "unified")
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "cgroup2", "none", folder], check=True)
    group = f"{folder}/us-{os.getpid()}-containerd.service"
    os.mkdir(group)
    yield group
    cgroups.end(group)
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def containers():
    """Two containers by cgroups of version 1, named as Docker does."""
    ids = [f"{os.getpid():x}".rjust(64, digit) for digit in "ab"]
    parent = f"{cgroups.ROOT}/pids/us-{os.getpid()}-docker"
    os.mkdir(parent)
    for i in ids:
        os.mkdir(f"{parent}/{i}")
    yield {i: f"{parent}/{i}" for i in ids}
    for i in ids:
        cgroups.end(f"{parent}/{i}")
    os.rmdir(parent)


def start(groups):
    return subprocess.Popen(["bash", "-c", ENTER, "bash", *groups],
                            env={**os.environ, "PYTHON": sys.executable, "PROGRAM": PROGRAM})


def test_containers_that_share_a_cgroup_of_version_2(unified, containers, start_agent):
    """A process outside of containers comes first; a process started while the agent runs is told apart,
    too."""
    ids = list(containers)
    wanted = {start([unified]): ""}
    time.sleep(0.3)
    wanted[start([containers[ids[0]], unified])] = ids[0]
    time.sleep(0.3)
    try:
        agent = start_agent(trackers=["gc_pause"])
        wanted[start([containers[ids[1]], unified])] = ids[1]
        for p, container in wanted.items():
            agent.wait_rows(GC, lambda r: r["host_pid"] == p.pid, n=10)
        agent.stop()
    finally:
        for p in wanted:
            p.kill()
            p.wait()
    for p, container in wanted.items():
        for table in GC, "ebpf_probe_health":
            assert {r["container_id"] for r in agent.select(table, lambda r: r["host_pid"] == p.pid)} == {container}, table
