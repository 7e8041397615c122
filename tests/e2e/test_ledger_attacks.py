# SPDX-License-Identifier: Apache-2.0
"""The request ledger under attack: floods, misbehaving clients and servers. Each request has a row or is counted, no row is untrue,
foreign text harms no terminal, and the agent's memory stays bounded."""
import collections
import glob
import http.client
import itertools
import json
import os
import re
import resource
import socket
import struct
import subprocess
import time

import pytest

import counts
import host
import servers
import test_counts
from agent import ROOT
from ledger_services import lacking
from test_request import GUNICORN, MS, TRACKERS, ask, total, trace_of
from test_request import SERVERS as REQUEST_SERVERS
from workloads.odd_answers import ANSWERS, KEPT, MADE, TUNNELS, UNREADABLE

FLOOD = os.path.join(ROOT, "build", "tests", "e2e", "http_flood")
SERVERS = {
    **REQUEST_SERVERS,
    "waitress": ["-m", "waitress", "--listen=127.0.0.1:0", "request_app:wsgi"],
    "two_workers": [*GUNICORN, "-k", "gthread", "--threads", "4", "--workers", "2", "--keep-alive", "60", "request_app:wsgi"],
    "odd_answers": ["odd_answers.py"],
}


def start(cleanup, python, name):
    argv = [os.path.join(host.WORKLOADS, a) if a.endswith(".py") else a for a in SERVERS[name]]
    server = servers.Server([python.path, *argv], cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS})
    cleanup.append(server)
    where = server.wait_log(r"(?:Listening at:|running on|Serving on) http://(?:127\.0\.0\.1|localhost):(\d+)")[0]
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


def check_text(row):
    assert row["path"].isprintable() and len(row["path"].encode()) <= 256 and row["method"].isalpha() | (row["method"] == ""), row
    assert not row["trace_id"] or int(row["trace_id"], 16), row


def test_a_flood_is_counted_to_the_last_request(start_agent, cleanup, debian_python):
    connections, each = 12, 150
    flooded = [start(cleanup, debian_python, name) for name in ("two_workers", "uvicorn_httptools")]
    port = test_counts.free_port()
    agent = start_agent("--request.profile_interval=1", f"--metrics.listen=127.0.0.1:{port}",
                        trackers=[*TRACKERS, "off_cpu", "tcp_accept", "handoff"])
    for server in flooded:
        known(agent, server)
    before = memory_of(agent)
    floods = [subprocess.Popen([FLOOD, str(s.port), str(connections), str(each)], stdout=subprocess.PIPE, text=True) for s in flooded]
    said = [json.loads(f.communicate(timeout=120)[0]) for f in floods]
    assert memory_of(agent) - before < 24 << 10
    agent.stop()
    for server, flood in zip(flooded, said):
        profile = agent.select("ebpf_request_profile", lambda r: r["server_port"] == server.port)
        assert flood["answers"] == connections * each
        assert sum(r["count"] for r in profile) == sum(sum(r["histogram"]) for r in profile) == flood["answers"] + 1
        # of each request the server's part is within the client's clock, except for work after the last byte was sent
        waits = sum(r["accept_queue_ns"] + r["client_wait_ns"] for r in profile)
        assert sum(r["duration_sum_ns"] for r in profile) - waits <= flood["sum_ns"] + flood["answers"] * MS
        assert sum(r["duration_sum_ns"] for r in profile) == sum(r[c] for r in profile for c in r if c.endswith("_ns") and c not in
                                                                   ("duration_ns", "duration_sum_ns", "min_ns", "max_ns"))
        paths = [r["path"] for r in rows_of(agent, server)]
        assert len(set(paths)) == len(paths), "a request has two rows"
        assert set(paths) <= {f"/{c}-{i}" for c in range(connections) for i in range(1, each + 1)} | {"/"}
    found = counts.check(agent)
    assert found["request"]["lost_state"] == found["request"]["read_fail"] == 0, found["request"]


TRACKED = ["gil_wait", "gc_pause", "off_cpu", "tcp_accept", "tcp_connect", "handoff", "loop_stall"]


