# SPDX-License-Identifier: Apache-2.0
"""Servers under attack, clients that send any bytes, and the ledger's rows of such a server."""
import http.client
import os
import socket

import host
import servers
from test_request import GUNICORN
from test_request import SERVERS as REQUEST_SERVERS

SERVERS = {
    **REQUEST_SERVERS,
    "waitress": ["-m", "waitress", "--listen=127.0.0.1:0", "request_app:wsgi"],
    "two_workers": [*GUNICORN, "-k", "gthread", "--threads", "4", "--workers", "2", "--keep-alive", "60", "request_app:wsgi"],
    "odd_answers": ["odd_answers.py"],
    "lingering_close": ["lingering_close.py"],
    "small_pieces": ["small_pieces.py"],
    "buffered": ["buffered.py"],
}


def start(cleanup, python, name):
    argv = [os.path.join(host.WORKLOADS, a) if a.endswith(".py") else a for a in SERVERS[name]]
    server = servers.Server([python.path, *argv], cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS})
    cleanup.append(server)
    where = server.wait_log(r"(?:Listening at:|running on|Serving on) https?://(?:127\.0\.0\.1|localhost):(\d+)")[0]
    server.port = int(where.group(1))
    return server


def known(agent, server, path="/"):
    """The server's port is known from the first request on."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", path)
    connection.getresponse().read()
    connection.close()
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port)


def rows_of(agent, server):
    return agent.select("ebpf_request", lambda r: r["server_port"] == server.port)


def unfollowed(agent):
    """Requests counted without a row, by cause."""
    last = {}
    for row in agent.rows["ebpf_probe_health"]:
        if row["tracker"] == "request" and row["reason"][:1].isdigit():
            last[row["binary"]] = int(row["reason"].split()[0])
    return last


def memory_of(agent):
    with open(f"/proc/{agent.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def head(path, i, method=b"GET", more=b"", end=b"\r\n", version=b"HTTP/1.1"):
    lines = [b"%s %s %s" % (method, path, version), b"Host: x", b"traceparent: 00-%032x-%016x-01" % (i, i), *more.splitlines(), b"", b""]
    return end.join(lines)


def send(port, pieces):
    """The client's port, all bytes received until the server closed or was silent for a while, and whether it closed: a server
    that closes with unread bytes resets the connection, and the answer may be lost on the way."""
    got, closed = b"", False
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.settimeout(0.4)
        own = s.getsockname()[1]
        try:
            for piece in pieces:
                s.sendall(piece)
            s.shutdown(socket.SHUT_WR)
            while more := s.recv(65536):
                got += more
            closed = True
        except OSError:
            pass
    return own, got, closed


def receive(s, n):
    got = b""
    while len(got) < n:
        more = s.recv(65536)
        assert more, got
        got += more
    return got
