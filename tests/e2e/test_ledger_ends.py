# SPDX-License-Identifier: Apache-2.0
"""Where a request ends, on sockets and with answers that are rare: the truth is the client's own clock and its socket's own name."""
import os
import socket
import struct
import time

import pytest

import counts
import host
import ledger_clients
import servers
from ledger_clients import head, known, receive, rows_of, unfollowed
from test_request import GUNICORN, MS, TRACKERS, total, trace_of
from workloads.odd_ends import KNOWN, LATE, OPEN

IPPROTO_MPTCP = 262


def start(cleanup, python, where):
    server = servers.Server([python.path, os.path.join(host.WORKLOADS, "odd_ends.py"), str(where)])
    cleanup.append(server)
    server.port = int(server.wait_log(r"Listening at: http://127\.0\.0\.1:(\d+)")[0].group(1))
    return server


def connect(where):
    s = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    s.settimeout(20)
    s.connect(where)
    return s


def ask(where, path, i, until):
    """How long the client waited, for `until` bytes or (None) for the connection's end."""
    begin = time.monotonic_ns()
    with connect(where) as s:
        s.sendall(head(path, i))
        if until:
            receive(s, until)
        else:
            while s.recv(1000):
                pass
        return time.monotonic_ns() - begin


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_an_answer_without_a_length_ends_with_the_connection(family, start_agent, cleanup, debian_python, tmp_path):
    """The client waits for the close, as HTTP/1.0 says, whichever thread closes; but not where the answer had a length, or
    the client has gone."""
    where = str(tmp_path / "socket") if family == "unix" else ("127.0.0.1", 0)
    server = start(cleanup, debian_python, where if family == "unix" else socket.IPPROTO_TCP)
    where = where if family == "unix" else ("127.0.0.1", server.port)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)

    def seen(i):
        return agent.select("ebpf_request", lambda r: r["pid"] == server.pid and r["trace_id"] == trace_of(i))
    while not seen(99):  # the process is known from now on
        ask(where, b"/", 99, len(KNOWN))
        time.sleep(0.2)
    late = {1: b"/late", 2: b"/late"} | ({3: b"/late-elsewhere"} if family == "tcp" else {})
    waited = {i: ask(where, path, i, None) for i, path in late.items()}
    soon = {5: ask(where, b"/length", 5, len(KNOWN))} | ({4: ask(where, b"/late", 4, len(OPEN))} if family == "tcp" else {})
    agent.wait_rows("ebpf_request", lambda r: r["pid"] == server.pid and r["trace_id"] in [trace_of(i) for i in (*waited, *soon)],
                    n=len(waited) + len(soon))
    agent.stop()
    for i, client in {**waited, **soon}.items():
        [row] = seen(i)
        why = (i, client, row)
        assert total(row) == row["duration_ns"] and row["status"] == 200 and row["outcome"] == "answered", why
        assert row["duration_ns"] <= client + 1 * MS, why
        assert (row["duration_ns"] >= LATE * 1e9) == (i in waited), why
    for i in (1, 2):
        [row] = seen(i)
        assert row["sleep_ns"] >= LATE * 1e9 - 1 * MS and "work_elsewhere" not in row["not_measured"], row
    if 3 in late:
        [row] = seen(3)
        assert row["other_ns"] >= LATE * 1e9 - 1 * MS and "work_elsewhere" in row["not_measured"], row
    counts.check(agent)


def test_an_answer_that_cannot_be_read_is_an_answer(start_agent, cleanup, debian_python):
    """A head written by sendfile(): no status. The time in which the connection waits for a next request belongs to none, and the client has
    not left before its answer."""
    server = start(cleanup, debian_python, socket.IPPROTO_TCP)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server)
    with connect(("127.0.0.1", server.port)) as s:
        for i in (1, 2):
            begin = time.monotonic_ns()
            s.sendall(head(b"/sendfile", i))
            receive(s, len(KNOWN))
            waited = time.monotonic_ns() - begin
            time.sleep(LATE)
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=3)
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["path"] == "/sendfile"]
    assert [(r["status"], r["bytes_out"], r["outcome"], r["end_by"]) for r in rows] == [
        (None, len(KNOWN), "answered", "next_request"), (None, len(KNOWN), "answered", "close")], rows
    assert all(total(r) == r["duration_ns"] for r in rows)
    assert rows[1]["duration_ns"] <= waited + 1 * MS, (waited, rows[1])
    assert unfollowed(agent)["answers"] >= 2  # unrelated servers of this host count, too
    counts.check(agent)


