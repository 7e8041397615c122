# SPDX-License-Identifier: Apache-2.0
"""Discovery delays nobody: an unresponsive process delays only the reads of its files."""
import os
import signal
import sys
import threading
import time

import pytest

import host
from cgroups import MemoryCgroup
from agent import PATIENCE, STOP_SECONDS, processes_with
from test_gc_pause import copy_python, match, rows_of

pytestmark = pytest.mark.alone  # a hung read makes every agent of the host wait for a while, and its readers cannot end

GC = "ebpf_gc_pause"
FUSE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuse.py")
COLLECTIONS = 499


class Trapped:
    """A Python on a file in an overlay over a file system in a program (as images fetched lazily), which forks a child
    when told to."""

    def __init__(self, python, start_workload, how="--overlay", run=("env",), env=None, mounter=()):
        in_trap = host.Python.__new__(host.Python)
        in_trap.__dict__.update(python.__dict__, path="{}")
        name = os.path.basename(os.path.realpath(python.path))
        self.workload = start_workload(in_trap, "forks_later.py", env={"PYTHONHOME": "/usr", **(env or {})},
                                       prefix=[*mounter, sys.executable, FUSE, how, python.path, name, *run])
        self.pid = self.workload.read()  # printed by the file system
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
        self.workload.kill()  # the file system ends, and with the end all waiting readers


def health(agent, pid):
    return agent.select("ebpf_probe_health", lambda r: r["host_pid"] == pid and r["tracker"] == "gc_pause")


def wait_unanswered(agent, pid):
    rows = host.wait_until(lambda: health(agent, pid), 30, f"a word about process {pid}")
    assert not rows[0]["live"] and "has been stalled" in rows[0]["reason"], rows


def test_a_program_that_cannot_be_read_holds_nobody_up(debian_python, start_agent, start_workload, tmp_path):
    healthy = start_workload(debian_python, "gc_truth.py", 1, COLLECTIONS, 1)
    trapped = [Trapped(debian_python, start_workload) for _ in range(3)]
    for one in trapped:
        one.hang()
    agent = start_agent(trackers=["gc_pause", "gil_wait", "off_cpu"])
    try:
        # the file hangs every reader
        readers = [os.posix_spawn("/bin/cat", ["cat", one.program], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", 1, 0)])
                   for one in trapped]
        healthy.wait_covered(agent)
        healthy.say()
        copy, env = copy_python(debian_python, tmp_path / "new")
        newcomer = start_workload(copy, "gc_truth.py", 1, 3, 1, env=env).wait_covered(agent)  # an unknown file
        truth = healthy.read()
        agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                        n=len(truth["collections"]), timeout=60)
        match(rows_of(agent, healthy.hello, truth["begin"], truth["end"]), truth["collections"])
        for one in trapped:
            wait_unanswered(agent, one.pid)
        assert all(os.waitpid(reader, os.WNOHANG)[0] == 0 for reader in readers)
        newcomer.kill()
    finally:
        # a request taken by a FUSE server and not answered cannot be cancelled, not even by SIGKILL: the threads of the
        # agent and of cat end with the server
        for one in trapped:
            one.end()
    for reader in readers:
        os.waitpid(reader, 0)
    agent.stop()


def test_it_is_watched_as_soon_as_it_answers(debian_python, start_agent, start_workload):
    """With all children forked in the time."""
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


NOBODY = "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+ipc_lock", "--ambient-caps=+ipc_lock"


def test_a_served_files_number_is_not_anothers(debian_python, start_agent, start_workload, tmp_path):
    """A FUSE server chooses the inode's number, so that device and inode together equal those of a foreign Python."""
    copy, env = copy_python(debian_python, tmp_path / "new")
    trapped = [Trapped(debian_python, start_workload, "--detached", NOBODY, {"SAME_NUMBER": os.path.realpath(copy.path)})
               for _ in range(20)]
    for one in trapped:
        one.hang()
    agent = start_agent(trackers=["gc_pause"])
    try:
        time.sleep(2 * PATIENCE)  # some were given up because of waiting reads of the same user
        begun = time.monotonic()
        start_workload(copy, "gc_truth.py", 1, 3, 1, env=env).wait_covered(agent)
        assert time.monotonic() - begun < 2 * PATIENCE, "it was taken for a file that does not answer"
    finally:
        for one in trapped:
            one.end()
    agent.stop()


