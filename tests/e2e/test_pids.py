# SPDX-License-Identifier: Apache-2.0
"""Processes named by -p: descendants count, present and future; unmeasured values are named, and are not zero."""
import collections
import functools
import json
import os
import subprocess
import sys
import threading
import types

import pytest

import cgroups
import host
import servers
from agent import run_underspan
from conftest import PYTHONS
from test_commands import start_command, start_python, stacks_of  # noqa: F401: fixtures
from test_errors import FAILED, USAGE

GIL = "ebpf_gil_wait"
# two threads compete for one GIL, until killed
BUSY = """
import threading
def spin():
    while True: sum(range(1000))
for _ in range(2): threading.Thread(target=spin, daemon=True).start()
"""
# the tree is named by the root, a shell; the grandchild is two forks away
TREE = f"""
import os, sys, time
{BUSY}
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-c", {BUSY + "print('up', flush=True); import time; time.sleep(60)"!r}])
time.sleep(60)
"""


def busy_clients(address, stop):
    def ask():
        while not stop.is_set():
            servers.get(address)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for t in threads:
        t.start()
    return threads


@pytest.fixture
def gunicorn(tmp_path, cleanup):
    """A master that only waits, and two workers of four threads; a generation of this Debian."""
    generation = host.find_gunicorns()[0]
    server = servers.Gunicorn(PYTHONS[0], generation, str(tmp_path), workers=2, threads=4)
    cleanup.append(server)
    return server


def test_a_masters_total_is_the_sum_of_its_workers(gunicorn, start_agent, start_command):
    """Compared with an agent without pids, and an agent with the workers' pids, with probes in take_gil()."""
    workers = gunicorn.worker_pids
    master = gunicorn.process.pid
    assert set(host.children_of(master)) == set(workers)
    every = ["--gil_wait.min_duration_us=0"]
    by_master = start_agent(f"--pid={master}", *every, trackers=["gil_wait"])
    reference = start_agent(*[f"--pid={pid}" for pid in workers], *every, "--gil_wait.method=uprobe", trackers=["gil_wait"])
    stop = threading.Event()
    command = start_command("gil", master, "-d", 0, "--json")
    threads = busy_clients(gunicorn.address, stop)
    for pid in workers:
        by_master.wait_rows(GIL, lambda r: r["host_pid"] == pid, n=200, timeout=30)
    stop.set()
    for t in threads:
        t.join(30)
    found = json.loads(command.stop())
    by_master.stop()
    reference.stop()
    right = collections.Counter()
    no_cpu = n = 0
    for r in reference.select(GIL, lambda r: r["host_pid"] in workers):
        right[r["host_pid"]] += r["duration_ns"]
        no_cpu += r["runq_ns"]
        n += 1
    assert set(right) == set(workers) and n > 400
    measured = {p["host_pid"]: p for p in found["processes"]}
    assert set(measured) == {master, *workers} and all(p["measured"] for p in measured.values())
    assert [p["host_pid"] for p in found["processes"] if p["named"]] == [master]
    have = sum(measured[pid]["wait_ns"] for pid in workers)
    assert have == found["wait_ns"] - measured[master]["wait_ns"]
    for have in have, sum(r["duration_ns"] for r in by_master.select(GIL, lambda r: r["host_pid"] in workers)):
        assert 0.99 * sum(right.values()) - no_cpu - 20_000 * n <= have <= 1.01 * sum(right.values())
    for pid in workers:
        assert measured[pid]["wait_ns"] == sum(t["wait_ns"] for t in found["threads"] if t["host_pid"] == pid) > 0


def test_tables_say_whose_thread_it_is(start_python):
    process, _ = start_python("import os; os.fork()" + BUSY + "print('up', flush=True); import time; time.sleep(60)")
    [child] = host.children_of(process.pid)
    result = run_underspan("gil", str(process.pid), "-d", "1", timeout=30)
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["pid", "process", "waits", "waited,", "ms"] in lines
    for pid in process.pid, child:
        assert any(line and line[0] == str(pid) for line in lines), result.stdout
    result = run_underspan("offcpu", str(process.pid), "-d", "1", "--folded", timeout=30)
    assert result.returncode == 0, result.stderr
    threads = {frames[0] for frames, _ in stacks_of(result.stdout)}
    of_child = {t for t in threads if t.endswith(f"(pid {child})")}
    assert of_child and threads - of_child and not any("(pid " in t for t in threads - of_child), threads


def test_descendants_of_what_is_no_python(cleanup):
    """A shell, a child and a grandchild, which runs a different program than the parent."""
    shell = subprocess.Popen(["sh", "-c", f'{sys.executable} -c "$TREE"; true'], env={**os.environ, "TREE": TREE},
                             stdout=subprocess.PIPE)
    cleanup.append(shell)
    shell.stdout.readline()
    [child] = host.children_of(shell.pid)
    [grandchild] = host.children_of(child)
    try:
        result = run_underspan("gil", "-p", str(shell.pid), "-d", "1", "--json", timeout=30)
        assert (result.returncode, result.stderr) == (0, "")
        found = {p["host_pid"]: p for p in json.loads(result.stdout)["processes"]}
        assert set(found) == {shell.pid, child, grandchild}
        assert not found[shell.pid]["measured"] and "wait_ns" not in found[shell.pid]
        assert found[child]["wait_ns"] > 0 and found[grandchild]["wait_ns"] > 0
    finally:
        os.kill(grandchild, 9)
        os.kill(child, 9)


