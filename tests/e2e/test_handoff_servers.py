# SPDX-License-Identifier: Apache-2.0
"""Other servers than gthread: where no connection waits for a thread there is no row."""
import pytest

import host
from conftest import GUNICORNS
from servers import Gunicorn, get, get_at_once

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


@pytest.mark.parametrize("server, degrade", [
    ("threading", None), ("threading", "sys_enter_recvfrom"), ("duplicating", None), ("forking", None), ("passing", None),
    ("passing", "sock_recv_length")])
def test_a_connection_that_another_thread_or_process_serves_is_a_handoff(server, degrade, start_agent, start_on_all):
    """Also where it has another descriptor, or is another process's; and on kernels that show less."""
    agent = start_agent(*([f"--degrade={degrade}"] if degrade else []), trackers=["handoff", "gc_pause"])
    workloads = start_on_all("other_servers.py", server)
    for workload in workloads:
        workload.wait_covered(agent)
        workload.say()
        workload.truth = [get(("127.0.0.1", workload.hello["port"])) for _ in range(50)]
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
