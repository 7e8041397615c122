# SPDX-License-Identifier: Apache-2.0
"""Files that are cheap to create and expensive to read, run by a user without rights: the agent reads within bounds of
memory and time, or reports the reason, and all further processes are watched as before."""
import os
import shutil
import subprocess
import tempfile
import time

import pytest

import elf_bombs
import host
from agent import plain_build
from cgroups import MemoryCgroup, find_memory_controller
from test_gc_pause import copy_python, match, rows_of

MIB = 1 << 20
GC = "ebpf_gc_pause"
NOBODY = 65534
COLLECTIONS = 299


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", path])
        self.pid = self.process.pid

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def folder():
    """Where everybody may run a program."""
    path = tempfile.mkdtemp(prefix="underspan-bombs-", dir="/var/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def run_as_nobody(cleanup):
    def run(path):
        cleanup.append(Program(path))
        return cleanup[-1]
    return run


def processes_of(agent):
    """The agent, the fork server, and the children of the fork server."""
    servers = host.children_of(agent.pid)
    return [agent.pid, *servers, *(reader for server in servers for reader in host.children_of(server))]


def own_memory(pid):
    """Private memory of the process; pages of mapped files belong to the kernel."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            fields = dict(line.split(":", 1) for line in f.read().splitlines()[1:])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(fields[k].split()[0]) << 10 for k in ("Private_Dirty", "Shmem") if k in fields)


BOMBS = {"overlapping": [elf_bombs.overlapping_segments], "many": [elf_bombs.many_segments],
         "tables": [elf_bombs.large_tables] * 4, "names": [elf_bombs.long_names] * 2,
         "functions": [elf_bombs.endless_functions] * 2,
         "all": [elf_bombs.overlapping_segments, elf_bombs.many_segments, *[elf_bombs.large_tables] * 4, elf_bombs.long_names]}


@plain_build("its shadow memory is more")
@pytest.mark.skipif(not find_memory_controller(), reason="this host has no cgroup memory controller mounted")
@pytest.mark.parametrize("limit", [256, 64])
@pytest.mark.parametrize("kind", BOMBS)
def test_files_that_are_larger_than_memory(kind, limit, folder, run_as_nobody, cleanup, start_agent, start_workload, debian_python,
                                           tmp_path):
    cgroup = MemoryCgroup(limit * MIB)
    cleanup.append(cgroup)
    programs = [make(f"{folder}/python3.{i}") for i, make in enumerate(BOMBS[kind])]
    agent = start_agent(trackers=["gc_pause", "off_cpu"], prefix=cgroup.prefix)
    healthy = start_workload(debian_python, "gc_truth.py", 1, COLLECTIONS, 1).wait_covered(agent)
    pids = [run_as_nobody(path).pid for path in programs]
    healthy.say()
    most, end = 0, time.monotonic() + 3
    while time.monotonic() < end:
        most = max(most, sum(own_memory(pid) for pid in processes_of(agent)))
        time.sleep(0.02)
    copy, env = copy_python(debian_python, tmp_path / "new")
    newcomer = start_workload(copy, "gc_truth.py", 1, 3, 1, env=env).wait_covered(agent)  # an unknown file
    truth = healthy.read()
    agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                    n=len(truth["collections"]), timeout=60)
    match(rows_of(agent, healthy.hello, truth["begin"], truth["end"]), truth["collections"])
    newcomer.kill()
    agent.stop()
    assert cgroup.oom_kills() == 0
    assert most < min(limit, 96) * MIB, f"{most / MIB:.0f} MiB"
    if kind in ("overlapping", "many"):  # claims to be a Python: a reason is reported
        rows = agent.select("ebpf_probe_health", lambda r: r["host_pid"] in pids)
        assert rows and all("segments" in r["reason"] for r in rows), [(r["tracker"], r["reason"]) for r in rows]
        # sleeps are visible without reading the file, collections are not
        assert {(r["tracker"], bool(r["live"])) for r in rows} == {("gc_pause", False), ("off_cpu", True)}


@pytest.mark.parametrize("prefix", [b"", b"collect.", b"gc_collect_main.", b"take_gil.", None])
def test_names_that_have_no_end_take_bounded_time(prefix, folder, run_as_nobody, start_agent):
    """10,000 symbols share one name of 16 MB; without a prefix: 10,000 functions share 500 MB of code."""
    program = elf_bombs.endless_functions(f"{folder}/python3.13") if prefix is None else elf_bombs.long_names(f"{folder}/python3.13", prefix=prefix)
    agent = start_agent("--gil_wait.method=uprobe", trackers=["gc_pause", "gil_wait"])
    begun = time.monotonic()
    pid = run_as_nobody(program).pid
    # found in the file, or not; "does not answer" would be reported, too
    rows = agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == pid and r["tracker"] == "gc_pause"
                           and not r["live"] and "stall" not in r["reason"], timeout=2)
    print(f" {time.monotonic() - begun:.2f} s: {rows[0]['reason']}", end=" ")
    agent.stop()