def test_connections_of_mptcp_are_told_apart(start_agent, cleanup, debian_python):
    """A socket at the address of an earlier one, which ended within a request's body, is a connection of its own."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP).close()
    except OSError as e:
        pytest.skip(f"this kernel has no MPTCP: {e}")
    server = start(cleanup, debian_python, IPPROTO_MPTCP)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server)
    true = {}
    for i in range(1, 61, 3):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as s:
            s.settimeout(20)
            s.connect(("127.0.0.1", server.port))
            for n in (1, 2):
                s.sendall(head(b"/", i + n - 1))
                receive(s, len(KNOWN))
                true[trace_of(i + n - 1)] = (s.getsockname()[1], n, "answered")
            s.sendall(head(b"/", i + 2, b"POST", b"Content-Length: 5000") + b"abc")
            true[trace_of(i + 2)] = (s.getsockname()[1], 3, None)
        time.sleep(0.02)
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=1 + len(true))
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["trace_id"]]
    found = {r["trace_id"]: (r["peer_port"], r["connection_request"], r["outcome"] if true[r["trace_id"]][2] else None) for r in rows}
    assert found == true and len(rows) == len(true)
    assert all(total(r) == r["duration_ns"] for r in rows)
    counts.check(agent)


STREAMS = """
import asyncio, sys
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nok\\r\\n")
    try:
        await reader.read()
    except ConnectionError:
        pass
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print("Listening at:", server.sockets[0].getsockname()[1], file=sys.stderr, flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def test_a_stream_that_the_client_resets_is_not_answered(start_agent, cleanup, debian_python):
    """The server writes nothing more and reads the reset: the request lasts until then, as where the client closes."""
    server = servers.Server([debian_python.path, "-c", STREAMS])
    cleanup.append(server)
    server.port = int(server.wait_log(r"Listening at: (\d+)")[0].group(1))
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    lasted = []
    for i, linger in enumerate([None, None, struct.pack("ii", 1, 0)]):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            begin = time.monotonic_ns()
            s.sendall(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % i)
            s.recv(1000)
            time.sleep(0.3)
            if linger:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        lasted.append(time.monotonic_ns() - begin)
        agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=i + 1)
    agent.stop()
    rows = sorted((r for r in agent.rows["ebpf_request"] if r["server_port"] == server.port), key=lambda r: r["path"])
    for row, ns in zip(rows, lasted, strict=True):
        assert (row["status"], row["outcome"], row["end_by"]) == (200, "client_aborted", "close") and total(row) == row["duration_ns"], row
        assert abs(row["duration_ns"] - ns) < 50 * MS, (row, ns)
    counts.check(agent)


ledger_clients.SERVERS["one_thread"] = [*GUNICORN, "-k", "gthread", "--threads", "1", "request_app:wsgi"]


@pytest.mark.parametrize("name", ["gunicorn_sync", "one_thread"])
def test_a_childs_descriptor_of_a_client_that_has_left(name, start_agent, cleanup, debian_python):
    """The handler forks a child, as a pool of processes does, and its client leaves: the connection lives as long as the child. The thread
    has closed its descriptor, and serves one request at a time."""
    server = ledger_clients.start(cleanup, debian_python, name)
    where = "127.0.0.1", server.port
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    known(agent, server)
    n = 4
    for i in range(n * (n + 1)):
        with connect(where) as s:
            if i % (n + 1):
                s.sendall(head(b"/cpu-20/sleep-5", i + 1, more=b"Connection: close"))
                while s.recv(1000):
                    pass
                continue
            s.sendall(head(b"/fork-15000/sleep-60", i + 1))
            time.sleep(0.02)
        time.sleep(0.1)
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port and r["path"] != "/", n=n * (n + 1))
    agent.stop()
    rows = {r["trace_id"]: r for r in rows_of(agent, server) if r["path"] != "/"}
    assert rows.keys() == {trace_of(i + 1) for i in range(n * (n + 1))}
    for i in range(n * (n + 1)):
        row = rows[trace_of(i + 1)]
        assert (row["model"], row["open_requests"], row["busy_threads"], row["loop_busy_ns"]) == ("thread", 1, 0, 0), (i, row)
        assert total(row) == row["duration_ns"] and row["outcome"] == ("answered" if i % (n + 1) else "client_aborted"), (i, row)
        assert row["cpu_ns"] > 19 * MS if i % (n + 1) else 58 * MS < row["sleep_ns"] < 90 * MS, (i, row)
    counts.check(agent)


