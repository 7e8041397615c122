# SPDX-License-Identifier: Apache-2.0
"""Where a request ends and the next begins: answers and requests of any form of HTTP/1, in any pieces. Each request has one row;
requests that cannot be followed are counted by cause."""
import http.client
import socket
import time

import pytest

import counts
from conftest import GUNICORNS
from ledger_clients import head, known, receive, rows_of, send, start, unfollowed
from servers import Gunicorn, Server
from test_request import MS, TRACKERS, total, trace_of
from workloads.odd_answers import ANSWERS, KEPT, MADE, TUNNELS, UNREADABLE


def test_odd_answers(start_agent, cleanup, debian_python):
    """Each answer ends with the last byte, however split into writes; answers outside of HTTP/1 are counted."""
    server = start(cleanup, debian_python, "odd_answers")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server, "/plain")
    sent = {}
    for name in ANSWERS:
        sent[name] = send(server.port, [b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name.encode()])[1]
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        own = s.getsockname()[1]
        waited = []
        for name, (pieces, _, _, _) in KEPT.items():
            begin = time.monotonic_ns()
            s.sendall(b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name.encode())
            assert receive(s, len(b"".join(pieces))) == b"".join(pieces)
            waited.append(time.monotonic_ns() - begin)
        # before the connection's end
        agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == own, n=len(KEPT))
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        pair = s.getsockname()[1]
        two = ("interim_before", "chunks", "chunks_apart", "head_by_bytes")
        s.sendall(b"".join(b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name.encode() for name in two))
        receive(s, sum(len(b"".join(KEPT[name][0])) for name in two))
        agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == pair, n=len(two))
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=1 + len(ANSWERS) + len(KEPT) + len(two))
    agent.stop()
    rows = rows_of(agent, server)
    for row in rows:
        assert total(row) == row["duration_ns"], row

    def said(row):
        return row["status"], row["bytes_out"], row["end_by"], row["outcome"]

    def wanted(name):
        pieces, status, n, end = KEPT[name]
        return status, n or len(b"".join(pieces)), end, "answered"
    kept = [r for r in rows if r["peer_port"] == own]
    assert [(r["path"][1:], r["connection_request"], *said(r)) for r in kept] == [(name, i + 1, *wanted(name)) for i, name in enumerate(KEPT)]
    # Nagle's algorithm: the second write leaves when the client, which has nothing to send, acknowledges the first
    held = next(i for i, name in enumerate(KEPT) if name == "held_back")
    assert [i for i, row in enumerate(kept) if "nagle" in row["not_measured"]] == [held]
    assert waited[held] - kept[held]["duration_ns"] > 20 * MS, (waited[held], kept[held])
    # the answers to requests read at once, in a single write
    at_once = [r for r in rows if r["peer_port"] == pair]
    assert [said(r) for r in at_once] == [wanted(name) for name in two], at_once
    assert ["pipelined" in r["not_measured"] for r in at_once] == [False, True, True, True]
    odd = [r for r in rows if r["peer_port"] not in (own, pair)]
    assert sorted(r["path"] for r in odd) == sorted(["/plain", *(f"/{name}" for name in ANSWERS)])
    for row in odd:
        name = row["path"][1:]
        assert row["status"] == ANSWERS[name][1], row
        assert row["bytes_out"] == sum(map(len, ANSWERS[name][0])) == len(sent[name]), row
        assert row["outcome"] == ("answered" if sent[name] else "no_answer"), row
    profile = [r for r in agent.rows["ebpf_request_profile"] if r["server_port"] == server.port]
    assert sum(r["count"] for r in profile if r["status_class"] == "5xx") == 3  # escapes, status_600, status_999
    assert unfollowed(agent)["answers"] >= len(UNREADABLE)  # unrelated servers of this host count, too
    counts.check(agent)


def first(method, i, more=b"", path=None):
    return head(path or b"/%d" % i, i, method, more)


