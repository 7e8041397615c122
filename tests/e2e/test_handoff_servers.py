# SPDX-License-Identifier: Apache-2.0
"""Servers besides gthread: where no connection waits for a thread there is no row."""
import time

import pytest

import host
from conftest import GUNICORNS
from servers import Gunicorn, connect, get, get_at_once, read_response, request

TABLE = "ebpf_handoff"


@pytest.mark.parametrize("generation", GUNICORNS, ids=str)
def test_sync_workers_have_no_rows(generation, debian_python, start_agent, tmp_path, cleanup):
    agent = start_agent(trackers=["handoff", "gc_pause"])
    gunicorn = Gunicorn(debian_python, generation, str(tmp_path), worker_class="sync")
    cleanup.append(gunicorn)

    def covered():
        get(gunicorn.address, "/gc")
        return agent.select("ebpf_gc_pause", lambda r: r["host_pid"] in gunicorn.worker_pids)
    host.wait_until(covered, 10, "a collection of the worker as a row")
    get_at_once(gunicorn.address, "/sleep/0.01", 50)
    gunicorn.stop()
    agent.stop()
    assert [r for r in agent.rows[TABLE] if r["host_pid"] in gunicorn.worker_pids] == []


@pytest.mark.parametrize("server", ["asyncio", "reader", "accepting"])
def test_servers_that_read_where_they_accept_have_no_rows(server, start_agent, start_on_all):
    agent = start_agent(trackers=["handoff", "gc_pause"])
    workloads = start_on_all("other_servers.py", server)
    for workload in workloads:
        workload.wait_covered(agent)
        workload.say()
        get_at_once(("127.0.0.1", workload.hello["port"]), "/", 50)
        workload.kill()
    agent.stop()
    pids = {workload.pid for workload in workloads}
    assert [r for r in agent.rows[TABLE] if r["host_pid"] in pids] == []


def wait_for_a_handoff(agent, address):
    """Collections are rows as soon as the binary has probes, hand-offs once the agent has found the process: a second later on a
    busy machine."""
    ports = set()

    def is_seen():
        ports.add(get(address)[1])
        return agent.select(TABLE, lambda r: r["peer_port"] in ports)
    host.wait_until(is_seen, 10, "a hand-off as a row")


@pytest.mark.parametrize("server, degrade", [
    ("threading", None), ("threading", "sys_enter_recvfrom"), ("duplicating", None), ("forking", None), ("passing", None),
    ("passing", "sock_recv_length")])
def test_a_connection_that_another_thread_or_process_serves_is_a_handoff(server, degrade, start_agent, start_on_all):
    """Also with a different descriptor, or in a different process; and on kernels with fewer hooks."""
    agent = start_agent(*([f"--degrade={degrade}"] if degrade else []), trackers=["handoff", "gc_pause"])
    workloads = start_on_all("other_servers.py", server)
    for workload in workloads:
        workload.wait_covered(agent)
        workload.say()
        address = ("127.0.0.1", workload.hello["port"])
        wait_for_a_handoff(agent, address)
        workload.truth = [get(address) for _ in range(50)]
        workload.kill()
    agent.stop()

    def check(workload):
        ports = {port for _, port in workload.truth}
        pids = {reply["pid"] for reply, _ in workload.truth}
        rows = agent.select(TABLE, lambda r: r["host_pid"] in pids and r["peer_port"] in ports)
        found = {(r["peer_port"], r["tid"], r["queue"], r["main_tid"]) for r in rows}
        assert len(rows) == 50
        assert found == {(port, reply["tid"], "accept", workload.pid) for reply, port in workload.truth}

    host.check_each(workloads, check)


@pytest.mark.parametrize("server, hands_over", [("cheroot", True), ("waitress", False), ("uvicorn", False)])
def test_servers_that_people_use(server, hands_over, debian_python, start_agent, start_workload):
    """Three requests on each connection: each of cheroot's is read by a worker thread; waitress and uvicorn read in
    the accepting thread."""
    agent = start_agent(trackers=["handoff", "gc_pause"])
    workload = start_workload(debian_python, "other_servers.py", server).wait_covered(agent)
    workload.say()
    address = ("127.0.0.1", workload.hello["port"])
    host.wait_until(lambda: answers(address), 15, f"{server} answers")
    truth = []
    for _ in range(11):
        with connect(address) as s:
            for i in range(3):
                s.sendall(request(keepalive=i < 2))
                truth.append((s.getsockname()[1], read_response(s)["tid"], "keepalive" if i else "accept"))
                time.sleep(0.01)
    workload.kill()
    agent.stop()
    ports = {port for port, _, _ in truth}
    rows = agent.select(TABLE, lambda r: r["host_pid"] == workload.pid and r["peer_port"] in ports)
    found = sorted((r["peer_port"], r["tid"], r["queue"]) for r in rows)
    assert found == (sorted(truth) if hands_over else [])


def answers(address):
    """The workload's listener may still exist, and reset connections."""
    try:
        return get(address)[0] is not None
    except OSError:
        return False