@pytest.mark.alone
def test_full_speed(start_agent, cleanup, debian_python, capsys):
    """uWSGI answers as fast as this machine lets it, each request for a path of its own, in UNDERSPAN_STORM_SECONDS (10): the profile's totals are the
    client's own, each request is a row, stands in a row's weight, or was counted; no tracker loses anything, and the agent does not grow."""
    missing = lacking("uWSGI")
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    seconds, connections, port = os.environ.get("UNDERSPAN_STORM_SECONDS", "10"), 4, servers.free_port()
    [plugin] = sorted(glob.glob("/usr/lib/uwsgi/plugins/python3*_plugin.so"))[:1]
    server = servers.Server(["uwsgi-core", "--plugin", plugin, f"--http11-socket=127.0.0.1:{port}", f"--processes={connections}", "--master",
                             "--module=smallest_app:application", "--disable-logging", "--die-on-term"], cwd="/tmp",
                            env={"PYTHONPATH": host.WORKLOADS})
    cleanup.append(server)
    server.port = port
    server.wait_log("spawned uWSGI worker", connections)
    agent = start_agent("--request.profile_interval=1", trackers=["request", *TRACKED])
    known(agent, server)
    before = memory_of(agent)
    said = json.loads(subprocess.check_output([FLOOD, str(port), str(connections), "100000000", seconds], text=True))
    agent.wait_quiet("ebpf_request", 1)
    grown = memory_of(agent) - before
    agent.stop()
    profile = agent.select("ebpf_request_profile", lambda r: r["server_port"] == port)
    rows = rows_of(agent, server)
    with capsys.disabled():
        print(f"{said['answers']} requests in {said['seconds']} s, {len(rows)} rows, the agent grew by {grown} KB", end=" ")
    found = counts.check(agent)
    assert sum(r["count"] for r in profile) == sum(sum(r["histogram"]) for r in profile) == said["answers"] + 1
    assert sum(r["duration_sum_ns"] for r in profile) <= said["sum_ns"] + said["answers"] * MS
    assert found["request"]["seen"] >= said["answers"] + 1
    assert found["request"]["read_fail"] == 0
    # each worker's requests since its last row are in no weight
    assert len(rows) <= said["answers"] + 1 and 0.9 * said["answers"] <= sum(r["weight"] for r in rows) <= said["answers"] + 1
    assert len({r["path"] for r in rows}) == len(rows), "a request has two rows"
    lost = {subject: {c: n for c, n in columns.items() if c.startswith("lost") and n} for subject, columns in found.items()}
    assert not any(lost.values()), lost
    assert grown < 24 << 10


def head(path, i, method=b"GET", more=b"", end=b"\r\n", version=b"HTTP/1.1"):
    lines = [b"%s %s %s" % (method, path, version), b"Host: x", b"traceparent: 00-%032x-%016x-01" % (i, i), *more.splitlines(), b"", b""]
    return end.join(lines)


SMUGGLED = head(b"/smuggled", 999)
BYTES = [head(b"/bytes", 30)[i:i + 1] for i in range(len(head(b"/bytes", 30)))]
# name: the sent bytes, and the expected row where the server answers (None: any, except for /smuggled)
HOSTILE = {
    "megabyte": ([head(b"/megabyte", 1, more=b"X: " + b"a" * 1_000_000)], None),
    "long_path": ([head(b"/" + b"p" * 60_000, 2)], None),
    "garbage": ([bytes(range(256)) * 8], None),
    "binary": ([b"GET\0\1\2 garbage\r\n\r\n"], None),
    "two_lengths": ([head(b"/two", 3, b"POST", b"Content-Length: 5\r\nContent-Length: 40") + b"hello" + SMUGGLED], None),
    "length_and_chunks": ([head(b"/both", 4, b"POST", b"Content-Length: 60\r\nTransfer-Encoding: chunked") + b"0\r\n\r\n" + SMUGGLED], None),
    "odd_chunks": ([head(b"/odd-te", 5, b"POST", b"Transfer-Encoding : chunked\r\nContent-Length: 3") + b"abc"], None),
    "negative": ([head(b"/negative", 6, b"POST", b"Content-Length: -5") + b"abc"], None),
    "endless": ([head(b"/endless", 7, b"POST", b"Content-Length: 99999999999999999999999") + b"abc"], None),
    "absolute": ([head(b"http://evil.example/absolute?q=1", 8)], ("/absolute", 8)),
    "asterisk": ([head(b"*", 9, b"OPTIONS")], ("*", 9)),
    "carriage_returns": ([head(b"/cr", 10, end=b"\r")], None),
    "line_feeds": ([head(b"/lf", 11, end=b"\n")], None),
    "odd_case": ([head(b"/case", 12).replace(b"traceparent", b"TrAcEpArEnT")], ("/case", 12)),
    "odd_trace": ([head(b"/trace", 13).replace(b"00-", b"00-\x1b[2J<b>")], ("/trace", None)),
    "two_traces": ([head(b"/traces", 14, more=b"traceparent: 00-%032x-%016x-01" % (77, 77))], ("/traces", None)),
    "markup": ([head(b"/<script>alert(1)</script>'\"`;--", 15)], ("/<script>alert(1)</script>'\"`;--", 15)),
    "escapes": ([head(b"/\x1b[2J\x1b]0;title\x07", 16)], None),
    "no_utf8": ([head(b"/\xff\xfe\xc3\x28\xf0\x9f", 17)], None),
    "nul": ([head(b"/a\0b", 18)], None),
    "old": ([b"GET /old\r\n\r\n"], None),
    "by_bytes": (BYTES, ("/bytes", 30)),
}


