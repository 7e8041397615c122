# SPDX-License-Identifier: Apache-2.0
"""More load than the agent is designed for: refused events are counted, and afterwards the agent is as right
as before."""
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

import counts
import host
import impostor
from agent import ROOT, SANITIZER
from conftest import PYTHONS
from delivery import agent_target, database, proxy, store  # noqa: F401: fixtures
from test_processes import held_by

PROGRAMS = os.environ.get("UNDERSPAN_E2E_PROGRAMS", os.path.join(ROOT, "build", "tests", "e2e"))
STORM_SECONDS = float(os.environ.get("UNDERSPAN_STORM_SECONDS", 10))  # `make storm`: a minute
NAME = '"},{"table":"ebpf_agent\n\x1b[31m\ufffd' + "x" * 300  # of a tenant that tries to forge rows


@pytest.mark.alone
def test_processes_whose_start_was_lost_are_found(debian_python, start_agent, start_workload):
    """A tenant floods the agent while the agent has no CPU; a program started in the time is watched all
    the same."""
    agent = start_agent(trackers=["gc_pause"])
    flood = start_workload(debian_python, "thread_storm.py", 30011, NAME).wait_covered(agent)
    agent.process.send_signal(signal.SIGSTOP)
    flood.say()
    assert flood.read()["done"]
    other = start_workload(debian_python, "gc_truth.py", 1, 101, 1)
    time.sleep(0.5)
    agent.process.send_signal(signal.SIGCONT)
    other.wait_covered(agent, timeout=30)
    other.say()
    truth = other.read()
    other.finish()
    flood.finish()
    agent.stop()
    found = counts.check(agent)
    assert found["processes"]["lost_ring"] > 0 and "looking at all processes again" in agent.stderr
    rows = agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == other.pid)
    assert len(rows) >= len(truth["collections"])
    assert not agent.broken_lines and set(agent.rows) <= {"ebpf_gc_pause", "ebpf_agent", "ebpf_probe_health"}


# a Python with events for every tracker, from the first moment on
BUSY = """if True:
    import gc, socket, threading
    listener = socket.create_server(("127.0.0.1", 0))
    def serve():
        while True:
            with listener.accept()[0] as connection:
                connection.recv(1)
    def compute():
        while True:
            sum(range(1000))
    for f in serve, compute, compute:
        threading.Thread(target=f, daemon=True).start()
    while True:
        gc.collect()
        with socket.create_connection(listener.getsockname()) as s:
            s.send(b"x")
"""
KILLED = 211


def kill_some(python, n, seed):
    """Starts n processes, four at a time, and kills each at a moment of the first 300 ms."""
    rng, alive = random.Random(seed), []
    for _ in range(n):
        if len(alive) == 4:
            alive.sort(key=lambda a: a[0])
            at, process = alive.pop(0)
            time.sleep(max(0, at - time.monotonic()))
            process.kill()
            process.wait()
        alive.append((time.monotonic() + rng.uniform(0, 0.3),
                      subprocess.Popen([python.path, "-c", BUSY], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)))
    for _, process in alive:
        process.kill()
        process.wait()


@pytest.mark.alone
def test_targets_that_are_killed_while_they_are_probed(debian_python, start_agent, start_workload):
    """SIGKILL at any moment of a Python's first 300 ms: the agent lives and keeps nothing of the dead; surviving processes
    lose nothing."""
    agent = start_agent("--off_cpu.min_duration_us=0", "--gil_wait.min_duration_us=0", f"--pid={os.getpid()}")
    other = start_workload(debian_python, "gc_truth.py", 2, 997, 1).wait_covered(agent)
    kill_some(debian_python, 20, 1)
    time.sleep(1)
    held, rss = held_by(agent.pid)
    own = {agent.pid, *host.children_of(agent.pid)}
    other.say()
    kill_some(debian_python, KILLED, 2)
    own.update(host.children_of(agent.pid))
    truth = other.read()
    other.finish()
    host.wait_until(lambda: held_by(agent.pid)[0] == held, 10, f"{held} again, not {held_by(agent.pid)[0]}")
    last = start_workload(debian_python, "gc_truth.py", 1, 53, 1).wait_covered(agent)
    last.say()
    last_truth = last.read()
    last.finish()
    grown = held_by(agent.pid)[1] - rss
    agent.stop()
    found = counts.check(agent)
    assert found["gc_pause"]["rows"] > KILLED / 2 and (SANITIZER or grown < 16 * 1024), (found["gc_pause"], grown)
    for workload, t in (other, truth), (last, last_truth):
        rows = agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == workload.pid)
        assert len(rows) >= len(t["collections"]), found["gc_pause"]
    # the agent is a child of this process, too: rows about the agent would lead to more rows
    assert not [r for r in agent.rows["ebpf_off_cpu"] if r["host_pid"] in own]


