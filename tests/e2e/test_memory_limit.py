# SPDX-License-Identifier: Apache-2.0
"""The agent in a memory cgroup of 64 MiB, including the BPF maps: never killed; events without room are counted."""
import os
import socket
import time

import pytest

import counts
import fault_proxy as fault
import host
from agent import plain_build
from cgroups import MemoryCgroup, find_memory_controller
from delivery import agent_target, collections_of, database, proxy, store  # noqa: F401: fixtures
from test_counts import EVERYTHING
from test_processes import held_by

MIB = 1 << 20
LIMIT = 64 * MIB

pytestmark = [pytest.mark.alone,
              pytest.mark.skipif(not find_memory_controller(), reason="this host has no cgroup memory controller mounted"),
              plain_build("its shadow memory alone is more")]


@pytest.fixture
def limited(cleanup):
    """limited(bytes): a memory cgroup."""
    def make(limit):
        cgroup = MemoryCgroup(limit)
        cleanup.append(cgroup)
        return cgroup
    return make


def sums(database):
    """Sums of ebpf_agent for each tracker: {tracker: {column: sum}}"""
    columns = ["seen", "rows", *(f for f in counts.FATES if f != "rows")]
    text = database.store.ask(f"SELECT tracker, {', '.join(f'sum({c})' for c in columns)}, argMax(pending, end_time) "
                              f"FROM {database.name}.ebpf_agent GROUP BY tracker FORMAT TSV")
    return {line.split()[0]: dict(zip([*columns, "pending"], map(int, line.split()[1:]))) for line in text.splitlines()}


def stop(agent, cgroup):
    """The agent was not killed; returns the counts, which add up."""
    agent.process.terminate()
    code = agent.wait_end(20)
    assert cgroup.oom_kills() == 0 and code >= 0, (code, agent.stderr)
    found = counts.check(agent)
    # the exit code tells whether rows found no room
    assert code == any(c["dropped_memory"] for c in found.values()), (code, found)
    return found


def test_start_takes_less(limited, start_agent):
    """Loading the programs, reading symbols: with room to spare for later work."""
    cgroup = limited(LIMIT)
    agent = start_agent(*EVERYTHING, prefix=cgroup.prefix)
    time.sleep(2)
    peak = cgroup.peak()
    agent.stop()
    assert cgroup.oom_kills() == 0 and peak < 60 * MIB, f"{peak / MIB:.1f} MiB"
    assert "memory limit of 64 MiB" in agent.stderr and "no BPF map takes more than" in agent.stderr


def test_flood(limited, start_agent, start_workload, debian_python):
    """Every event of every tracker is a row, without a threshold: events without room are counted."""
    cgroup = limited(LIMIT)
    agent = start_agent(*EVERYTHING, "--off_cpu.profile_interval=1", "--gil_wait.profile_interval=1", prefix=cgroup.prefix)
    busy = [start_workload(debian_python, "everything.py", 5).wait_covered(agent) for _ in range(4)]
    for workload in busy:
        workload.say()
    for workload in busy:
        workload.read()
        workload.finish()
    found = stop(agent, cgroup)
    for tracker in "handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept", "tcp_connect":
        assert found[tracker]["rows"] > 0, (tracker, found[tracker])


def test_load_while_the_server_is_down(limited, agent_target, start_agent, start_workload, proxy, database, debian_python):
    """All trackers, rows into the spool and out: all of a program's collections arrive."""
    cgroup = limited(LIMIT)
    agent = start_agent(*agent_target, prefix=cgroup.prefix, stdout=False)
    busy = [start_workload(debian_python, "everything.py", 12) for _ in range(3)]
    workload = start_workload(debian_python, "gc_truth.py", 2, 997, 1)
    workload.hello = workload.read()
    host.wait_until(lambda: int(database.store.ask(
        f"SELECT count() FROM {database.name}.ebpf_gc_pause WHERE host_pid = {workload.pid}")), 30, "a first row")
    proxy.plan = lambda request: fault.answer(503)
    for program in busy:
        program.read()
        program.say()
    workload.say()
    truth = workload.read()
    for program in busy:
        program.read()
    proxy.plan = lambda request: None
    host.wait_until(lambda: collections_of(database, workload.hello, truth) >= len(truth["collections"]), 60, "all rows")
    for program in [*busy, workload]:
        program.finish()
    agent.process.terminate()
    assert agent.wait_end(20) == 0 and cgroup.oom_kills() == 0
    assert len(truth["collections"]) <= collections_of(database, workload.hello, truth) <= len(truth["collections"]) + 2
    for tracker, c in sums(database).items():
        assert c["seen"] == sum(c[fate] for fate in counts.FATES) + c["pending"], (tracker, c)
        if tracker in ("handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept", "tcp_connect"):
            assert c["rows"] > 0, (tracker, c)