@pytest.mark.parametrize("name", ["gunicorn_sync", "one_thread"])
def test_a_request_whose_client_has_reset_before_the_read(name, start_agent, cleanup, debian_python):
    """The only thread is busy; the kernel keeps what came before the reset, and the thread serves it: the row lasts until the thread has closed
    the connection. The thread serves one request at a time."""
    server = ledger_clients.start(cleanup, debian_python, name)
    where = "127.0.0.1", server.port
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    known(agent, server)
    for i in range(1, 16, 3):
        with connect(where) as busy, connect(where) as left, connect(where) as waits:
            busy.sendall(head(b"/sleep-100", i, more=b"Connection: close"))
            time.sleep(0.02)
            left.sendall(head(b"/sleep-60/cpu-20", i + 1))
            left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            time.sleep(0.02)
            left.close()
            waits.sendall(head(b"/sleep-20", i + 2, more=b"Connection: close"))
            for s in busy, waits:
                while s.recv(1000):
                    pass
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port and r["path"] != "/", n=15)
    agent.stop()
    rows = {r["trace_id"]: r for r in rows_of(agent, server) if r["path"] != "/"}
    assert rows.keys() == {trace_of(i) for i in range(1, 16)}
    for i in range(1, 16):
        row, wanted = rows[trace_of(i)], (20, 100, 60)[i % 3]
        assert (row["model"], row["open_requests"], row["busy_threads"], row["loop_busy_ns"]) == ("thread", 1, 0, 0), (i, row)
        assert total(row) == row["duration_ns"] and row["outcome"] == ("client_aborted" if i % 3 == 2 else "answered"), (i, row)
        assert wanted - 0.1 <= row["sleep_ns"] / MS < wanted + 15 and (i % 3 != 2 or row["cpu_ns"] > 19 * MS), (i, row)
        assert row["connection_request"] == 1 and (row["accept_queue_ns"] or 0) + (row["queue_ns"] or 0) >= (60 * MS if i % 3 != 1 else 0), (i, row)
    counts.check(agent)


SLOW = """
import asyncio, sys, time
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    await asyncio.sleep(0.06)
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 9000000\\r\\n\\r\\n" + bytes(9000000))
    time.sleep(0.08)
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print("Listening at:", server.sockets[0].getsockname()[1], file=sys.stderr, flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def test_a_slow_client_takes_nothing_from_what_was_awaited_before(start_agent, cleanup, debian_python):
    """While a part of the answer is left, the loop is busy: that is its own time, and no wait for the client."""
    server = servers.Server([debian_python.path, "-c", SLOW])
    cleanup.append(server)
    server.port = int(server.wait_log(r"Listening at: (\d+)")[0].group(1))
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    for i in range(4):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
            s.connect(("127.0.0.1", server.port))
            s.sendall(head(b"/slow", i + 1))
            time.sleep(0.2)
            while s.recv(1 << 20):
                pass
        agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=i + 1)
    agent.stop()
    for row in (r for r in rows_of(agent, server) if not {"gil", "arrival"} & set(r["not_measured"])):
        assert total(row) == row["duration_ns"], row
        assert 59 * MS < row["await_ns"] < 75 * MS and 79 * MS < row["sleep_ns"] < 90 * MS and 30 * MS < row["client_slow_ns"] < 100 * MS, row
    counts.check(agent)


LINGERS = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print("Listening at:", listener.getsockname()[1], file=sys.stderr, flush=True)
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
dropped = []
while True:
    connection = listener.accept()[0]
    path = connection.recv(1000).split()[1]
    time.sleep(0.02)
    connection.sendall(ANSWER)
    if path == b"/lingers":
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)
        dropped.append(connection)
    else:
        connection.close()
"""


def test_a_request_read_in_a_lingering_close_is_not_open(start_agent, cleanup, debian_python):
    """As Apache closes a kept connection on which a request arrives meanwhile: a row without an answer; the thread goes on to others."""
    server = servers.Server([debian_python.path, "-c", LINGERS])
    cleanup.append(server)
    server.port = int(server.wait_log(r"Listening at: (\d+)")[0].group(1))
    where = "127.0.0.1", server.port
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    known(agent, server)
    with connect(where) as lingering:
        lingering.sendall(head(b"/lingers", 1))
        while lingering.recv(1000):
            pass
        lingering.sendall(head(b"/dropped", 2))
        for i in range(3, 7):
            ask(where, b"/sleeps", i, 1)
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port and r["path"] != "/", n=6)
    agent.stop()
    rows = {r["trace_id"]: r for r in rows_of(agent, server) if r["path"] != "/"}
    assert rows.keys() == {trace_of(i) for i in range(1, 7)}
    for i in range(1, 7):
        row = rows[trace_of(i)]
        assert (row["model"], row["open_requests"], row["busy_threads"], row["loop_busy_ns"]) == ("thread", 1, 0, 0), (i, row)
        assert (row["status"], row["outcome"]) == ((None, "no_answer") if i == 2 else (200, "answered")) and total(row) == row["duration_ns"], row
        assert row["sleep_ns"] > 19 * MS if i != 2 else row["end_time"] <= rows[trace_of(3)]["end_time"], (i, row)
    counts.check(agent)
