# SPDX-License-Identifier: Apache-2.0
"""Answers that are complete before the request's body has ended. The server reads the body's rest together with the next request, which has a
row of its own, as any other request of the connection."""
import collections
import http.client
import os
import socket
import time

import pytest

import counts
import host
import servers
from ledger_clients import head, unfollowed
from ledger_services import lacking
from test_request import GUNICORN, MS, TRACKERS, total, trace_of

# what runs, and the kind whose packages it needs
SERVERS = {
    "asyncio": ([*"-m uvicorn --loop=asyncio --http=h11 --log-level=error --port={port} early_app:asgi".split()], "uvicorn h11"),
    "uvloop": ([*"-m uvicorn --loop=uvloop --http=httptools --log-level=error --port={port} early_app:asgi".split()], "uvicorn uvloop"),
    "aiohttp": ([os.path.join(host.WORKLOADS, "early_app.py"), "{port}"], "aiohttp"),
    "refusing": ([os.path.join(host.WORKLOADS, "early_app.py"), "{port}", "refuse"], "ThreadingHTTPServer"),
    "gthread": ([*GUNICORN, "-k", "gthread", "--threads=2", "--keep-alive=60", "--bind=127.0.0.1:{port}", "early_app:wsgi"], "gthread"),
}
LENGTH = 4000
FRAMINGS = {
    "length": (b"Content-Length: %d" % LENGTH, bytes(LENGTH)),
    "chunks": (b"Transfer-Encoding: chunked", b"7d0\r\n%s\r\n7D0;x=y\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (bytes(2000), bytes(2000))),
}
Asked = collections.namedtuple("Asked", "method path status sent trace ns behind")  # ns: the client's; behind: in one read with a body's rest


def answer_of(s):
    answer = http.client.HTTPResponse(s)
    answer.begin()
    return answer.status, answer.read().decode()


def ask_up(port):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(head(b"/up", 10**6))
        return answer_of(s)


def start(cleanup, python, name):
    argv, kind = SERVERS[name]
    missing = lacking(kind)
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    port = servers.free_port()
    server = servers.Server([python.path, *(argument.format(port=port) for argument in argv)], cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS})
    cleanup.append(server)
    server.port = port

    def up():
        assert server.process.poll() is None, "\n".join(server.log)
        try:
            return ask_up(port)
        except ConnectionRefusedError:
            return None
    host.wait_until(up, 30, f"{name} answers")
    return server


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("name", sorted(SERVERS.keys() - {"refusing"}))
def test_the_next_request_behind_an_early_answer(name, framing, start_agent, cleanup, debian_python):
    server = start(cleanup, debian_python, name)
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    agent.wait_rows("ebpf_probe_health", lambda r: r["tracker"] == "gc_pause" and r["reason"] == "")
    time.sleep(0.3)
    ask_up(server.port)  # from now on the agent knows the port
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port)
    field, body = FRAMINGS[framing]
    asked, connects = [], time.monotonic_ns()
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = s.getsockname()[1]

        def ask(method, more=b"", rest=b"", before=b"", cut=None):
            i = len(asked) + 1
            sent = head(b"/%d" % i, i, method, more) + rest
            begin = connects if i == 1 else time.monotonic_ns()  # the connection's first request waits in the accept queue, too
            s.sendall(before + sent[:cut])
            if cut:
                time.sleep(0.02)
                s.sendall(sent[cut:])
            status, text = answer_of(s)
            assert (status, text) == (413 if method == b"POST" else 200, f"/{i}")
            asked.append(Asked(method.decode(), text, status, len(sent), trace_of(i), time.monotonic_ns() - begin, bool(before)))
        for cut in (None, 2, 5, 40):  # of the next head, the bytes that come with the body's rest
            for n in (0, 1000, len(body) - 1):
                ask(b"POST", field, rest=body[:n])
                time.sleep(0.02)
                ask(b"GET", before=body[n:], cut=cut)
                ask(b"GET")
    agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == own, n=len(asked))
    agent.stop()
    rows = agent.select("ebpf_request", lambda r: r["peer_port"] == own)
    assert [Asked(*(row[name] for name in ("method", "path", "status", "bytes_in", "trace_id")), None, None) for row in rows] == [
        one._replace(ns=None, behind=None) for one in asked], rows
    for i, (row, one) in enumerate(zip(rows, asked), 1):
        assert total(row) == row["duration_ns"] <= one.ns + MS and row["connection_request"] == i and row["end_by"] == "length", (row, one)
        assert ("arrival" in row["not_measured"]) == (row["queue_ns"] is None) == one.behind, (row, one)
        assert not one.behind or row["queue_depth"] is None, (row, one)
        assert "pipelined" not in row["not_measured"], row
    assert not unfollowed(agent)
    counts.check(agent)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_next_request_behind_a_refused_expectation(framing, start_agent, cleanup, debian_python):
    """The body is not sent, and the connection goes on after a pause, which is no request's time."""
    server = start(cleanup, debian_python, "refusing")
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    agent.wait_rows("ebpf_probe_health", lambda r: r["tracker"] == "request" and r["host_pid"] == server.pid)
    ask_up(server.port)
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port)
    asked = []
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        own, connects = s.getsockname()[1], time.monotonic_ns()
        for i in range(1, 41):
            refused = i % 4 == 1
            sent = head(b"/%d" % i, i, b"POST" if refused else b"GET", FRAMINGS[framing][0] + b"\r\nExpect: 100-continue" if refused else b"")
            begin = connects if i == 1 else time.monotonic_ns()
            s.sendall(sent)
            assert answer_of(s) == (417 if refused else 200, f"/{i}")
            asked.append((f"/{i}", 417 if refused else 200, len(sent), trace_of(i), time.monotonic_ns() - begin))
            time.sleep(0.02)
    agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == own, n=len(asked))
    agent.stop()
    rows = agent.select("ebpf_request", lambda r: r["peer_port"] == own)
    assert [(row["path"], row["status"], row["bytes_in"], row["trace_id"]) for row in rows] == [one[:-1] for one in asked], rows
    for row, (*_, ns) in zip(rows, asked):
        assert total(row) == row["duration_ns"] <= ns + MS and row["end_by"] == "length" and "pipelined" not in row["not_measured"], (row, ns)
    assert not unfollowed(agent)
    counts.check(agent)


@pytest.mark.parametrize("name", ["aiohttp", "uvloop"])
def test_the_rest_of_a_body_that_was_not_followed(name, start_agent, cleanup, debian_python):
    """Too many chunks in a read, and an early answer: a chunk of the rest has what looks like a body's end, and behind it like a request. It has no
    row, and each later request of the connection is counted."""
    server = start(cleanup, debian_python, name)
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == server.pid and r["tracker"] == "request")
    ask_up(server.port)
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port)
    end, inner, later = b"a\r\n0\r\n\r\n", head(b"/smuggled", 9), 3
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = s.getsockname()[1]
        s.sendall(head(b"/1", 1, b"POST", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 9000)
        assert answer_of(s) == (413, "/1")
        for piece in (b"%x\r\n%s" % (len(end + inner), end), inner, b"\r\n0\r\n\r\n"):
            time.sleep(0.05)
            s.sendall(piece)
        time.sleep(0.05)
        for i in range(2, 2 + later):
            s.sendall(head(b"/%d" % i, i))
            assert answer_of(s) == (200, f"/{i}")
    agent.stop()
    assert [row["path"] for row in agent.rows["ebpf_request"] if row["peer_port"] == own] == ["/1"]
    assert unfollowed(agent) == {"bodies": later}
    counts.check(agent)
