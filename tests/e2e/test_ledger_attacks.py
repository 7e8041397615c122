# SPDX-License-Identifier: Apache-2.0
"""The request ledger under attack: floods, misbehaving clients, idle connections. Each request has a row or is counted, no row is untrue,
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
from ledger_clients import head, known, memory_of, rows_of, send, start
from ledger_services import lacking
from test_request import MS, TRACKERS, ask, total, trace_of

FLOOD = os.path.join(ROOT, "build", "tests", "e2e", "http_flood")


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


def uwsgi(cleanup, processes):
    missing = lacking("uWSGI")
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    port, [plugin] = servers.free_port(), sorted(glob.glob("/usr/lib/uwsgi/plugins/python3*_plugin.so"))[:1]
    server = servers.Server(["uwsgi-core", "--plugin", plugin, f"--http11-socket=127.0.0.1:{port}", f"--processes={processes}", "--master",
                             "--module=smallest_app:application", "--disable-logging", "--die-on-term"], cwd="/tmp",
                            env={"PYTHONPATH": host.WORKLOADS})
    cleanup.append(server)
    server.port = port
    server.wait_log("spawned uWSGI worker", processes)
    return server


def test_workers_of_a_server_that_loads_python_as_it_starts(start_agent, cleanup):
    """uWSGI begins beside the agent. Its program has no Python: the master loads one later, and forks its workers before anybody knows."""
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    server = uwsgi(cleanup, 2)

    def both():
        connections = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(2)]  # a worker has one connection at a time
        for c in connections:
            c.request("GET", "/")
        for c in connections:
            c.getresponse().read()
            c.close()
        return len({r["host_pid"] for r in rows_of(agent, server)}) == 2
    host.wait_until(both, 15, f"requests of both workers: {agent.stderr}")


TRACKED = ["gil_wait", "gc_pause", "off_cpu", "tcp_accept", "tcp_connect", "handoff", "loop_stall"]


@pytest.mark.alone
def test_full_speed(start_agent, cleanup, debian_python, capsys):
    """uWSGI answers as fast as this machine lets it, each request for a path of its own, in UNDERSPAN_STORM_SECONDS (10): the profile's totals are the
    client's own, each request is a row, stands in a row's weight, or was counted; no tracker loses anything, and the agent does not grow."""
    seconds, connections = os.environ.get("UNDERSPAN_STORM_SECONDS", "10"), 4
    server = uwsgi(cleanup, connections)
    port = server.port
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
        own, *end = send(server.port, pieces)
        sent.setdefault(own, []).append((case, *end))
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
        case, got, closed = cases[0]
        said, expected = statuses(got), HOSTILE[case][1]
        assert len(rows[own]) <= max(1, len(said)), (case, rows[own], got[:200])
        for row in rows[own]:
            assert row["status"] in said or not said and (row["status"] is None or not closed), (case, row, got[:200])
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


@pytest.mark.parametrize("name, waits", [("http_server", "client_wait_ns"), ("uvicorn_h11", "client_wait_ns"), ("uvicorn_httptools", "client_wait_ns")])
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