def send(port, pieces):
    """The client's port, and all bytes received until the server closed or was silent for a while."""
    got = b""
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
        except OSError:
            pass
    return own, got


def statuses(got):
    """Of the answers in these bytes, without interim answers."""
    return [s for s in map(int, re.findall(rb"HTTP/1\.[01] (\d{3}) ", got)) if s >= 200]


@pytest.mark.parametrize("name", ["gunicorn_gthread", "uvicorn_h11", "waitress"])
def test_hostile_clients(name, start_agent, cleanup, debian_python):
    server = start(cleanup, debian_python, name)
    beside = start(cleanup, debian_python, "http_server")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server)
    known(agent, beside)
    before, sent, served = memory_of(agent), {}, 0
    for case, (pieces, _) in HOSTILE.items():
        own, got = send(server.port, pieces)
        sent.setdefault(own, []).append((case, got))
        ask(http.client.HTTPConnection("127.0.0.1", beside.port), "/", served + 1)
        served += 1
    # and connections that end at each byte of a request
    cut = head(b"/cut/here", 40, b"POST", b"Content-Length: 4") + b"body"
    ends = {}
    for i in range(len(cut)):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            ends[s.getsockname()[1]] = i
            s.sendall(cut[:i])
            if i % 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    known(agent, server)
    agent.wait_quiet("ebpf_request", 0.7)
    assert memory_of(agent) - before < 16 << 10
    agent.stop()
    rows = collections.defaultdict(list)
    for row in rows_of(agent, server):
        check_text(row)
        assert total(row) == row["duration_ns"], row
        assert "smuggled" not in row["path"] and row["trace_id"] != trace_of(999), row
        rows[row["peer_port"]].append(row)
    for own, cases in sent.items():
        if len(cases) > 1 or own in ends:  # the kernel gave the port twice
            continue
        case, got = cases[0]
        said, expected = statuses(got), HOSTILE[case][1]
        assert len(rows[own]) <= max(1, len(said)), (case, rows[own], got[:200])
        for row in rows[own]:
            assert row["status"] in said or (not said and row["status"] is None), (case, row, got[:200])
        if rows[own] and len(said) == 1 and rows[own][0]["outcome"] == "answered":
            assert rows[own][0]["bytes_out"] == len(got), (case, rows[own], len(got))
        if expected and said and said[0] < 400:
            path, i = expected
            assert [(r["path"], r["trace_id"]) for r in rows[own]] == [(path, trace_of(i) if i else "")], (case, rows[own])
    for own, i in ends.items():
        for row in rows[own] if own not in sent else []:
            assert len(rows[own]) == 1 and row["path"] in ("", "/cut/here") and row["trace_id"] in ("", trace_of(40)), row
            assert row["path"] == "" or i > cut.index(b" HTTP"), row
            assert row["status"] is None or row["status"] >= 200, row
    assert {r["trace_id"] for r in rows_of(agent, beside) if r["trace_id"]} == {trace_of(i + 1) for i in range(served)}
    counts.check(agent)


