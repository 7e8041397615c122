# SPDX-License-Identifier: Apache-2.0
"""SIGTERM at any moment of the start: while the kernel verifies the programs, while programs are attached, while processes
are examined, while the embedded store opens and creates tables, with a server that never answers, on a busy machine. The
agent ends with 0 within 5 s, and leaves nothing."""
import ctypes
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import cgroups
from agent import Agent, NO_ENGINE, STOP_SECONDS, UNDERSPAN, plain_build, processes_with, promise
from bpf_maps import is_in_kernel
from host import WORKLOADS, children_of, wait_until
from test_discovery import Trapped

pytestmark = pytest.mark.promise  # a late end is a broken promise

TERM = 1 << (signal.SIGTERM - 1)
HUNG_CALLS = os.path.join(WORKLOADS, "hung_calls.c")
FREEZER = f"{cgroups.ROOT}/freezer"
KINDS = {"map_id": "map", "prog_id": "prog", "link_id": "link"}


def handles_signals(pid):
    """Does the process block or catch SIGTERM? Not before main()."""
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f.read().splitlines())
    return (int(fields["SigBlk"], 16) | int(fields["SigCgt"], 16)) & TERM


def bpf_objects(pid):
    """{(kind, id)} of the process's BPF objects in the kernel."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}") as f:
                fields = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        except OSError:
            continue
        found.update((kind, fields[name]) for name, kind in KINDS.items() if name in fields)
    return found


def attached(pid):
    """BPF objects without maps: ring buffers are memory of the process and last as long."""
    return {(kind, number) for kind, number in bpf_objects(pid) if kind != "map"}


def still_there(objects):
    """The objects that the kernel still has: pinned, attached, or held by a process."""
    return {(kind, number) for kind, number in objects if is_in_kernel(kind, number)}


def lock_is_free(directory):
    """flock() of the spool's lock file; none is as free."""
    try:
        with open(f"{directory}/lock") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        pass
    except BlockingIOError:
        return False
    return True