IN_OVERLAY = 'mkdir "$0.empty" "$0.root" && mount -t overlay overlay -o "lowerdir=$0:$0.empty" "$0.root" && p=$0.root${1#"$0"} && shift && exec "$p" "$@"'


def identity(path):
    st = os.stat(path)
    return st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def test_a_file_that_pretends_to_be_another_in_an_overlay(debian_python, start_agent, start_workload, tmp_path):
    """Over FUSE, with the inode, size, times and build id of a foreign file in an overlay. While the FUSE file does not
    answer, the foreign file does not wait; then each has separate probes."""
    copy, env = copy_python(debian_python, tmp_path / "new")
    trapped = Trapped(debian_python, start_workload, run=NOBODY, env={"SAME_AS": copy.path})
    try:
        assert identity(trapped.program) == identity(copy.path)
        trapped.hang()
        victim = start_workload(copy, "gc_truth.py", 1, 31, 1, env=env,
                                prefix=["unshare", "--mount", "sh", "-c", IN_OVERLAY, tmp_path / "new"])
        agent = start_agent(trackers=["gc_pause"])
        victim.wait_covered(agent)
        wait_unanswered(agent, trapped.pid)
        victim.say()
        truth = victim.read()
        agent.wait_rows(GC, lambda r: r["pid"] == victim.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                        n=len(truth["collections"]), timeout=60)
        match(rows_of(agent, victim.hello, truth["begin"], truth["end"]), truth["collections"])
        trapped.answer()
        agent.wait_rows(GC, lambda r: r["host_pid"] == trapped.pid, n=13, timeout=30)
    finally:
        trapped.end()
    agent.stop()


def test_files_of_many_users_that_hang(debian_python, start_agent, start_workload, tmp_path):
    """Five users, each with enough files to use up the readers of one user."""
    copy, env = copy_python(debian_python, tmp_path / "new")
    trapped = []
    for i in range(40):
        user = NOBODY[0], f"--reuid={3000 + i % 5}", f"--regid={3000 + i % 5}", *NOBODY[3:]
        trapped.append(Trapped(debian_python, start_workload, "--detached", user))
    for one in trapped:
        one.hang()
    agent = start_agent(trackers=["gc_pause"])
    try:
        time.sleep(2 * PATIENCE)
        start_workload(copy, "gc_truth.py", 1, 3, 1, env=env).wait_covered(agent)
    finally:
        for one in trapped:
            one.end()
    agent.stop()


OF_ONE_USER = 6  # READERS_OF_OWNER, which is fewer than a tenant may have


READER = "underspan:read"


