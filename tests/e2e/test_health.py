# SPDX-License-Identifier: Apache-2.0
"""Rows of ebpf_probe_health are of live processes: one per tracker and one for the interpreter's state, once for each
process, whatever the process starts."""
import collections
import os
import subprocess
import sys
import time

import pytest

HEALTH = "ebpf_probe_health"
OF_PROCESSES = {"handoff", "gc_pause", "gil_wait", "off_cpu", "on_cpu", "loop_stall", "tcp_accept", "tcp_connect", "tcp_loss", "cpu_throttle"}
STARTS = """
import os, subprocess, sys, time
for _ in range({n}): subprocess.run({command}, close_fds={close})
print(os.getpid(), flush=True)
time.sleep(60)
"""
# the other ways: posix_spawn, a shell's pipelines, fork() without exec(), one that forks again, threads that fork
FORKS = """
import multiprocessing, os, sys, threading, time
def many(what, n=40):
    for _ in range(n): what()
def fork():
    pid = os.fork()
    if not pid:
        if os.fork(): os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
def work():
    p = multiprocessing.get_context("fork").Process(target=int)
    p.start(); p.join()
def in_thread():
    t = threading.Thread(target=fork)
    t.start(); t.join()
many(lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {{}}), 0))
many(lambda: os.system("echo x | cat | wc -c >/dev/null; (exec sh -c :) & wait"), 20)
many(fork); many(work); many(in_thread)
many(lambda: os.waitpid(os.posix_spawn(sys.executable, ["p", "-SEc", "import os; os.fork() or os.execv('/bin/true', ['true'])"], {{}}), 0), 10)
print(os.getpid(), flush=True)
time.sleep(60)
"""
# a daemon as daemons are made: two forks, both parents end at once
DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
print(os.getpid(), flush=True)
time.sleep(60)
"""


def start(program):
    p = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline())


def rows_by_process(agent):
    found = collections.defaultdict(list)
    for r in agent.select(HEALTH, lambda r: r["host_pid"]):
        found[r["host_pid"]].append(r["tracker"])
    return found


def check_once_each(agent, pid):
    agent.wait_rows(HEALTH, lambda r: r["host_pid"] == pid and r["tracker"] == "python")
    trackers = rows_by_process(agent)[pid]
    assert set(trackers) >= OF_PROCESSES | {"python"} and len(trackers) == len(set(trackers)), trackers


@pytest.mark.sole  # no other Python may start
def test_subprocesses_have_none(start_agent):
    """Both ways of subprocess: fork() and vfork(), with Pythons and with different programs; and without subprocess."""
    agent = start_agent()
    before = set(rows_by_process(agent)) | {os.getpid()}
    started = [start(STARTS.format(n=n, command=command, close=close)) for n, command, close in (
        (200, ["/bin/true"], True), (200, ["/bin/true"], False), (20, [sys.executable, "-S", "-E", "-c", "pass"], True))]
    started.append(start(FORKS.format()))
    for p, pid in started:
        check_once_each(agent, pid)
    for p, pid in started:
        p.kill()
        p.wait()
    agent.stop()
    extra = set(rows_by_process(agent)) - before - {pid for _, pid in started}
    assert not extra, {pid: rows_by_process(agent)[pid] for pid in extra}


def test_a_forked_process_that_lives_has_them(start_agent):
    agent = start_agent()
    launcher, pid = start(DAEMON)
    launcher.wait()
    try:
        begin = time.monotonic()
        check_once_each(agent, pid)
        assert time.monotonic() - begin < 5
    finally:
        os.kill(pid, 9)
    agent.stop()


def test_one_that_still_runs_at_the_end_has_them(start_agent):
    agent = start_agent()
    p, pid = start("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    time.sleep(0.2)
    agent.stop()
    p.kill()
    p.wait()
    assert set(rows_by_process(agent)[pid]) >= OF_PROCESSES


def test_rows_are_repeated_before_they_expire(start_agent):
    """After the TTL of rows, long-lived trackers and processes still have a row."""
    p, pid = start("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)")
    agent = start_agent("--health_interval=1s")
    for tracker in sorted(OF_PROCESSES | {"python"}):
        agent.wait_rows(HEALTH, lambda r: r["host_pid"] == pid and r["tracker"] == tracker, n=3)
    agent.wait_rows(HEALTH, lambda r: r["host_pid"] == 0 and r["tracker"] == "gc_pause", n=3)
    p.kill()
    p.wait()
    agent.stop()