def name_and_state(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return pid, [line.split(":\t")[1].strip() for line in f if line.startswith(("Name:", "State:", "PPid:"))]
    except OSError:
        return pid, "ended"


def check_nothing_runs(agent, when):
    """A killed process needs a CPU to end: a second for it."""
    until = time.monotonic() + 1
    while (left := processes_with(agent._marker)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not left, (when, [name_and_state(pid) for pid in left], agent.stderr)


def start(*options):
    agent = Agent(*options, stdout=False)
    wait_until(lambda: handles_signals(agent.pid), 20, "main()")
    return agent, time.monotonic()


def stop_after(seconds, options, directory):
    """Stops an agent `seconds` after main(); returns whether the agent was ready, and the seconds until the end."""
    agent, begun = start(*options)
    try:
        time.sleep(max(0, begun + seconds - time.monotonic()))
        assert agent.process.poll() is None, agent.stderr
        objects = bpf_objects(agent.pid)
        told = time.monotonic()
        agent.process.send_signal(signal.SIGTERM)
        code = agent.wait_end(20)
        took = time.monotonic() - told
        assert (code, took < STOP_SECONDS) == (0, True), (seconds, code, took, agent.stderr)
        check_nothing_runs(agent, f"told after {seconds} s")
        assert lock_is_free(directory), seconds
        # the kernel frees the objects after an RCU grace period
        wait_until(lambda: not still_there(objects), 10, f"the end of {objects}")
        assert "could not be delivered" not in agent.stderr, agent.stderr
        return agent._ready, took
    finally:
        agent.kill()


def seconds_to_ready(*options):
    agent, begun = start(*options)
    try:
        agent.wait_ready(90)
        whole = time.monotonic() - begun
        agent.stop()
    finally:
        agent.kill()
    return whole


def sweep(n, options, directory, capsys):
    """SIGTERM at n moments from main() to a little after ready: right after main(), and at a random moment of each further part, so that
    repeated runs cover all moments."""
    whole = seconds_to_ready(*options)
    moments = [0, *((i + random.random()) / (n - 1) for i in range(n - 1))]
    results = [stop_after(whole * 1.1 * moment, options, directory) for moment in moments]
    if not any(ready for ready, _ in results):  # the measured start was quicker than each later one
        results.append(stop_after(3 * whole, options, directory))
    early = [took for ready, took in results if not ready]
    with capsys.disabled():
        print(f" start {whole:.2f} s; {len(early)} of {n} before it was ready; the slowest took "
              f"{max(took for _, took in results):.2f} s", end=" ")
    assert len(early) >= n // 3, results  # the start is tested
    return results


@pytest.fixture
def silent_server(cleanup):
    """A URL of a listener that never answers."""
    server = socket.create_server(("127.0.0.1", 0), backlog=97)
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.close()


@pytest.fixture
def options(silent_server, tmp_path, start_on_all):
    """Options of an agent with Pythons to find, a server that does not answer, and the spool tmp_path/spool."""
    for workload in start_on_all("gc_truth.py", 1, 20, 1):
        workload.read()
    return [f"--clickhouse={silent_server}", f"--spool.directory={tmp_path}/spool", "--spool.min_free=0"]


def test_at_any_moment_of_the_start(options, tmp_path, capsys):
    results = sweep(11, options, tmp_path / "spool", capsys)
    assert any(ready for ready, _ in results), results


@pytest.mark.sole  # the machine is busy as it is
def test_on_a_busy_machine(options, tmp_path, cleanup, capsys):
    for _ in range(8):
        cleanup.append(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
    sweep(4, options, tmp_path / "spool", capsys)


@plain_build(NO_ENGINE)
def test_while_the_store_starts(tmp_path, capsys):
    """A new directory each time: the engine opens and tables are created. The next agent can use the directory of an earlier one."""
    first = tmp_path / "first"
    whole = seconds_to_ready(f"--store={first}")
    slowest = 0
    for i in range(6):
        directory = tmp_path / str(i)
        _, took = stop_after(whole * (i + random.random()) / 6, [f"--store={directory}"], directory)
        slowest = max(slowest, took)
        if i % 3 == 2:
            agent, _ = start(f"--store={directory}")
            try:
                agent.wait_ready(90)
                agent.stop()
            finally:
                agent.kill()
    with capsys.disabled():
        print(f" start {whole:.2f} s; the slowest took {slowest:.2f} s", end=" ")


def store_of(agent):
    """The process of the embedded store: the agent's child that serves it."""
    for child in children_of(agent.pid):
        with open(f"/proc/{child}/cmdline") as f:
            if f.read().split("\0")[1:2] == ["store"]:
                return child
    raise AssertionError("no store process")


@plain_build(NO_ENGINE)
def test_the_store_s_directory_is_removed(start_agent, tmp_path):
    """Nothing can be stored any more: the end is in time all the same, and the rows are counted."""
    agent = start_agent(f"--store={tmp_path}/store", "--flush_interval=1", trackers=["gc_pause"], stdout=False)
    shutil.rmtree(tmp_path / "store")
    time.sleep(3)
    agent.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    code = agent.process.wait(60)
    promise(time.monotonic() - begun < STOP_SECONDS, f"ended after {time.monotonic() - begun:.1f} s")
    assert code == 1
    wait_until(lambda: re.search(r"[1-9]\d* rows? could not be delivered", agent.stderr), 5, "the word of the rows")


@plain_build(NO_ENGINE)
@pytest.mark.skipif(not os.path.isdir(FREEZER), reason="needs the freezer of cgroup version 1, in which a killed process does not end")
def test_a_store_that_cannot_be_killed(start_agent, tmp_path, cleanup):
    """As one whose threads wait for a disk or, on a busy host, for a CPU: the agent does not wait for its end."""
    agent = start_agent(f"--store={tmp_path}/store", trackers=["gc_pause"], stdout=False)
    store = store_of(agent)
    frozen = f"{FREEZER}/underspan-{os.getpid()}"
    os.mkdir(frozen)
    try:
        cgroups.write(f"{frozen}/cgroup.procs", str(store))
        cgroups.write(f"{frozen}/freezer.state", "FROZEN")
        agent.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        agent.process.wait(60)
        promise(time.monotonic() - begun < STOP_SECONDS, f"ended after {time.monotonic() - begun:.1f} s")
        wait_until(lambda: f"store: process {store} is killed, and has not ended so far" in agent.stderr, 5, "the word of it")
    finally:
        cgroups.write(f"{frozen}/freezer.state", "THAWED")
        wait_until(lambda: not os.path.exists(f"/proc/{store}"), 20, "the store's end")
        cgroups.end(frozen)


def reading_processes(pid):
    """The agent's reader processes: children of the fork server."""
    return [reader for server in children_of(pid) for reader in children_of(server)]


def waiting_reader(pid):
    """The reader that waits for an answer of a FUSE file system; 0: none."""
    for reader in reading_processes(pid):
        try:
            with open(f"/proc/{reader}/wchan") as f:
                if f.read() == "request_wait_answer":
                    return reader
        except FileNotFoundError:
            continue  # ended
    return 0


def check_holds_nothing(reader, trapped):
    """A killed reader cannot end before the answer arrives; the reader holds only a socket without a peer, and /dev/null."""
    files = {os.path.basename(os.readlink(f"/proc/{reader}/fd/{fd}")).split(":")[0] for fd in os.listdir(f"/proc/{reader}/fd")}
    assert files <= {"null", "socket", os.path.basename(os.readlink(trapped.program))}, files
    assert not bpf_objects(reader)


@pytest.mark.alone  # a hung read makes every agent of the host wait for a while, and its readers
def test_a_file_that_never_answers_keeps_nothing_from_the_next_one(debian_python, silent_server, start_agent, start_workload,
                                                                   tmp_path):
    """A reader of the agent waits for a FUSE file system that never answers, and SIGKILL does not end the wait. The agent
    ends in time, and the remaining reader holds nothing that the next agent needs."""
    options = f"--clickhouse={silent_server}", f"--spool.directory={tmp_path}/spool", "--spool.min_free=0"
    trapped = Trapped(debian_python, start_workload)
    trapped.hang()
    try:
        for how in signal.SIGTERM, signal.SIGKILL:
            agent = start_agent(*options, trackers=["gc_pause"], stdout=False)
            reader = wait_until(lambda: waiting_reader(agent.pid), 30, "the file is asked for")
            objects = attached(agent.pid)
            assert objects
            told = time.monotonic()
            agent.process.send_signal(how)
            assert agent.wait_end(STOP_SECONDS) == (0 if how == signal.SIGTERM else -how)
            assert lock_is_free(tmp_path / "spool")
            wait_until(lambda: not still_there(objects), STOP_SECONDS, "all is given back")
            assert time.monotonic() - told < STOP_SECONDS
            check_holds_nothing(reader, trapped)
    finally:
        trapped.end()  # the readers get answers
    wait_until(lambda: not os.path.exists(f"/proc/{reader}"), 10, "the end of what read")
    assert not processes_with(agent._marker)


def spooled(directory, table):
    """Rows of a table in a spool, by the names of its files."""
    return sum(int(name.split(".")[1]) for name in os.listdir(directory) if name.endswith("." + table))


@plain_build("a sanitizer's library has to be the first")
@pytest.mark.parametrize("kind", ["links", "events", "sync"])
def test_a_call_that_does_not_return(kind, debian_python, silent_server, start_agent, start_workload, tmp_path):
    """The kernel does not let go of probes, or the spool's disk does not answer, and neither does the server: the agent ends in
    time, and each row is in the spool or said to be lost."""
    library, hung = tmp_path / "hung_calls.so", tmp_path / "hung"
    subprocess.run(["sh", "-c", f'$(command -v clang-19 || echo cc) -D_GNU_SOURCE -shared -fPIC -o {library} {HUNG_CALLS} -ldl'], check=True)
    workload = start_workload(debian_python, "gc_truth.py", 2, 100, 1)
    agent = start_agent(f"--clickhouse={silent_server}", f"--spool.directory={tmp_path}/spool", "--spool.min_free=0", stdout=False,
                        prefix=["env", f"LD_PRELOAD={library}", f"HUNG_CALLS={hung}", f"HUNG_KIND={kind}"])
    workload.read(), workload.say()
    happened = len(workload.read()["collections"])
    try:
        hung.touch()
        told = time.monotonic()
        agent.process.send_signal(signal.SIGTERM)
        code = agent.wait_end(20)
        took = time.monotonic() - told
    finally:
        hung.unlink()
    assert took < STOP_SECONDS, agent.stderr
    kept = spooled(tmp_path / "spool", "ebpf_gc_pause")
    assert kept >= happened or code == 1 and re.search("rows? could not be delivered", agent.stderr), (kept, happened, code, agent.stderr)
    assert kept >= happened or kind == "sync"
    assert ("does not return from a call" if kind == "sync" else "does not remove probes") in agent.stderr, agent.stderr
    assert lock_is_free(tmp_path / "spool")


PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def test_a_main_thread_that_does_not_come_back(start_agent, silent_server, tmp_path):
    """The main thread alone is stopped, as by a lock of the kernel: the agent ends all the same, says what is lost, and leaves nothing."""
    agent = start_agent(f"--clickhouse={silent_server}", f"--spool.directory={tmp_path}/spool", "--spool.min_free=0", stdout=False)
    objects = attached(agent.pid)
    assert objects
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in PTRACE_SEIZE, PTRACE_INTERRUPT:
        assert libc.ptrace(request, agent.pid, None, None) == 0, ctypes.get_errno()
    os.waitpid(agent.pid, WALL)
    begin = time.monotonic()
    agent.process.send_signal(signal.SIGTERM)
    assert agent.wait_end(20) == 1
    assert time.monotonic() - begin < STOP_SECONDS, "late"
    assert "the main thread does not come back" in agent.stderr
    wait_until(lambda: not still_there(objects), 5, "nothing left in the kernel")


@pytest.mark.alone  # a hung read makes every agent of the host wait for a while, and its readers
def test_a_command_that_waits_for_a_file_ends(debian_python, start_workload, tmp_path):
    """The same of `underspan gil` and `doctor`."""
    trapped = Trapped(debian_python, start_workload)
    trapped.hang()
    try:
        with open(tmp_path / "words", "wb") as words:
            command = subprocess.Popen([UNDERSPAN, "gil", "-p", str(trapped.pid), "-d", "60"], stdin=subprocess.DEVNULL,
                                       stdout=words, stderr=words)
        wait_until(lambda: waiting_reader(command.pid), 30, "the file is asked for")
        objects = attached(command.pid)
        assert objects
        command.send_signal(signal.SIGINT)
        command.wait(STOP_SECONDS)
        wait_until(lambda: not still_there(objects), STOP_SECONDS, "all is given back")
        doctor = subprocess.run([UNDERSPAN, "doctor", "-p", str(trapped.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=60)
        assert doctor.returncode == 1 and "does not answer" in doctor.stdout, doctor.stdout
    finally:
        trapped.end()
    assert (tmp_path / "words").read_text(), "it said nothing"
