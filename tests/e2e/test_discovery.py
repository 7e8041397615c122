# SPDX-License-Identifier: Apache-2.0
"""Finding processes holds nobody up: what has to be read of one that does not answer is waited for by nobody else."""
import os
import signal
import sys
import time

import host
from test_gc_pause import copy_python, match, rows_of

GC = "ebpf_gc_pause"
FUSE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuse.py")
COLLECTIONS = 499


class Trapped:
    """A Python whose file lies in an overlay over a file system that is a program (as images that are fetched lazily have
    it), and which forks a child when told to."""

    def __init__(self, python, start_workload):
        in_trap = host.Python.__new__(host.Python)
        in_trap.__dict__.update(python.__dict__, path="{}")
        name = os.path.basename(os.path.realpath(python.path))
        self.workload = start_workload(in_trap, "forks_later.py", env={"PYTHONHOME": "/usr"},
                                       prefix=[sys.executable, FUSE, "--overlay", python.path, name, "env"])
        self.pid = self.workload.read()  # what the file system says
        assert self.workload.read()["pid"] == self.pid
        self.program = f"/proc/{self.pid}/exe"

    def hang(self):
        self.workload.process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)

    def answer(self):
        self.workload.process.send_signal(signal.SIGUSR2)

    def fork(self):
        self.workload.say()
        return self.workload.read()["child"]

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        self.workload.kill()  # the file system ends with it, and with that all who wait


def health(agent, pid):
    return agent.select("ebpf_probe_health", lambda r: r["host_pid"] == pid and r["tracker"] == "gc_pause")


def wait_unanswered(agent, pid):
    rows = host.wait_until(lambda: health(agent, pid), 30, f"a word about process {pid}")
    assert not rows[0]["live"] and "does not answer" in rows[0]["reason"], rows


def test_a_program_that_cannot_be_read_holds_nobody_up(debian_python, start_agent, start_workload, tmp_path):
    healthy = start_workload(debian_python, "gc_truth.py", 1, COLLECTIONS, 1)
    trapped = [Trapped(debian_python, start_workload) for _ in range(3)]
    for one in trapped:
        one.hang()
    agent = start_agent(trackers=["gc_pause", "gil_wait", "off_cpu"])
    try:
        # it does hang whoever reads it
        readers = [os.posix_spawn("/bin/cat", ["cat", one.program], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", 1, 0)])
                   for one in trapped]
        healthy.wait_covered(agent)
        healthy.say()
        copy, env = copy_python(debian_python, tmp_path / "new")
        newcomer = start_workload(copy, "gc_truth.py", 1, 3, 1, env=env).wait_covered(agent)  # a file nobody has seen
        truth = healthy.read()
        agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                        n=len(truth["collections"]), timeout=60)
        match(rows_of(agent, healthy.hello, truth["begin"], truth["end"]), truth["collections"])
        for one in trapped:
            wait_unanswered(agent, one.pid)
        assert all(os.waitpid(reader, os.WNOHANG)[0] == 0 for reader in readers)
        newcomer.kill()
    finally:
        # a request that a program has taken and does not answer cannot be taken back, not by SIGKILL either: the agent's
        # threads, like those of cat, end when the program does
        for one in trapped:
            one.end()
    for reader in readers:
        os.waitpid(reader, 0)
    agent.stop()


def test_it_is_watched_as_soon_as_it_answers(debian_python, start_agent, start_workload):
    """With all that it has forked meanwhile."""
    trapped = Trapped(debian_python, start_workload)
    trapped.hang()
    agent = start_agent(trackers=["gc_pause"])
    try:
        wait_unanswered(agent, trapped.pid)
        child = trapped.fork()
        time.sleep(0.5)
        assert not agent.select(GC, lambda r: r["host_pid"] in (trapped.pid, child))
        trapped.answer()
        for pid in trapped.pid, child:
            agent.wait_rows(GC, lambda r: r["host_pid"] == pid, n=13, timeout=30)
            assert health(agent, pid)[-1]["live"]
        agent.stop()
    finally:
        trapped.end()