INNER = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED, LENGTH = b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(INNER)
LONG = b"Cookie: " + b"c" * 3000 + b"\r\n"
# on one connection, each after the previous answer: the method of the row, and the sent bytes, in separate reads
UNUSUAL = [
    *((method, [first(method.encode(), i)]) for i, method in enumerate(("PROPFIND", "MKCOL", "REPORT", "QUERY", "UNLOCK"), 1)),
    ("other", [first(b"BREW", 6)]),
    ("other", [first(b"m-search_1", 7)]),
    ("other", [first(b"UPDATEREDIRECTREF", 8)]),
    ("PROPFIND", [(whole := first(b"PROPFIND", 9))[:1], whole[1:6], whole[6:12], whole[12:]]),
    ("GET", [b"\r\n" + first(b"GET", 10)]),
    ("GET", [b"\r\n\r\n", first(b"GET", 11)]),
    ("PROPFIND", [b"\r\nPRO", first(b"PROPFIND", 12)[3:]]),
    ("POST", [first(b"POST", 13, CHUNKED), b"%x\r\n" % (2 * len(INNER)), INNER, INNER, b"\r\n0\r\n", b"\r\n"]),
    ("POST", [first(b"POST", 14, CHUNKED) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(INNER), INNER)]),
    ("POST", [(whole := first(b"POST", 15, LENGTH))[:70], whole[70:-9], whole[-9:], INNER]),
    ("POST", [first(b"POST", 16, LONG + LENGTH), INNER]),
    ("POST", [(whole := first(b"POST", 17, LONG + LENGTH))[:2000], whole[2000:] + INNER]),
    ("GET", [first(b"GET", 18, LENGTH), INNER]),
    ("REPORT", [first(b"REPORT", 19, CHUNKED), b"1\r\n", INNER[:1] + b"\r\n0\r\n\r\n"]),
    ("GET", [first(b"GET", 20).replace(b"\r\ntraceparent", b"\r\nX: " + b"x" * 30_000 + b"\r\ntraceparent").replace(b"Host", b"Y: y\r\nHost")
             .replace(b"-01\r\n", b"-01\r\nZ: " + b"z" * 30_000 + b"\r\n")]),
    ("GET", [first(b"GET", 21)]),
    # obs-fold (RFC 9112 5.2): a line continues in the next line
    ("GET", [first(b"GET", 22, b"X: a\r\n Content-Length: 40\r\n\tTransfer-Encoding: chunked")]),
    ("POST", [first(b"POST", 23, LENGTH + b"\r\nX: a\r\n b"), INNER]),
    ("GET", [first(b"GET", 24).replace(b"traceparent:", b"traceparent:\r\n")]),
    ("GET", [first(b"GET", 25)]),
    # many chunks in a read: followed, or too many
    ("POST", [first(b"POST", 26, CHUNKED), (SMALL := b"%x\r\n%s\r\n" % (len(INNER), INNER)) * 600 + b"0\r\n\r\n"]),
    ("POST", [first(b"POST", 27, CHUNKED), b"1\r\nx\r\n" * 9000 + b"0\r\n\r", b"\n"]),
    ("POST", [first(b"POST", 28, CHUNKED), b"1\r\nx\r\n" * 9000, SMALL * 300, b"0\r\n\r\n"]),
    ("GET", [first(b"GET", 29)]),
    # too few bytes to be sure of a request, or of its path, and then more than are kept
    ("GET", [(whole := first(b"GET", 30, LONG))[:1], whole[1:]]),
    ("POST", [(whole := first(b"POST", 31, LONG[:900] + b"\r\n" + LENGTH))[:6], whole[6:], INNER]),
]
# by cause: the sent bytes; nothing behind the first answer has a row
UNFOLLOWED = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", INNER),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\n", b"SM\r\n\r\n", INNER),
    "others": (b"\x00\x01\x02 \xff\r\n\r\n",),
    "CONNECT": (b"CONNECT example.com:443 HTTP/1.1\r\n\r\n", INNER),
    "upgraded": (b"UPGRADE /socket HTTP/1.1\r\n\r\n", INNER),
    "bodies": (b"POST /lengths HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", INNER),
}
# servers differ in whether the length is 1, 12, or none
FOLDED = (b"POST /folded HTTP/1.1\r\nContent-Length: 1\r\n 2\r\n\r\nx", INNER)