def state_of(pid):
    """Name, state (D: uninterruptible), and parent."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
    except OSError:
        return None, None, 0
    return name, rest.split()[0], int(rest.split()[1])


def waits_for_answer(pid):
    try:
        with open(f"/proc/{pid}/stack") as f:
            return "request_wait_answer" in f.read()  # FUSE
    except OSError:
        return False


def hung_readers(agent):
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name, _, server = state_of(pid)
        if name == READER and state_of(server)[2] == agent.pid and waits_for_answer(pid):
            found.add(pid)
    return found


def leave_behind(agent, start_agent):
    """Kills the agent; hung readers remain, and the next agent adds none."""
    host.wait_until(lambda: len(hung_readers(agent)) >= OF_ONE_USER, 20, "readers that hang")
    time.sleep(2 * PATIENCE)  # no further readers
    left = hung_readers(agent)
    assert len(left) == OF_ONE_USER
    agent.kill()
    after = start_agent(trackers=["gc_pause", "off_cpu"])
    assert "of an earlier agent are stalled" in after.stderr
    time.sleep(3 * PATIENCE)
    assert all(state_of(pid)[:2] == (READER, "D") for pid in left) and not hung_readers(after)
    return after


@pytest.fixture
def tenant(cleanup):
    """A memory cgroup, for which a container may be taken."""
    cleanup.append(MemoryCgroup(1 << 30))
    return cleanup[-1]


@pytest.mark.parametrize("how, n", [("--overlay", 8), ("--overlay", 16), ("--detached", 8), ("--long", 8)])
def test_files_that_hang_use_up_nobody_elses_turn(how, n, debian_python, start_agent, start_workload, tmp_path, tenant):
    """Files of a single user, each in a separate file system that hangs: in an overlay, in a detached mount, in a mount
    with a path longer than PATH_MAX."""
    healthy = start_workload(debian_python, "gc_truth.py", 1, COLLECTIONS, 1)
    trapped = [Trapped(debian_python, start_workload, how, NOBODY) for _ in range(n)]
    for one in trapped:
        one.hang()
    agent = start_agent(trackers=["gc_pause", "off_cpu"])
    try:
        healthy.wait_covered(agent)
        if n > 8:
            agent = leave_behind(agent, start_agent)
            agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"])
            begun = time.monotonic()  # the same user in a second container
            start_workload(debian_python, "gc_truth.py", 1, 3, 1, prefix=[*tenant.prefix, *NOBODY]).wait_covered(agent)
            assert time.monotonic() - begun < 3 * PATIENCE, "its turn was another container's"
        for i in range(3):
            copy, env = copy_python(debian_python, tmp_path / f"new{i}")
            begun = time.monotonic()
            newcomer = start_workload(copy, "gc_truth.py", 1, 3, 1, env=env).wait_covered(agent)
            assert time.monotonic() - begun < 3 * PATIENCE, "a new file was not read in its turn"
            newcomer.kill()
        healthy.say()
        truth = healthy.read()
        agent.wait_rows(GC, lambda r: r["pid"] == healthy.hello["pid"] and host.monotonic_ns(r["start_time"]) >= truth["begin"],
                        n=len(truth["collections"]), timeout=60)
        match(rows_of(agent, healthy.hello, truth["begin"], truth["end"]), truth["collections"])
        if how == "--overlay":
            for one in trapped:
                rows = host.wait_until(lambda: health(agent, one.pid), 40, f"a word about process {one.pid}")
                assert not rows[0]["live"] and "stall" in rows[0]["reason"], rows
        elif how == "--detached":  # refused at once, by the name of the file
            for one in trapped:
                rows = host.wait_until(lambda: health(agent, one.pid), 40, f"a word about process {one.pid}")
                assert not rows[0]["live"], rows
        told = time.monotonic()
        agent.process.terminate()
        assert agent.wait_end(STOP_SECONDS) == 0
        assert time.monotonic() - told < STOP_SECONDS
    finally:
        for one in trapped:
            one.end()
    host.wait_until(lambda: not processes_with(agent._marker), 10, "the end of all that read")


class Forks:
    """Measures the time to start a process, repeatedly: the kernel blocks fork() while a probe is set."""

    def __init__(self):
        self.longest = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.05):
            begun = time.monotonic()
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            self.longest = max(self.longest, time.monotonic() - begun)

    def kill(self):
        self._stop.set()
        self._thread.join()


STALL = 4


def test_probes_wait_for_no_file(debian_python, start_agent, start_workload, cleanup):
    """The file is read, and hangs when the probes are set. The kernel would read the file with fork() of the whole host
    blocked. A file mounted by root is probed when the file answers again, an overlay of a user never."""
    agent = start_agent(trackers=["gc_pause", "gil_wait"])
    stalls = {"STALLS_AFTER": str(STALL), "STALLS_FOR": str(agent.pid)}
    forks = Forks()
    cleanup.append(forks)
    of_root = Trapped(debian_python, start_workload, env=stalls)
    of_user = Trapped(debian_python, start_workload, env=stalls, mounter=["unshare", "--user", "--map-root-user"])
    try:
        agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == of_root.pid and r["live"], n=2, timeout=10 * STALL)
        rows = host.wait_until(lambda: [r for r in health(agent, of_user.pid) if "FUSE" in r["reason"]], 10 * STALL, "a word about it")
        assert not rows[-1]["live"] and "overlay" in rows[-1]["reason"], rows
        assert not any(r["live"] for r in health(agent, of_user.pid))
        agent.wait_rows(GC, lambda r: r["host_pid"] == of_root.pid, n=13)
    finally:
        for one in of_root, of_user:
            one.end()
    forks.kill()
    agent.stop()
    assert forks.longest < STALL * 0.75