@pytest.mark.parametrize("name, waits", [("http_server", "client_wait_ns"), ("uvicorn_h11", "await_ns"), ("uvicorn_httptools", "await_ns")])
def test_a_byte_a_second(name, waits, start_agent, cleanup, debian_python):
    """Heads that come so slowly: whole ones are requests that waited for the client, others are no requests with a path or an answer."""
    server = start(cleanup, debian_python, name)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known(agent, server)
    seconds, n = 4, 30
    slow, heads, begun, done, gone = [], [head(b"/slow/%d" % i, 500 + i) for i in range(n)], [], [], set()
    for _ in range(n):
        begun.append(time.monotonic_ns())
        slow.append(socket.create_connection(("127.0.0.1", server.port)))
        slow[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        time.sleep(0.02)  # http.server's accept queue holds five
    ports = [s.getsockname()[1] for s in slow]
    for second in range(seconds):
        for i, s in enumerate(slow):
            s.sendall(heads[i][second:second + 1])
        known(agent, server)  # beside them
        time.sleep(1)
    for i, s in enumerate(slow):
        if i % 3:
            s.sendall(heads[i][seconds:])
            answer = s.recv(65536)
            done.append(time.monotonic_ns())
            assert answer.startswith(b"HTTP/1.1 "), answer
        else:
            done.append(0)
            gone.add(ports[i])
        s.close()
    agent.wait_rows("ebpf_request", lambda r: r["path"].startswith("/slow/"), n=len(slow) - len(gone))
    agent.wait_quiet("ebpf_request", 0.3)
    agent.stop()
    rows = rows_of(agent, server)
    for row in rows:
        assert total(row) == row["duration_ns"], row
    for port in gone:
        left = [r for r in rows if r["peer_port"] == port]
        assert len(left) <= 1 and all((r["path"], r["trace_id"], r["status"]) == ("", "", None) for r in left), left
    for i, port in enumerate(ports):
        if port in gone:
            continue
        [row] = [r for r in rows if r["peer_port"] == port]
        assert (row["path"], row["trace_id"]) == (f"/slow/{i}", trace_of(500 + i)) and row["status"] >= 200, row
        assert row[waits] > (seconds - 0.1) * 1000 * MS, row
        assert abs(row["duration_ns"] - (done[i] - begun[i])) < 200 * MS, (row, done[i] - begun[i])
    counts.check(agent)


def test_idle_connections_cost_little(start_agent, cleanup, debian_python):
    """20,000 silent connections, some after a request: no row for silence, and complete rows for the requests."""
    clients, each, every = 2, 10_000, 100  # of a process; some machines allow it 20,000 descriptors
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= each + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cleanup.append(type("", (), {"kill": lambda self: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))})())
    crowded = [start(cleanup, debian_python, "uvicorn_httptools") for _ in range(clients)]
    port = test_counts.free_port()
    agent = start_agent("--request.min_duration_us=0", f"--metrics.listen=127.0.0.1:{port}", trackers=TRACKERS)
    for server in crowded:
        known(agent, server)
    before, idle, beside = memory_of(agent), [], itertools.count(1)
    for n, server in enumerate(crowded, 1):
        argv = [debian_python.path, os.path.join(host.WORKLOADS, "idle_clients.py"), *map(str, (server.port, each, every, 10_000 * n))]
        idle.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        cleanup.append(idle[-1])
    for process in idle:
        assert process.stdout.readline() == f"{each // every}\n"
    for server in crowded:
        for i in itertools.islice(beside, 20):
            ask(http.client.HTTPConnection("127.0.0.1", server.port), "/", i)
        agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=1 + each // every + 20)
    page = test_counts.get(port, "/metrics")[2]
    assert f'underspan_request_open{{service="python3",port="{crowded[0].port}"}} 0' in page or "request_open" in page
    assert memory_of(agent) - before < 16 << 10
    for process in idle:
        process.communicate("\n", timeout=60)
    agent.stop()
    for n, server in enumerate(crowded, 1):
        rows = rows_of(agent, server)
        wanted = [trace_of(10_000 * n + i) for i in range(each // every)] + [trace_of(20 * (n - 1) + i) for i in range(1, 21)]
        assert sorted(r["trace_id"] for r in rows if r["trace_id"]) == sorted(wanted)
        assert len(rows) == len(wanted) + 1
    counts.check(agent)


def receive(s, n):
    got = b""
    while len(got) < n:
        more = s.recv(65536)
        assert more, got
        got += more
    return got


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
        for name, (pieces, _, _, _) in KEPT.items():
            s.sendall(b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name.encode())
            assert receive(s, len(b"".join(pieces))) == b"".join(pieces)
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
