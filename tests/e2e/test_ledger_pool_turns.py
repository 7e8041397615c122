# SPDX-License-Identifier: Apache-2.0
"""Threads of a pool that go from one request to the next: a head in pieces, requests read together, work for a client that has left."""
import socket
import time

import pytest

import host
import servers
from test_ledger_pools import SERVERS, ask_truths, client, start
from test_request import MS, TRACKERS, total, trace_of


def test_a_head_in_pieces_while_the_pool_works_for_others(start_agent, cleanup, debian_python):
    """waitress hands a request on as a whole: what its thread does before, and its wait for work, are not the request's."""
    port = servers.free_port()
    server = servers.Server([debian_python.path, "-m", "waitress", f"--listen=127.0.0.1:{port}", "--threads=1", "ledger_server_app:wsgi"],
                            cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS, "PEER_PORT": "1"})
    cleanup.append(server)
    server.wait_log("Serving on")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    with socket.create_connection(("127.0.0.1", port)):  # the main thread is seen to wait in poll() without a request
        time.sleep(0.2)
    host.wait_until(lambda: ask_truths(port, 3, 10**6, ["/sleep-1"]) and agent.select("ebpf_request", lambda r: r["server_port"] == port and not {
        "gil", "gc", "work_elsewhere"} & set(r["not_measured"])), 20, "rows")
    for i in range(1, 6):
        with socket.create_connection(("127.0.0.1", port)) as s:
            head = f"GET /sleep-20 HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: 00-{trace_of(i)}-{i:016x}-01\r\n\r\n".encode()
            s.sendall(head[:50])
            time.sleep(0.03)
            ask_truths(port, 1, 100 + i, ["/sleep-5"])
            time.sleep(0.06)
            s.sendall(head[50:])
            while s.recv(65536):
                pass
    for row in agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in map(trace_of, range(1, 6)), n=5):
        assert total(row) == row["duration_ns"] and row["link"] == "write", row
        assert row["client_wait_ns"] > 94 * MS and row["lock_ns"] < 5 * MS and 20 * MS <= row["sleep_ns"] < 25 * MS, row


@pytest.mark.parametrize("name", SERVERS)
def test_pipelined_requests_for_the_pool(name, start_agent, cleanup, debian_python):
    """The second request was not open when the loop handed it on: its await may be a thread's work."""
    server = start(cleanup, debian_python, name, 4)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    host.wait_until(lambda: client(server.port, 1, 10**6, ["/loop/1"]) and agent.select("ebpf_request", lambda r: r["server_port"] == server.port
                                                                                         and not {"gil", "gc"} & set(r["not_measured"])), 20, "rows")
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(b"GET /pool/20 HTTP/1.1\r\nHost: x\r\n\r\nGET /pool/20 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while s.recv(65536):
                pass
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port and "pipelined" in r["not_measured"], n=5)
    for row in rows:
        assert total(row) == row["duration_ns"] and (row["link"] != "same" or "work_elsewhere" in row["not_measured"]), row


WAITS = """
import select, time, waitress
def app(environ, start_response):
    if "poll" in environ["PATH_INFO"]:
        select.select([0], [], [], 0.02)
    else:
        time.sleep(int(environ["PATH_INFO"][1:]) / 1000)
    body = bytes(8_000_000 if environ["QUERY_STRING"] == "big" else 2)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
waitress.serve(app, listen="127.0.0.1:%d", threads=1)
"""


def test_a_busy_pools_thread(start_agent, cleanup, debian_python):
    """A thread that takes work without a sleep: its select() is no loop's. And its work for a client that has left is not told from the next
    request's, which says so."""
    port = servers.free_port()
    server = servers.Server(["/bin/sh", "-c", 'exec sleep 1000 | exec "$0" -c "$1"', debian_python.path, WAITS % port])
    cleanup.append(server)

    def send(i, path):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: 00-{trace_of(i)}-{i:016x}-01\r\n\r\n".encode())
        return s

    def finish(connections):
        for s in connections:
            with s:
                while s.recv(1000):
                    pass
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)

    def known():
        try:
            finish([send(10**6, "/1")])
        except ConnectionRefusedError:
            return False
        return agent.select("ebpf_request", lambda r: r["server_port"] == port and not {"gil", "gc", "work_elsewhere"} & set(r["not_measured"]))
    host.wait_until(known, 20, "rows")
    for i in range(1, 16, 3):
        finish([send(i + n, "/poll") for n in range(3)])
    for i in range(21, 36, 3):
        left = send(i, "/100")
        time.sleep(0.01)
        waiting = [send(i + 1, "/20"), send(i + 2, "/20")]
        time.sleep(0.02)
        left.close()
        finish(waiting)
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in map(trace_of, range(1, 36)), n=30)
    assert {row["trace_id"] for row in rows} == {trace_of(i) for i in range(1, 36) if i not in range(16, 21)}
    for row in rows:
        assert total(row) == row["duration_ns"] and row["outcome"] == ("client_aborted" if row["path"] == "/100" else "answered"), row
        if row["path"] == "/poll":
            assert row["await_ns"] == 0 and 19 * MS < row["other_ns"] < 25 * MS, row
        elif row["path"] == "/20":
            assert 20 * MS <= row["sleep_ns"] < 25 * MS or "work_elsewhere" in row["not_measured"], row


