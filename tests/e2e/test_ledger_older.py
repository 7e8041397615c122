# SPDX-License-Identifier: Apache-2.0
"""Requests that are open when the agent starts have no row, and are counted: once each. No other request is."""
import os
import socket
import time

import pytest

import counts
import host
from ledger_clients import head, unfollowed
from servers import Server
from test_request import TRACKERS

BODY = b"Content-Length: 3000"
# path: what was sent when the agent starts, what follows then, of the answer's bytes the last
OLDER = {
    "/later": (head(b"/later", 1), b"", b"ok"),
    "/parts": (head(b"/parts", 1), b"", b"OK\r\nHTTP/1.1 200 OK\r\n"),
    "/stream": (head(b"/stream", 1), b"", b"\r\n0\r\n\r\n"),
    "/tell": (head(b"/tell", 1, b"POST", BODY), bytes(3000), b"ok"),
    "/told": (head(b"/told", 1, b"POST", BODY), bytes(3000), b"ok"),
    "/upload": (head(b"/upload", 1, b"POST", BODY) + bytes(1000), bytes(2000), b"ok"),
}
CLIENT = """
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), source_address=("127.0.0.1", 0) if sys.argv[2] == "bound" else None)
while True:
    s.sendall(b"5\\r\\nhello\\r\\n")
    print("asked", file=sys.stderr, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def server(cleanup, debian_python, tmp_path):
    server = Server([debian_python.path, os.path.join(host.WORKLOADS, "older_requests.py"), str(tmp_path)])
    cleanup.append(server)
    server.port, server.directory = int(server.wait_log(r"Listening at: (\d+)")[0].group(1)), tmp_path
    return server


def connect(server, unix=False):
    if not unix:
        return socket.create_connection(("127.0.0.1", server.port), timeout=10)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(str(server.directory / "socket"))
    return s


def receive(s, last):
    got = b""
    while not got.endswith(last):
        more = s.recv(65536)
        assert more, got
        got += more


def ask(s, path, i):
    s.sendall(head(path, i))
    receive(s, b"ok")


def watched(start_agent, *processes):
    agent = start_agent("--request.min_duration_us=0", *(f"--pid={process.pid}" for process in processes), trackers=TRACKERS)
    for process in processes:
        agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == process.pid and r["tracker"] == "request")
    return agent


@pytest.mark.parametrize("where", ["new port", "known port", "unix"])
@pytest.mark.parametrize("path", OLDER)
def test_an_open_request_is_counted(path, where, server, start_agent):
    """Whatever is written first, and whether or not the agent has seen a request of that port; the connection's next request has a row."""
    before, behind, last = OLDER[path]
    with connect(server, where == "unix") as s:
        s.sendall(before)
        time.sleep(0.2)
        agent = watched(start_agent, server)
        with connect(server) as other:
            if where == "known port":
                ask(other, b"/now", 2)
        (server.directory / path[1:]).touch()
        s.sendall(behind)
        receive(s, last)
        ask(s, b"/now", 3)
        ask(s, b"/now", 4)
        ids = {f"{i:032x}" for i in ((2, 3, 4) if where == "known port" else (3, 4))}
        agent.wait_rows("ebpf_request", lambda r: r["trace_id"] in ids, n=len(ids))
    agent.stop()
    # chunks of a unix socket may be a client's; the accept() of the other connection tells the port
    assert unfollowed(agent) == ({} if where == "unix" and path == "/stream" else {"open at start": 1})
    assert {row["trace_id"] for row in agent.rows["ebpf_request"]} == ids
    counts.check(agent)


def test_a_request_with_a_row_is_not_counted(server, start_agent):
    """Of a connection that is idle at the agent's start, and of a new one; nor those of clients."""
    paths = [path for path in OLDER if path not in ("/stream", "/parts")]
    with connect(server) as idle, connect(server, unix=True) as local:
        ask(idle, b"/now", 1)
        ask(local, b"/now", 1)
        time.sleep(0.2)
        agent = watched(start_agent, server)
        with connect(server) as new:
            for n, s in enumerate((idle, local, new)):
                for i, path in enumerate(paths):
                    before, behind, last = OLDER[path]
                    (server.directory / path[1:]).touch()
                    s.sendall(before)
                    time.sleep(0.05)
                    s.sendall(behind)
                    receive(s, last)
        agent.wait_rows("ebpf_request", n=3 * len(paths))
    agent.stop()
    assert not unfollowed(agent) and len(agent.rows["ebpf_request"]) == 3 * len(paths)
    counts.check(agent)


@pytest.mark.parametrize("kind", ["bound", "free"])
def test_a_clients_chunks_are_not_counted(kind, server, start_agent, cleanup, debian_python):
    with socket.create_server(("127.0.0.1", 0)) as sink:
        client = Server([debian_python.path, "-c", CLIENT, str(sink.getsockname()[1]), kind])
        cleanup.append(client)
        with sink.accept()[0]:
            client.wait_log("asked")
            agent = watched(start_agent, client, server)
            client.wait_log("asked", len(client.log) + 5)
    agent.stop()
    assert not unfollowed(agent) and not agent.rows["ebpf_request"]