def test_unusual_requests(start_agent, cleanup, debian_python):
    """Any method, in any pieces, with any body: one row each; requests without a row are counted by cause."""
    server = start(cleanup, debian_python, "odd_answers")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server, "/plain")
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _, pieces in UNUSUAL:
            for piece in pieces:
                time.sleep(0.01)
                s.sendall(piece)
            assert receive(s, len(MADE)) == MADE
    for pieces in (*UNFOLLOWED.values(), FOLDED):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            for piece in pieces:
                s.sendall(piece)
                receive(s, len(TUNNELS.get(piece.split(b" ")[0], MADE)))
    known(agent, server, "/plain")
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=len(UNUSUAL) + 6)
    agent.wait_quiet("ebpf_request", 0.3)
    agent.stop()
    rows = rows_of(agent, server)
    for row in rows:
        assert total(row) == row["duration_ns"], row
    # newlines in a separate read belong to no request
    found = [(r["method"], r["path"], r["status"], r["bytes_in"] if r["path"] != "/11" else 0) for r in rows if r["path"][1:].isdigit()]
    assert found == [(method, f"/{i}", 201, sum(map(len, pieces)) if i != 11 else 0) for i, (method, pieces) in enumerate(UNUSUAL, 1)]
    for row in rows:
        if row["path"][1:].isdigit():
            i = int(row["path"][1:])
            assert row["trace_id"] == trace_of(i) or "head_split" in row["not_measured"] or i in (22, 23, 24) and not row["trace_id"], row
            assert i in (16, 17, 20, 22, 23, 24) or row["trace_id"], row
    assert "head_split" in next(r for r in rows if r["path"] == "/20")["not_measured"]
    others = sorted((r["method"], r["path"], r["outcome"]) for r in rows if not r["path"][1:].isdigit())
    assert others == [("CONNECT", "", "upgraded"), ("GET", "/plain", "answered"), ("GET", "/plain", "answered"), ("POST", "/folded", "answered"),
                      ("POST", "/lengths", "answered"), ("other", "/socket", "upgraded")]
    assert unfollowed(agent).keys() >= UNFOLLOWED.keys()
    counts.check(agent)


def test_answers_to_head(start_agent, cleanup, debian_python):
    """An answer to HEAD ends with the head, whatever the Content-Length; as does the answer of a pipelined request of unknown method, before
    the next request."""
    server = start(cleanup, debian_python, "odd_answers")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server, "/plain")
    short = len(MADE.partition(b"hello")[0])
    # bytes sent at once, and the bytes of each answer
    sent = [([first(b"HEAD", 1)], [short]), ([first(b"GET", 2)], [len(MADE)]), ([first(b"HEAD", 3), first(b"GET", 4)], [short, len(MADE)]),
            ([first(b"GET", 5), first(b"HEAD", 6)], [len(MADE), short]), ([first(b"GET", 7)], [len(MADE)])]
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        own = s.getsockname()[1]
        for pieces, lengths in sent:
            s.sendall(b"".join(pieces))
            receive(s, sum(lengths))
            time.sleep(0.01)
        agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == own, n=7)
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["peer_port"] == own]
    assert [(r["method"], r["path"], r["status"], r["bytes_out"]) for r in rows] == [
        ("HEAD", "/1", 201, short), ("GET", "/2", 201, len(MADE)), ("HEAD", "/3", 201, short), ("", "", 201, len(MADE)),
        ("GET", "/5", 201, len(MADE)), ("", "", 201, short), ("GET", "/7", 201, len(MADE))], rows
    assert all(total(r) == r["duration_ns"] for r in rows)
    counts.check(agent)


