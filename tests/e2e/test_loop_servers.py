# SPDX-License-Identifier: Apache-2.0
"""Servers on event loops, from Debian's packages: a blocking handler is a stall with the place and the waiting
requests; the same handler in a server with threads is no stall."""
import os
import time

import pytest

import host
from servers import Server, connect, get, read_response, request
from test_loop_stall import CLOCK_NS, MS, PARTS, TABLE, begin_ns, end_ns, part

SECONDS = 0.3
KEPT, NEW = 5, 3
COMMANDS = {
    "uvicorn-asyncio": ["-m", "uvicorn", "--port=0", "--loop=asyncio", "--http=h11", "loop_app:asgi"],
    "uvicorn-uvloop": ["-m", "uvicorn", "--port=0", "--loop=uvloop", "--http=httptools", "loop_app:asgi"],
    "aiohttp": [os.path.join(host.WORKLOADS, "loop_app.py")],
    "gunicorn-uvicorn": ["-m", "gunicorn", "--bind=127.0.0.1:0", "--worker-class=uvicorn.workers.UvicornWorker", "loop_app:asgi"],
    "gunicorn-gevent": ["-m", "gunicorn", "--bind=127.0.0.1:0", "--worker-class=gevent", "loop_app:wsgi"],
    "gunicorn-gthread": ["-m", "gunicorn", "--bind=127.0.0.1:0", "--worker-class=gthread", "--threads=2", "loop_app:wsgi"],
    "gunicorn-sync": ["-m", "gunicorn", "--bind=127.0.0.1:0", "loop_app:wsgi"],
}
LOOPS = {"uvicorn-asyncio": "asyncio", "uvicorn-uvloop": "uvloop", "aiohttp": "asyncio", "gunicorn-uvicorn": "uvloop",
         "gunicorn-gevent": "gevent"}


@pytest.fixture
def start_server(debian_python, cleanup):
    def start(name):
        server = Server([debian_python.path, *COMMANDS[name]], env={"PYTHONPATH": host.WORKLOADS})
        cleanup.append(server)
        port = server.wait_log(r"(?:[Rr]unning on|Listening at:) http://127.0.0.1:(\d+)")[0].group(1)
        server.address = ("127.0.0.1", int(port))
        return server
    return start


def ask(server, path):
    with connect(server.address) as s:
        s.sendall(request(path, keepalive=True))
        return read_response(s)


def wait_watched(agent, server):
    def is_watched():
        pid = ask(server, "/block/0.12")["pid"]
        return agent.select(TABLE, lambda r: r["host_pid"] == pid and r["sleep_ns"] is not None)
    host.wait_until(is_watched, 20, f"a stall that is split: {agent.stderr}")


def block_and_wait(server):
    """A request that blocks; during the block KEPT requests on idle connections, and NEW connections. Returns the truth
    of the first request, or None where the host let the block end before the rest had arrived."""
    kept = [connect(server.address) for _ in range(KEPT)]
    for s in kept:
        s.sendall(request("/", keepalive=True))
        read_response(s)
    with connect(server.address) as first:
        first.sendall(request("/", keepalive=True))
        read_response(first)
        time.sleep(0.2)  # nothing is in flight
        first.sendall(request(f"/block/{SECONDS}", keepalive=True))
        time.sleep(SECONDS / 3)
        begun = time.perf_counter_ns()
        for s in kept:
            s.sendall(request("/", keepalive=True))
        new = [connect(server.address) for _ in range(NEW)]
        sent = time.perf_counter_ns()
        truth = read_response(first)
        time.sleep(0.05)  # answered before the stall ends: an end of the connection would be ready, too
    for s in [*kept, *new]:
        s.close()
    return truth if truth["start"] < begun and sent < truth["stop"] else None


@pytest.mark.parametrize("name", LOOPS)
def test_a_blocking_handler_is_a_stall(name, start_agent, start_server):
    agent = start_agent(trackers=["loop_stall", "gc_pause"])
    server = start_server(name)
    wait_watched(agent, server)
    truths = [truth for truth in (block_and_wait(server) for _ in range(6)) if truth]
    assert len(truths) >= 2, "the host is too busy for this test"
    agent.wait_rows(TABLE, lambda r: r["host_pid"] == truths[-1]["pid"] and end_ns(r) >= truths[-1]["stop"] - CLOCK_NS)
    agent.stop()
    for truth in truths:
        own = [r for r in agent.select(TABLE, lambda r: r["host_pid"] == truth["pid"])
               if begin_ns(r) - CLOCK_NS <= truth["start"] and truth["stop"] <= end_ns(r) + CLOCK_NS]
        assert len(own) == 1, (truth, own)
        row, (function, file, line) = own[0], truth["place"]
        assert row["loop"] == LOOPS[name] and row["py_stack"][0] == f"{function} ({file}:{line})", row
        assert sum(part(row, p) for p in PARTS) == row["duration_ns"]
        assert abs(row["sleep_ns"] - SECONDS * 1e9) <= max(2 * MS, truth["stop"] - truth["start"] - SECONDS * 1e9 + 2 * MS), row
        assert row["waiting"] == KEPT + 1, row  # and the listener, which stands for all new connections


@pytest.mark.parametrize("name", ["gunicorn-gthread", "gunicorn-sync"])
def test_threads_that_block_are_no_loops(name, start_agent, start_server, start_workload, debian_python):
    agent = start_agent(trackers=["loop_stall", "gc_pause"])
    loop = start_workload(debian_python, "loop_truth.py", "asyncio", 1, 0.15)
    server = start_server(name)
    pids = set()
    for _ in range(8):
        get(server.address, f"/block/{SECONDS}")
        pids.add(ask(server, "/block/0.12")["pid"])
    loop.read()
    agent.wait_rows(TABLE, lambda r: r["host_pid"] == loop.pid)  # the agent sees loops
    agent.stop()
    assert not agent.select(TABLE, lambda r: r["host_pid"] in {*pids, server.pid})
