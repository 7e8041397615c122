# SPDX-License-Identifier: Apache-2.0
"""The system calls that a server reads its requests with, and writes with: each request has a row, or its connection is counted."""
import json
import os
import socket
import time

import pytest

import counts
import host
import servers
from ledger_clients import head, known, receive, rows_of, unfollowed
from test_request import TRACKERS, total, trace_of
from workloads.odd_calls import ANSWER, OPEN

UNSEEN = {"recvmmsg", "preadv2", "io_uring"}


@pytest.fixture
def server(debian_python, cleanup):
    server = servers.Server([debian_python.path, os.path.join(host.WORKLOADS, "odd_calls.py")])
    cleanup.append(server)
    server.ports = json.loads(server.wait_log(r"ports: (.*)")[0].group(1))
    return server


def ask(s, i, path=b"/", answer=ANSWER, **more):
    s.sendall(head(path, i, **more))
    assert receive(s, len(answer)) == answer


def test_each_request_is_a_row_or_its_connection_is_counted(server, start_agent):
    """New connections, and one of each call from before the agent's start."""
    sent, old, n = {}, {}, 0
    for name, port in server.ports.items():
        old[name] = socket.create_connection(("127.0.0.1", port))
        ask(old[name], 999)
        n += name in UNSEEN
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == server.pid and r["tracker"] == "request")
    for name, s in old.items():
        with s:
            for _ in range(3):
                i = len(sent) + 1
                sent[trace_of(i)] = name
                ask(s, i)
    for name, port in server.ports.items():
        for _ in range(2):
            n += name in UNSEEN
            with socket.create_connection(("127.0.0.1", port)) as s:
                for _ in range(3):
                    i = len(sent) + 1
                    sent[trace_of(i)] = name
                    ask(s, i)
    followed = {trace for trace, name in sent.items() if name not in UNSEEN}
    agent.wait_rows("ebpf_request", lambda r: r["trace_id"] in followed, n=len(followed))
    agent.stop()
    rows = [r for r in agent.rows["ebpf_request"] if r["trace_id"] in sent]
    assert sorted(r["trace_id"] for r in rows) == sorted(followed)
    assert all(total(r) == r["duration_ns"] and r["status"] == 200 and r["server_port"] == server.ports[sent[r["trace_id"]]] for r in rows)
    assert unfollowed(agent) == {"unseen reads": n}
    counts.check(agent)


def test_a_body_that_is_not_seen_has_its_length(server, start_agent):
    """Read with recvmmsg(), between requests that are read with recv()."""
    server.port = server.ports["recvfrom"]
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    known(agent, server)
    body = b"GET /smuggled HTTP/1.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(1, 7, 2):
            for piece in (head(b"/", i, b"POST", b"Content-Length: %d" % len(body)), body[:9], body[9:]):
                s.sendall(piece)
                time.sleep(0.01)
            receive(s, len(ANSWER))
            ask(s, i + 1)
    agent.wait_rows("ebpf_request", lambda r: r["trace_id"] == trace_of(6))
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["trace_id"]]
    assert [(r["trace_id"], r["method"], r["path"]) for r in rows] == [(trace_of(i), "POST" if i % 2 else "GET", "/") for i in range(1, 7)]
    assert all(total(r) == r["duration_ns"] and r["status"] == 200 for r in rows) and not unfollowed(agent), (rows, unfollowed(agent))
    counts.check(agent)


def read_to_end(s):
    got = b""
    while more := s.recv(65536):
        got += more
    return got


def test_a_write_of_no_bytes_is_no_lost_client(server, start_agent):
    """The client waits for the connection's end, which is the answer's."""
    server.port = server.ports["recvfrom"]
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    known(agent, server)
    for i in range(1, 6):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(head(b"/open", i))
            assert read_to_end(s) == OPEN
    agent.wait_rows("ebpf_request", lambda r: r["path"] == "/open" and r["server_port"] == server.port, n=5)
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["path"] == "/open"]
    assert [(r["trace_id"], r["status"], r["outcome"], r["end_by"]) for r in rows] == [(trace_of(i), 200, "answered", "close") for i in range(1, 6)]
    assert all(total(r) == r["duration_ns"] for r in rows)
    counts.check(agent)


UNREAD_SERVER = """
import signal, socket, sys, time
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(16)
print("port:", listener.getsockname()[1], file=sys.stderr, flush=True)
wanted = 0
while True:
    connection = listener.accept()[0]
    first = connection.recv(12)
    if b"early" in first:  # an answer before the body, which is never read
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 413 Too Large\\r\\nContent-Length: 0\\r\\n\\r\\n")
        time.sleep(0.1)
    elif b"then" in first:  # closed while the next request is there
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
        time.sleep(0.1)
    elif b"end" in first:  # the queue's connections end with the listener
        time.sleep(0.3)
        sys.exit()
    elif first:
        time.sleep(0.02)
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
        if b"half" not in first:
            connection.recv(1)
    connection.close()
"""


def test_what_nobody_reads_is_counted(debian_python, cleanup, start_agent):
    """Behind an answer, and in the accept queue of a server that ends; not a body's rest, nor the end of a connection."""
    server = servers.Server([debian_python.path, "-c", UNREAD_SERVER])
    cleanup.append(server)
    server.port = int(server.wait_log(r"port: (\d+)")[0].group(1))
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == server.pid and r["tracker"] == "request")

    def connect():
        return socket.create_connection(("127.0.0.1", server.port))
    for i in range(1, 4):
        with connect() as s:
            ask(s, i, b"/ok", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        with connect() as s:  # the end of the client's direction is there at the read, and is never read
            s.sendall(head(b"/half", 50 + i))
            s.shutdown(socket.SHUT_WR)
            receive(s, len(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        with connect() as s:
            s.sendall(head(b"/early", 10 + i, b"POST", b"Content-Length: 5000"))
            receive(s, len(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"))
            s.sendall(b"x" * 4000)
        with connect() as s:
            ask(s, 20 + i, b"/then", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            s.sendall(head(b"/unread", 30 + i))
            with pytest.raises(ConnectionResetError):
                s.recv(1)
    with connect() as last, connect() as one, connect() as two, connect():
        last.sendall(head(b"/end", 40))
        one.sendall(head(b"/queued", 41))
        two.sendall(head(b"/queued", 42))
        server.process.wait()
    agent.wait_rows("ebpf_request", lambda r: r["path"] == "/end")
    agent.stop()
    assert sorted(r["path"] for r in rows_of(agent, server)) == sorted(["/ok", "/half", "/early", "/then"] * 3 + ["/end"])
    assert unfollowed(agent) == {"unread": 5}
    counts.check(agent)