def test_a_request_dropped_by_a_lingering_close_is_not_the_clients_abort(start_agent, cleanup, debian_python):
    """Apache closes kept connections when all of its workers are busy. The client's next request is read after the shutdown, and dropped."""
    server = start(cleanup, debian_python, "lingering_close")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server, "/plain")
    for i in range(1, 4):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(first(b"GET", 0))
            receive(s, len(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
            time.sleep(0.07)
            s.sendall(first(b"GET", i))
            assert s.recv(100) == b""
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=1 + 2 * 3)
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["path"] != "/plain"]
    assert sorted((r["path"], r["outcome"], r["end_by"], r["connection_request"]) for r in rows) == sorted(
        [("/0", "answered", "length", 1)] * 3 + [(f"/{i}", "no_answer", "close", 2) for i in range(1, 4)]), rows
    assert all(total(r) == r["duration_ns"] for r in rows)
    counts.check(agent)


TURNS = """
import queue, socket, sys, threading, time
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
listener = socket.create_server(("127.0.0.1", 0))
print("Listening at:", listener.getsockname()[1], file=sys.stderr, flush=True)
turns = queue.Queue(), queue.Queue()
def other():
    while True:
        turns[0].get().sendall(ANSWER)
        turns[1].put(0)
threading.Thread(target=other, daemon=True).start()
while True:
    connection = listener.accept()[0]
    n = connection.recv(65536).count(b"GET ")
    if n == 1:
        time.sleep(0.05)
        connection.sendall(ANSWER)
        connection.close()
        continue
    connection.sendall(ANSWER)
    turns[0].put(connection)
    turns[1].get()
    between = listener.accept()[0]
    between.recv(65536)
    time.sleep(0.1)
    between.sendall(ANSWER)
    connection.sendall(ANSWER)
    connection.close()
"""


def test_pipelined_requests_of_several_threads(start_agent, cleanup, debian_python):
    """As cheroot's, whose threads take a connection in turn: what a thread has done for others since its last answer there is no request's of
    the connection. Requests without a row are counted."""
    server = Server([debian_python.path, "-c", TURNS])
    cleanup.append(server)
    server.port = int(server.wait_log(r"Listening at: (\d+)")[0].group(1))
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    known(agent, server, "/plain")
    with socket.create_connection(("127.0.0.1", server.port)) as s, socket.create_connection(("127.0.0.1", server.port)) as between:
        s.sendall(first(b"GET", 1) + first(b"GET", 2) + first(b"GET", 3))
        receive(s, 3)
        between.sendall(first(b"GET", 4))
        while s.recv(1000):
            pass
    known(agent, server, "/plain")
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port and r["path"] == "/4")
    agent.wait_quiet("ebpf_request", 0.3)
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["path"] != "/plain"]
    assert sorted(r["path"] for r in rows) == ["/1", "/4"], rows
    assert unfollowed(agent)["pipelined"] >= 2
    assert rows[0]["duration_ns"] < 50 * MS < 99 * MS < rows[1]["sleep_ns"], rows
    counts.check(agent)


@pytest.mark.parametrize("path", [b"/pieces", b"/empty", b"/writes"])
def test_a_connection_whose_bodies_have_no_end_is_counted(path, start_agent, cleanup, debian_python):
    """Of a request read into several buffers, the head's end is not seen, and what follows is taken for its body. Each answer without a row
    is counted, although its first piece has only a part of the status line."""
    server, requests = start(cleanup, debian_python, "small_pieces"), 6
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    known(agent, server)
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        own = s.getsockname()[1]
        for i in range(1, requests + 1):
            s.sendall(head(path, i))
            receive(s, len(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == own and r["server_port"] == server.port)
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["peer_port"] == own]
    counted = unfollowed(agent).get("bodies", 0)
    assert all(total(r) == r["duration_ns"] and r["status"] == 200 for r in rows), rows
    assert len(rows) + counted >= requests, (len(rows), counted, rows)
    counts.check(agent)