HELD, HOLDERS = 7001, 3  # connections of each; both ends are the holder's


def connect_and_serve(n):
    """n connections of this process with the same process, in sequence."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(n):
            with socket.create_connection(listener.getsockname()), listener.accept()[0]:
                pass


def test_a_tenant_that_holds_sockets(limited, start_agent, start_workload, debian_python):
    """More connections than the maps can hold stay open: the loss for further connections is counted, and ends when the
    connections close."""
    cgroup = limited(LIMIT)
    agent = start_agent("--tcp_connect.min_duration_us=0", f"--pid={os.getpid()}", prefix=cgroup.prefix,
                        trackers=["handoff", "gc_pause", "tcp_accept", "tcp_connect", "tcp_loss"], only_count=["ebpf_tcp_accept"])
    mine = lambda r: r["host_pid"] == os.getpid()  # noqa: E731
    connect_and_serve(7)
    agent.wait_rows("ebpf_tcp_connect", mine, n=7)
    tenant = start_workload(debian_python, "hold_sockets.py", HELD, HOLDERS).wait_covered(agent)
    other = start_workload(debian_python, "gc_truth.py", 1, 211, 1).wait_covered(agent)
    tenant.say()
    tenant.read()
    other.say()
    truth = other.read()
    connect_and_serve(101)
    agent.wait_quiet("ebpf_tcp_connect")
    meanwhile = len(agent.select("ebpf_tcp_connect", mine)) - 7
    tenant.say()
    tenant.read()
    time.sleep(1)
    connect_and_serve(101)
    agent.wait_rows("ebpf_tcp_connect", mine, n=7 + meanwhile + 101)
    for workload in tenant, other:
        workload.finish()
    agent.stop()
    assert cgroup.oom_kills() == 0
    found = counts.check(agent)
    lost = found["tcp_connect"]["lost_state"]
    # a connection is two events, beginning and end
    assert found["tcp_connect"]["rows"] + lost == 2 * (HELD * HOLDERS + 7 + 101 + 101), (found["tcp_connect"], meanwhile)
    assert lost > 0 and 101 - meanwhile <= lost
    assert len(agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == other.pid)) >= len(truth["collections"])


THREADS = 5003


def test_5000_threads(limited, start_agent, start_workload, debian_python, capsys):
    """Of one process, ending all at once: waits without a row are counted, and the agent keeps no state."""
    cgroup = limited(LIMIT)
    agent = start_agent("--off_cpu.min_duration_us=0", "--gil_wait.min_duration_us=0", f"--pid={os.getpid()}", prefix=cgroup.prefix)
    other = start_workload(debian_python, "gc_truth.py", 1, 211, 1).wait_covered(agent)
    held = held_by(agent.pid)[0]
    many = start_workload(debian_python, "many_threads.py", THREADS, 53).wait_covered(agent)
    many.say()
    other.say()
    truth, other_truth = many.read(), other.read()
    assert truth["threads"] > THREADS
    peak = cgroup.peak()
    many.finish()
    host.wait_until(lambda: held_by(agent.pid)[0] == held, 10, f"{held} again, not {held_by(agent.pid)[0]}")
    other.finish()
    found = stop(agent, cgroup)
    threads = {r["host_tid"] for r in agent.rows["ebpf_off_cpu"] if r["host_pid"] == many.pid}
    lost = sum(found["off_cpu"][c] for c in ("lost_state", "lost_ring", "dropped_memory"))
    with capsys.disabled():
        print(f" rows of {len(threads)} threads' waits, {lost} lost, peak {peak / MIB:.0f} MiB", end=" ")
    assert len(threads) + lost >= THREADS  # each has slept
    for workload, t in (many, truth), (other, other_truth):
        rows = agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == workload.pid)
        assert len(rows) + found["gc_pause"]["dropped_memory"] >= len(t["collections"]), found["gc_pause"]