@pytest.mark.alone
def test_process_storm(debian_python, start_agent, start_workload, cleanup, capsys):
    """As many short-lived processes as the machine can start, with and without an exec: each is counted, a concurrent
    Python loses nothing, and the agent neither grows nor uses up a core."""
    agent = start_agent(f"--pid={os.getpid()}")  # and the children: Pythons of further tests come and go
    other = start_workload(debian_python, "gc_truth.py", 2, 997, 1).wait_covered(agent)
    (held, rss), cpu = held_by(agent.pid), host.cpu_seconds(agent.pid)
    begin = time.monotonic()
    storms = []
    for kind in "exec", "fork":
        storms.append(subprocess.Popen([f"{PROGRAMS}/process_storm", str(STORM_SECONDS), "0", kind],
                                       stdout=subprocess.PIPE, text=True))
        cleanup.append(storms[-1])
    other.say()
    truth = other.read()
    execs, forks = (int(storm.communicate()[0]) for storm in storms)
    seconds, cpu = time.monotonic() - begin, host.cpu_seconds(agent.pid) - cpu
    host.wait_until(lambda: held_by(agent.pid)[0] == held, 10, f"{held} again, not {held_by(agent.pid)[0]}")
    grown = held_by(agent.pid)[1] - rss
    other.finish()
    agent.stop()
    found = counts.check(agent)
    with capsys.disabled():
        print(f" {(execs + forks) / seconds:,.0f} starts/s, {execs / seconds:,.0f} of other programs, agent: "
              f"{cpu / seconds * 100:.1f} % of a CPU, RSS {grown:+} kB; lost: {found['processes']['lost_ring']}", end=" ")
    assert found["processes"]["seen"] >= execs
    assert SANITIZER or (cpu < 0.5 * seconds and grown < 16 * 1024)
    rows = agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == other.pid)
    assert len(rows) >= len(truth["collections"]), found["gc_pause"]
    assert not any(found["gc_pause"][lost] for lost in ("lost_ring", "lost_state", "bad_event"))


MAX_BINARIES = 256  # src/process/binaries.h


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="imitates Python as x86-64 has it")
def test_more_binaries_than_can_be_probed(start_agent, cleanup, tmp_path):
    """Binaries over the limit are reported, one row each, and are watched as soon as there is room."""
    program = impostor.build(tmp_path, "-DMINOR=13")
    agent = start_agent(f"--pid={os.getpid()}", trackers=["gc_pause"])
    running = []
    for i in range(MAX_BINARIES + 5):
        running.append(impostor.Impostor(shutil.copy(program, f"{program}-{i}"), "idle"))
        cleanup.append(running[-1])
    pids = {p.pid for p in running}
    first = {}
    for row in agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] in pids and r["tracker"] == "gc_pause"
                               and r["python_version"] in ("3.13.2", ""), n=len(running), timeout=60):
        first[row["host_pid"]] = row
    late = [p for p in running if not first[p.pid]["live"]]
    assert 5 <= len(late) <= 6 and late == running[-len(late):]  # this process is a Python, too
    assert {first[p.pid]["reason"] for p in late} == {f"more than {MAX_BINARIES} Python binaries in use at once"}
    for p in late:
        p.tell("collect")
    time.sleep(0.3)
    assert not agent.select("ebpf_gc_pause", lambda r: r["host_pid"] in {p.pid for p in late})
    for p in running[:len(late)]:
        p.kill()
    for p in late:
        agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == p.pid and r["tracker"] == "gc_pause" and r["live"]
                        and r["python_version"] == "3.13.2")  # not as a fork of this process
        p.tell("collect")
        agent.wait_rows("ebpf_gc_pause", lambda r: r["host_pid"] == p.pid)
    agent.stop()
    assert sum("not traced" in line for line in agent.log) == len(late), agent.stderr