@pytest.mark.parametrize("generation", GUNICORNS, ids=str)
def test_a_thread_that_waits_in_an_epoll_instance_of_its_own_is_no_loop(generation, start_agent, cleanup, debian_python, tmp_path):
    """gthread since 24: between two requests of one connection, its thread waits in epoll_wait() for the first bytes of another."""
    gunicorn = Gunicorn(debian_python, generation, str(tmp_path), "--keep-alive", "30", threads=1)
    cleanup.append(gunicorn)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    gunicorn.port = gunicorn.address[1]
    known(agent, gunicorn)
    kept = http.client.HTTPConnection(*gunicorn.address)
    for i in range(3):
        for path in (f"/before-{i}", f"/after-{i}"):
            kept.request("GET", path)
            kept.getresponse().read()
            if path.startswith("/before"):
                with socket.create_connection(gunicorn.address) as s:
                    time.sleep(0.05)
                    s.sendall(f"GET /late-{i} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                    assert s.recv(4096).startswith(b"HTTP/1.1 200")
    kept.close()
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == gunicorn.port, n=10)
    agent.stop()
    rows = {r["path"]: r for r in rows_of(agent, gunicorn)}
    for name in (f"/{when}-{i}" for when in ("before", "late", "after") for i in range(3)):
        row = rows[name]
        assert (row["model"], row["link"], "work_elsewhere" in row["not_measured"]) == ("thread", "same", False), row
        assert not name.startswith("/late") or 40 * MS < row["client_wait_ns"] < row["duration_ns"], row


@pytest.mark.parametrize("n", [20, 300, 700])
def test_many_answers_in_one_write(n, start_agent, cleanup, debian_python):
    """Requests read together, and answered together as twisted does: up to some five hundred have rows, of more the loss is told."""
    server = start(cleanup, debian_python, "odd_answers")
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    known(agent, server)
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        own = s.getsockname()[1]
        s.sendall(b"GET / HTTP/1.1\r\n\r\n" * n)
        receive(s, n * len(MADE))
        agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == own, n=min(n, 500))
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["peer_port"] == own]
    assert all(total(r) == r["duration_ns"] and r["status"] == 201 for r in rows), rows
    assert ["pipelined" in r["not_measured"] for r in rows] == [False] + [True] * (len(rows) - 1)
    counted = unfollowed(agent).get("pipelined", 0)
    assert (len(rows), counted) == (n, 0) if n < 500 else len(rows) < n and counted, (len(rows), counted)
    counts.check(agent)


def test_the_rest_of_a_head_is_no_request(start_agent, cleanup, debian_python):
    """A server with a buffer of 8 KB answers what it has read, and then reads on behind the first byte of a request."""
    server = start(cleanup, debian_python, "buffered")
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=TRACKERS)
    known(agent, server)
    one = b"GET /%s HTTP/1.1\r\n\r\n"
    length = 8191 // 64
    paths = [b"%0*d" % (length - len(one) + 2, i) for i in range(63)]
    paths.append(b"9" * (8191 - 63 * length - len(one) + 2))
    data = b"".join(one % path for path in paths)
    assert len(data) == 8191
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        own = s.getsockname()[1]
        s.sendall(data + one % b"behind")
        receive(s, 65 * len(b"HTTP/1.1 204 No Content\r\n\r\n"))
        s.sendall(one % b"last")
        receive(s, len(b"HTTP/1.1 204 No Content\r\n\r\n"))
        agent.wait_rows("ebpf_request", lambda r: r["peer_port"] == own and r["path"] == "/last")
    agent.stop()
    rows = [r for r in rows_of(agent, server) if r["peer_port"] == own]
    assert {r["method"] for r in rows if r["path"]} == {"GET"} and not [r for r in rows if r["method"] and r["method"] != "GET"], rows
    assert len(rows) + unfollowed(agent).get("pipelined", 0) == 66, (len(rows), unfollowed(agent))
    counts.check(agent)
