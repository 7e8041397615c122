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


@pytest.mark.parametrize("server", ["asyncio", "reader"])
def test_servers_that_read_where_they_accept_have_no_rows(server, python, start_agent, start_workload):
    agent = start_agent(trackers=["handoff", "gc_pause"])
    workload = start_workload(python, "other_servers.py", server).wait_covered(agent)
    workload.say()
    get_at_once(("127.0.0.1", workload.hello["port"]), "/", 50)
    workload.kill()
    agent.stop()
    assert [r for r in agent.rows[TABLE] if r["host_pid"] == workload.pid] == []


def test_a_thread_made_for_the_connection_is_a_handoff(python, start_agent, start_workload):
    agent = start_agent(trackers=["handoff", "gc_pause"])
    workload = start_workload(python, "other_servers.py", "threading").wait_covered(agent)
    workload.say()
    truth = [get(("127.0.0.1", workload.hello["port"])) for _ in range(50)]
    workload.kill()
    agent.stop()
    rows = {r["peer_port"]: r for r in agent.rows[TABLE] if r["host_pid"] == workload.pid}
    assert len(rows) == len([r for r in agent.rows[TABLE] if r["host_pid"] == workload.pid]) == 50
    for reply, port in truth:
        assert (rows[port]["tid"], rows[port]["queue"]) == (reply["tid"], "accept")
        assert rows[port]["main_tid"] == workload.hello["tid"]