# a thread's name has 15 bytes in the kernel, of any value
FORGED = [b'"},{"table":"e', b"a\nb\r{\"x\":1}", b"\x1b[2J\x1b[31mred", b"'; DROP TABLE x", b"back\\slash\\\\\"", b"\xff\xfe\xc3\x28\xe2\x82",
          b"\xed\xa0\x80\xf5\x80\xc0\xaf", b"\x01\x02\x7f\x1f\t\x08", "\u2028\u202e\ufeff".encode(), b"{{p:String}}%s%n", b" "]
COLLECTIONS = 11


@pytest.mark.parametrize("where", ["stdout", "server"])
def test_forged_names(where, debian_python, start_agent, start_workload, agent_target, database):  # noqa: F811
    """Names with quotes, line ends, terminal sequences, and invalid UTF-8: each row arrives, under a harmless name."""
    options = agent_target if where == "server" else []
    agent = start_agent(*options, f"--pid={os.getpid()}", trackers=["gc_pause"], stdout=where == "stdout")
    workload = start_workload(debian_python, "forged_names.py", COLLECTIONS, *(name.hex() for name in FORGED))
    if where == "stdout":
        workload.wait_covered(agent)
    else:
        workload.read()
        host.wait_until(lambda: int(database.store.ask(f"SELECT count() FROM {database.name}.ebpf_gc_pause")), 20, "a row")
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    if where == "stdout":
        rows = [(r["comm"], r["tid"]) for r in agent.rows["ebpf_gc_pause"] if r["host_pid"] == workload.pid]
    else:
        text = database.store.ask(f"SELECT hex(comm), tid FROM {database.name}.ebpf_gc_pause WHERE host_pid = {workload.pid} "
                                  "FORMAT TSV")
        rows = [(bytes.fromhex(line.split("\t")[0]).decode(), line.split("\t")[1]) for line in text.splitlines()]
    names = {}
    for comm, tid in rows:
        names.setdefault(tid, []).append(comm)
    forged = [comms for tid, comms in names.items() if str(tid) != str(workload.pid)]
    assert sorted(map(len, forged)) == [COLLECTIONS] * len(FORGED), names
    assert all(len(set(comms)) == 1 for comms in forged)
    shown = {comms[0] for comms in forged}
    for name in FORGED:  # text without terminal controls is unchanged
        if name.isascii() and name.decode().isprintable():
            assert name.decode()[:15] in shown, shown
    assert len(shown) == len(FORGED), shown


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


MANY_MODULES = 5003


@pytest.mark.alone
def test_a_process_of_5003_modules(start_agent, start_workload, capsys):
    """threading is found behind all modules, once: names are right, and the cost is little above the cost
    without the modules."""
    agent = start_agent(f"--pid={os.getpid()}", trackers=["gc_pause"])
    cost = {}
    for n in 0, MANY_MODULES:
        before = cpu_seconds(agent.pid)
        workloads = [start_workload(python, "many_modules.py", n).wait_covered(agent) for python in PYTHONS]
        for workload in workloads:
            workload.say()
        for workload in workloads:
            truth = workload.read()
            assert truth["modules"] > n
            rows = agent.wait_rows("ebpf_gc_pause", lambda r: r["host_pid"] == workload.pid and r["tid"] == truth["tid"], n=20)
            names = [r["thread_name"] for r in rows]
            # threading may be found a moment after the first rows
            assert set(names) <= {"", "wörker of many"} and names.count("") <= 5, (str(workload.python), names)
            workload.finish()
        cost[n] = (cpu_seconds(agent.pid) - before) / len(workloads)
    agent.stop()
    with capsys.disabled():
        print("", *(f"{n} modules: {1000 * c:.1f} ms of CPU a process" for n, c in cost.items()), sep="\n  ", end=" ")
    assert cost[MANY_MODULES] < cost[0] + 0.1, cost