def test_children_that_come_later(start_python, start_command):
    process, _ = start_python("print(flush=True); import os, sys, time; time.sleep(3)\n"
                              "if os.fork() == 0:\n  os.execv(sys.executable, [sys.executable, '-c', '''" + BUSY +
                              "import time; time.sleep(60)'''])\ntime.sleep(60)")
    command = start_command("gil", "-p", process.pid, "-d", 0, "--json")
    host.wait_until(lambda: host.children_of(process.pid), 20, "a child")
    [child] = host.children_of(process.pid)
    threading.Event().wait(2)
    found = {p["host_pid"]: p for p in json.loads(command.stop())["processes"]}
    os.kill(child, 9)
    assert found[child]["wait_ns"] > 0 and not found[child]["named"]


def test_several_pids(start_python):
    """In each way to write pids; once each, however often named."""
    a, b = (start_python(BUSY + "print('up', flush=True); import time; time.sleep(60)")[0].pid for _ in range(2))
    for words in (["-p", a, "-p", b], ["-p", f"{a},{b}"], [a, b], [f"{a},{b}", "-p", a]):
        result = run_underspan("gil", *map(str, words), "-d", "1", "--json", timeout=30)
        assert (result.returncode, result.stderr) == (0, ""), words
        found = {p["host_pid"]: p["wait_ns"] for p in json.loads(result.stdout)["processes"] if p["measured"]}
        assert set(found) == {a, b} and min(found.values()) > 0
    result = run_underspan("offcpu", str(a), str(b), "-d", "0.5", "--folded", timeout=30)
    assert result.returncode == 0
    named = {frames[0].rpartition(" (pid ")[2].rstrip(")") for frames, _ in stacks_of(result.stdout)}
    assert named == {str(a), str(b)}


def test_one_of_several_may_have_ended(start_python, start_agent):
    """Of a unit's processes some end while the agent starts: the others are watched. One alone that is gone is an error."""
    python = start_python(BUSY + "print('up', flush=True); import time; time.sleep(60)")[0].pid
    agent = start_agent(f"--pid={0x3ffffff},{python}", trackers=["gil_wait"])
    agent.stop()
    assert f"there is no process {0x3ffffff}" in agent.stderr and "watching 1 Python process" in agent.stderr, agent.stderr
    result = run_underspan("run", "--stdout", "--pid=%d" % 0x3ffffff, timeout=30)
    assert result.returncode == FAILED and f"there is no process {0x3ffffff} on this host" in result.stderr


def test_what_was_not_measured_is_said(start_python, cleanup):
    """Beside a measured process; and alone: without any sum."""
    python = start_python(BUSY + "print('up', flush=True); import time; time.sleep(60)")[0].pid
    sleep = subprocess.Popen(["sleep", "60"])
    cleanup.append(sleep)
    for pid, words in (sleep.pid, "runs no Python"), (0x3ffffff, "there is no process"):
        for pids in [python, pid], [pid]:
            result = run_underspan("gil", *[f"-p{p}" for p in pids], "-d", "1", "--json", timeout=30)
            assert result.returncode == FAILED and str(pid) in result.stderr and words in result.stderr, result.stderr
            found = json.loads(result.stdout)
            [bad] = [p for p in found["processes"] if p["host_pid"] == pid]
            assert not bad["measured"] and words in bad["reason"] and "waits" not in bad
            assert ("waits" in found) == (python in pids)
            if python in pids:
                assert found["wait_ns"] > 0
        result = run_underspan("gil", str(pid), "-d", "1", timeout=30)
        assert result.returncode == FAILED and result.stdout == "" and words in result.stderr


def test_processes_by_name_unit_and_cgroup(tmp_path, cleanup):
    """Four sleepers, two of one name, one in a unit of systemd; a cgroup below that of a word belongs to it, and one whose name only begins
    alike does not."""
    base = cgroups.find_cpu_controller()[0]
    path = f"/us-named-{os.getpid()}"
    pids, directories = {}, [base + path, f"{base}{path}/below", f"{base}{path}x", f"{base}{path}.service"]
    for directory in directories:
        os.mkdir(directory)
        cleanup.append(types.SimpleNamespace(kill=functools.partial(cgroups.end, directory)))  # kills what is in it
    for name, directory in zip(("shop-web", "shop-web", "shop-job", "shop-unit"), directories):
        program = tmp_path / name
        if not program.exists():
            program.symlink_to("/usr/bin/sleep")
        process = subprocess.Popen([program, "60"])
        cgroups.write(f"{directory}/cgroup.procs", str(process.pid))
        pids.setdefault(name, []).append(process.pid)
    for word, expected in ("shop-web", pids["shop-web"]), ("shop-job", pids["shop-job"]), (path, pids["shop-web"]), \
            (f"{path[1:]}.service", pids["shop-unit"]), (path[1:], pids["shop-unit"]):
        result = run_underspan("offcpu", word, "-d", "1", "--json", timeout=30)
        assert sorted(p["host_pid"] for p in json.loads(result.stdout)["processes"]) == sorted(expected), (word, result)


def test_words_that_are_no_pids():
    for command in "gil", "offcpu", "doctor":
        for word in "no-such-program", "no-such.service", "/no/such/cgroup", "12x", "0", "-3", "12,", "99999999999":
            result = run_underspan(command, word)
            assert result.returncode == USAGE and word in result.stderr, (command, word, result.stderr)