def test_the_next_work_behind_an_answer_that_the_loop_ends(start_agent, cleanup, debian_python):
    """A thread runs three requests without a sleep; the client of the second one takes the answer late, so the main thread writes its rest.
    The third one's work begins behind the second one's."""
    port = servers.free_port()
    cleanup.append(servers.Server(["/bin/sh", "-c", 'exec sleep 1000 | exec "$0" -c "$1"', debian_python.path, WAITS % port]))
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)

    def send(i, path):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: 00-{trace_of(i)}-{i:016x}-01\r\n\r\n".encode())
        return s

    def finish(s):
        with s:
            while s.recv(100_000):
                pass

    def known():
        try:
            finish(send(10**6, "/1"))
        except ConnectionRefusedError:
            return False
        return agent.select("ebpf_request", lambda r: r["server_port"] == port and not {"gil", "gc", "work_elsewhere"} & set(r["not_measured"]))
    host.wait_until(known, 20, "rows")
    for i in range(1, 16, 3):
        first, big, last = send(i, "/30"), send(i + 1, "/40?big"), send(i + 2, "/20")
        finish(first)
        finish(last)
        finish(big)
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in map(trace_of, range(1, 16)), n=15)
    for row in rows:
        slept = int(row["path"][1:]) * MS
        assert total(row) == row["duration_ns"] and row["link"] == "write", row
        assert slept <= row["sleep_ns"] < slept + 5 * MS or "work_elsewhere" in row["not_measured"], row
    assert sum("work_elsewhere" not in row["not_measured"] for row in rows) > 9


TWISTED = """
import select, subprocess
import twisted.internet.reactor as reactor, twisted.python.threadpool as threadpool, twisted.web.server as web, twisted.web.wsgi as wsgi
def app(environ, start_response):
    subprocess.run(["/bin/true"])
    select.select([0], [], [], 0.02)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
pool = threadpool.ThreadPool(1, 1)
reactor.callWhenRunning(pool.start)
reactor.addSystemEventTrigger("after", "shutdown", pool.stop)
reactor.listenTCP(%d, web.Site(wsgi.WSGIResource(reactor, pool, app)), interface="127.0.0.1")
reactor.run()
"""


def test_a_pools_thread_that_waited_for_a_child(start_agent, cleanup, debian_python):
    """The signal of the child's end wakes twisted's loop from the pool's thread, as the end of work does. The select() behind it is the
    handler's all the same."""
    port = servers.free_port()
    cleanup.append(servers.Server(["/bin/sh", "-c", 'exec sleep 1000 | exec "$0" -c "$1"', debian_python.path, TWISTED % port]))
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)

    def ask(i):
        try:
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: 00-{trace_of(i)}-{i:016x}-01\r\n\r\n".encode())
                while s.recv(1000):
                    pass
        except ConnectionRefusedError:
            return False
        return agent.select("ebpf_request", lambda r: r["server_port"] == port and r["link"] == "wake" and not {"gil", "gc"} & set(r["not_measured"]))
    host.wait_until(lambda: ask(10**6), 20, "a linked row")
    for i in range(1, 11):
        ask(i)
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in map(trace_of, range(1, 11)), n=10)
    linked = [row for row in rows if row["link"] == "wake"]
    for row in linked:
        assert total(row) == row["duration_ns"] and row["await_ns"] < MS and 19 * MS < row["other_ns"] < 25 * MS, row
    assert len(linked) > 5 and all("work_elsewhere" in row["not_measured"] for row in rows if row not in linked)
