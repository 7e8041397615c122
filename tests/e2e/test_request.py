# SPDX-License-Identifier: Apache-2.0
"""request: requests of known composition, of real servers. The handlers' own clocks (workloads/request_app.py) and the client's are the truth."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
import time

import pytest

import counts
import host
import servers
from agent import PATIENCE

MS = 1_000_000
PARTS = ["accept_queue_ns", "client_wait_ns", "queue_ns", "pool_wait_ns", "cpu_ns", "runq_ns", "throttled_ns", "gil_ns", "gc_own_ns",
         "gc_sibling_ns", "lock_ns", "net_ns", "disk_ns", "fault_ns", "sleep_ns", "pipe_ns", "child_ns", "other_ns", "await_ns",
         "loop_busy_ns", "client_slow_ns"]
TRACKERS = ["request", "gil_wait", "gc_pause"]
GUNICORN = ["-m", "gunicorn", "--bind", "127.0.0.1:0", "--graceful-timeout", "2"]
SERVERS = {
    "http_server": ["request_app.py"],
    "gunicorn_gthread": [*GUNICORN, "-k", "gthread", "--threads", "3", "request_app:wsgi"],
    "gunicorn_sync": [*GUNICORN, "-k", "sync", "request_app:wsgi"],
    "uvicorn_h11": ["-m", "uvicorn", "--port", "0", "--http", "h11", "--loop", "asyncio", "request_app:asgi"],
    "uvicorn_httptools": ["-m", "uvicorn", "--port", "0", "--http", "httptools", "--loop", "uvloop", "request_app:asgi"],
}


def start(cleanup, python, name):
    argv = [os.path.join(host.WORKLOADS, a) if a.endswith(".py") else a for a in SERVERS[name]]
    server = servers.Server([python.path, *argv], cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS})
    cleanup.append(server)
    where = server.wait_log(r"(?:Listening at:|running on) http://127\.0\.0\.1:(\d+)")[0]
    server.port = int(where.group(1))
    return server


def trace_of(i):
    return f"{i:032x}"


def ask(connection, path, i, method="GET", body=None):
    """The answer's truth, with the client's clock."""
    sent = time.monotonic_ns()
    connection.request(method, path, body=body, headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
    answer = connection.getresponse()
    text = answer.read()
    truth = json.loads(text) if text else {}
    return {**truth, "client": time.monotonic_ns() - sent, "status": answer.status, "path": path.split("?")[0], "i": i,
            "method": method}


def total(row):
    return sum(row[p] or 0 for p in PARTS)


def rows_of(agent, server, n):
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=n)
    return {r["trace_id"]: r for r in agent.rows["ebpf_request"] if r["server_port"] == server.port}


def check(row, truth):
    why = (row, truth)
    assert row["path"] == truth["path"] and row["method"] == truth["method"] and row["status"] == truth["status"], why
    assert row["parent_span_id"] == f"{truth['i']:016x}", why
    assert total(row) == row["duration_ns"], why
    assert row["weight"] == 1 and row["outcome"] == "answered", why
    assert row["tid"] == truth["tid"], why
    # the client's clock starts before the first byte arrives and ends after the last byte was written
    assert row["duration_ns"] - row["client_wait_ns"] - row["accept_queue_ns"] <= truth["client"] + 1 * MS, why


def asked(truth, *steps):
    return sum(int(ms) for ms in re.findall(f"(?:{'|'.join(steps)})-(\\d+)", truth["path"])) * MS


def check_parts(row, truth):
    """The handler's clocks see a part of the thread's time between read and last write: time outside is allowed in any part, as is
    time missing in both: a thread's CPU time excludes the hypervisor's and interrupts, the run delay excludes the way from a
    wake-up to the CPU. The agent's work at a switch is CPU time of the thread for the kernel, and of the wait for the agent."""
    why = (row, truth)
    outside = row["duration_ns"] - sum(row[p] for p in ("accept_queue_ns", "client_wait_ns", "queue_ns")) - truth["handler"]
    nobodys = max(0, truth["handler"] - truth["cpu"] - truth["runq"] - asked(truth, "sleep", "await"))
    at_switches = truth["switches"] * 30_000
    assert outside >= -0.1 * MS, why
    # a wake-up is followed by the run queue, which is not sleep
    assert asked(truth, "sleep") - 0.1 * MS <= row["sleep_ns"] <= truth["asleep"] + 0.1 * MS, why
    for found, true in [(row["cpu_ns"] + row["gc_own_ns"], truth["cpu"]), (row["runq_ns"], truth["runq"])]:
        least, most = true * 0.98 - 1 * MS - at_switches, true * 1.02 + outside + nobodys + at_switches + 1 * MS
        assert least <= found <= most, (found, true, outside, nobodys, why)


@pytest.mark.parametrize("name", SERVERS)
def test_each_request_is_a_row_of_its_parts(name, start_agent, cleanup, debian_python):
    server = start(cleanup, debian_python, name)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    first = ask(http.client.HTTPConnection("127.0.0.1", server.port), "/", 1)  # the port is known from now on
    rows_of(agent, server, 1)
    truths = []
    for path in ["/sleep-40?secret=1", "/cpu-30", "/sleep-20/cpu-20", "/", "/sleep-10/cpu-5"]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            for _ in range(2):
                truths.append(ask(connection, path, len(truths) + 2))
    rows = rows_of(agent, server, len(truths) + 1)
    assert set(rows) == {trace_of(t["i"]) for t in [first, *truths]}
    for truth in truths:
        row = rows[trace_of(truth["i"])]
        check(row, truth)
        assert not row["not_measured"], row
        check_parts(row, truth)
    agent.stop()
    assert len([r for r in agent.rows["ebpf_request"] if r["server_port"] == server.port]) == len(truths) + 1
    profile = [r for r in agent.rows["ebpf_request_profile"] if r["server_port"] == server.port]
    assert sum(r["count"] for r in profile) == sum(sum(r["histogram"]) for r in profile) == len(truths) + 1
    for part in PARTS:
        assert sum(r[part] for r in profile) == sum(r[part] or 0 for r in rows.values()), part
    counts.check(agent)


def test_only_chosen_ports_have_rows(start_agent, cleanup, debian_python):
    """Of three servers, one with a connection from before the agent's start; a chosen port is known before the first request."""
    kept, chosen, other = (start(cleanup, debian_python, name) for name in ("http_server", "gunicorn_gthread", "http_server"))
    connection = http.client.HTTPConnection("127.0.0.1", kept.port)
    ask(connection, "/", 1)
    agent = start_agent("--request.min_duration_us=0", f"--request.ports={chosen.port},{kept.port}", trackers=TRACKERS)
    for i in range(2, 5):
        for server in (other, chosen):
            ask(http.client.HTTPConnection("127.0.0.1", server.port), "/sleep-5", i)
        ask(connection, "/sleep-5", i)
    rows = rows_of(agent, chosen, 3)
    assert sorted(rows) == sorted(trace_of(i) for i in range(2, 5)) == sorted(rows_of(agent, kept, 3))
    assert not rows[trace_of(2)]["not_measured"], rows[trace_of(2)]
    agent.stop()
    for table in ("ebpf_request", "ebpf_request_profile"):
        assert {r["server_port"] for r in agent.rows[table]} == {chosen.port, kept.port}
    counts.check(agent)


@pytest.mark.parametrize("name", ["uvicorn_h11", "uvicorn_httptools"])
def test_an_event_loop_awaits_and_is_busy(name, start_agent, cleanup, debian_python):
    """Alone, a request has undivided parts; beside further requests, the time of the busy loop, and the awaited time."""
    server = start(cleanup, debian_python, name)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    ask(http.client.HTTPConnection("127.0.0.1", server.port), "/", 1)
    rows_of(agent, server, 1)
    alone = ask(http.client.HTTPConnection("127.0.0.1", server.port), "/await-50/cpu-20", 2)
    row = rows_of(agent, server, 2)[trace_of(2)]
    check(row, alone)
    assert row["model"] == "loop" and row["open_requests"] == 1, row
    check_parts(row, alone)
    assert 49 * MS <= row["await_ns"] <= alone["handler"] - alone["cpu"] + 5 * MS, (row, alone)

    def one(path, i, after):
        time.sleep(after)
        truths.append(ask(http.client.HTTPConnection("127.0.0.1", server.port), path, i))
    for i in range(3, 33, 3):  # until the machine lets the second run within the first
        truths = []
        threads = [threading.Thread(target=one, args=a)
                   for a in [("/await-400", i, 0), ("/cpu-60", i + 1, 0.1), ("/await-200", i + 2, 0.02)]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        waited, computed = (next(t for t in truths if t["path"] == path) for path in ("/await-400", "/cpu-60"))
        if waited["begin"] < computed["begin"] and computed["end"] < waited["end"]:
            break
    rows = rows_of(agent, server, i + 2)
    for truth in truths:
        row = rows[trace_of(truth["i"])]
        check(row, truth)
        assert row["model"] == "loop", row
    row = rows[trace_of(i)]
    assert row["open_requests"] >= 2, row
    assert computed["cpu"] * 0.98 - 1 * MS <= row["loop_busy_ns"] <= row["duration_ns"] - row["await_ns"], (row, computed)
    # the loop may have awaited all the time except for computations
    assert row["await_ns"] >= 399 * MS - row["loop_busy_ns"] - row["runq_ns"] - row["cpu_ns"], (row, truths)
    agent.stop()
    counts.check(agent)


def exchange(port, *pieces, pause=0.03, until=None):
    """Sends the pieces and returns all received bytes until the server closes, or until `until` is
    included."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.settimeout(10)
        for i, piece in enumerate(pieces):
            if i:
                time.sleep(pause)
            s.sendall(piece)
        got = b""
        while until is None or until not in got:
            more = s.recv(65536)
            if not more:
                break
            got += more
        return got


def waited_for_client(row, paused):
    """The pauses between the bytes. A late thread waits less for the client, and longer for the cause of the delay."""
    held_up = sum(row[p] or 0 for p in ("accept_queue_ns", "queue_ns", "runq_ns", "cpu_ns", "gil_ns", "lock_ns"))
    assert paused - held_up <= row["client_wait_ns"] and row["duration_ns"] >= paused, row


def test_heads_bodies_and_clients_that_leave(start_agent, cleanup, debian_python):
    server = start(cleanup, debian_python, "http_server")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    ask(http.client.HTTPConnection("127.0.0.1", server.port), "/", 1)
    rows_of(agent, server, 1)

    def head(path, i, method="GET", more=""):
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\ntraceparent: 00-{trace_of(i)}-{i:016x}-01\r\n{more}\r\n".encode()
    whole = head("/pieces", 2)
    exchange(server.port, *(whole[i:i + 1] for i in range(9)), whole[9:40], whole[40:], pause=0.01, until=b"}")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as c:
        posted = ask(c, "/post", 3, "POST", b"GET /smuggled HTTP/1.1\r\nHost: y\r\n\r\n" * 1000)
        headed = ask(c, "/head", 4, "HEAD")
        missing = ask(c, "/missing", 5)
    exchange(server.port, head("/slow-body", 6, "POST", "Content-Length: 34\r\n"), b"GET /smuggled HTTP/1.1\r\nH: y\r\n\r\n--",
             pause=0.1, until=b"}")
    exchange(server.port, head("/first", 7) + head("/second", 8), until=b"}HTTP")
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(head("/sleep-600", 9))
        time.sleep(0.3)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port, n=9)
    agent.stop()
    every = [r for r in agent.rows["ebpf_request"] if r["server_port"] == server.port]
    rows = {r["trace_id"]: r for r in every}
    for row in every:
        assert total(row) == row["duration_ns"], row
        assert "smuggled" not in row["path"], row
    assert len(every) == 9, every
    assert rows[trace_of(2)]["path"] == "/pieces"
    waited_for_client(rows[trace_of(2)], 100 * MS)
    assert rows[trace_of(3)]["bytes_in"] > 35000 and rows[trace_of(3)]["path"] == posted["path"]
    assert rows[trace_of(4)]["status"] == headed["status"] and rows[trace_of(4)]["end_by"] == "length"
    assert rows[trace_of(5)]["status"] == missing["status"] == 404
    waited_for_client(rows[trace_of(6)], 100 * MS)
    assert rows[trace_of(7)]["path"] == "/first"
    second = [r for r in every if "pipelined" in r["not_measured"]]
    assert len(second) == 1 and second[0]["status"] == 200, second
    left = rows[trace_of(9)]
    assert left["outcome"] == "client_aborted" and left["sleep_ns"] >= 599 * MS, left
    counts.check(agent)


@pytest.mark.parametrize("name, ended_by", [("http_server", "SIGKILL"), ("http_server", "SIGSEGV"), ("http_server", "SIGTERM"),
                                            ("gunicorn_gthread", "SIGKILL"), ("gunicorn_sync", "SIGKILL"), ("uvicorn_h11", "SIGKILL")])
def test_a_killed_process_keeps_what_its_requests_waited_for(name, ended_by, start_agent, cleanup, debian_python):
    """Out of memory, a supervisor's timeout, a crash: the sockets are closed after the threads have ended, by any of them."""
    step, n = ("await", 3) if name.startswith("uvicorn") else ("sleep", 1 if name == "gunicorn_sync" else 3)
    server = start(cleanup, debian_python, name)
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    known, first = {"not_measured": ["gil"]}, 100
    while "gil" in known["not_measured"]:  # the GIL of a process that was idle is found while it serves its first request
        first += 1
        ask(http.client.HTTPConnection("127.0.0.1", server.port), "/", first)
        known = rows_of(agent, server, first - 100)[trace_of(first)]
    worker = known["host_pid"]
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port))) for _ in range(n)]
        for i, client in enumerate(clients, 2):
            client.request("GET", f"/{step}-5000", headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
        sent = time.monotonic_ns()
        time.sleep(0.5)
        os.kill(worker, signal.Signals[ended_by])
        lasted = time.monotonic_ns() - sent
        rows = rows_of(agent, server, first - 100 + n)
    agent.stop()
    for i in range(2, 2 + n):
        row = rows[trace_of(i)]
        assert (row["path"], row["status"], row["outcome"], row["host_pid"]) == (f"/{step}-5000", None, "no_answer", worker), row
        assert row["end_by"] == ended_by, row
        assert total(row) == row["duration_ns"] and not row["not_measured"], row
        late = sum(row[p] or 0 for p in ("accept_queue_ns", "client_wait_ns", "queue_ns", "runq_ns", "cpu_ns", "gil_ns", "loop_busy_ns"))
        assert row[f"{step}_ns"] >= lasted - late - 50 * MS, (lasted, row)
        assert row["other_ns"] <= row["duration_ns"] - lasted + 50 * MS, (lasted, row)  # the end of the process
    counts.check(agent)


def test_a_process_that_exits_in_a_request(start_agent, cleanup, debian_python):
    server = start(cleanup, debian_python, "http_server")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    ask(http.client.HTTPConnection("127.0.0.1", server.port), "/", 100)
    rows_of(agent, server, 1)  # the process is known
    with pytest.raises(http.client.RemoteDisconnected):
        ask(http.client.HTTPConnection("127.0.0.1", server.port), "/sleep-50/exit-3", 2)
    row = rows_of(agent, server, 2)[trace_of(2)]
    agent.stop()
    assert (row["status"], row["outcome"], row["end_by"]) == (None, "no_answer", "exit") and row["sleep_ns"] >= 50 * MS, row
    counts.check(agent)


STARTS_SLOWLY = """
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
time.sleep(float(sys.argv[1]))
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("listens on", server.server_port, file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
server.serve_forever()
"""


def test_a_request_that_waits_for_its_service_to_start(start_agent, cleanup, debian_python):
    """A service that listens, and then loads for long: the wait is in the accept queue, of the first connection as of all others."""
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    server = servers.Server([debian_python.path, "-c", STARTS_SLOWLY, str(1.5 * PATIENCE)])
    cleanup.append(server)
    server.port = int(server.wait_log(r"listens on (\d+)")[0].group(1))
    truths = [None] * 3

    def client(i):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            truths[i] = ask(connection, f"/{i}", i + 1)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = rows_of(agent, server, 3)
    agent.stop()
    for truth in truths:
        row = rows[trace_of(truth["i"])]
        assert total(row) == row["duration_ns"] and row["not_measured"] == [], row
        assert row["accept_queue_ns"] > 1000 * MS, (row, truth)
        assert abs(row["duration_ns"] - truth["client"]) < 100 * MS, (row, truth)
    counts.check(agent)


EXECS = """
import os, socket, sys, time
def answer(connection):
    connection.sendall(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
    connection.close()
if len(sys.argv) > 1:
    time.sleep(0.1)
    answer(socket.socket(fileno=int(sys.argv[2])))
    listener = socket.socket(fileno=int(sys.argv[1]))
else:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    print("listens on", listener.getsockname()[1], file=sys.stderr, flush=True)
while True:
    connection, _ = listener.accept()
    if b"/exec" not in connection.recv(4096):
        answer(connection)
        continue
    time.sleep(0.1)
    connection.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, __file__, str(listener.fileno()), str(connection.fileno())])
"""


def test_a_request_that_a_new_program_answers(start_agent, cleanup, debian_python, tmp_path):
    """exec() with the connection: no part is invented, and the thread is not counted as busy for ever."""
    (tmp_path / "execs.py").write_text(EXECS)
    server = servers.Server([debian_python.path, str(tmp_path / "execs.py")])
    cleanup.append(server)
    server.port = int(server.wait_log(r"listens on (\d+)")[0].group(1))
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    truths = []
    for i, path in enumerate(("/", "/exec", "/", "/exec", "/"), 1):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            truths.append(ask(connection, path, i))
        rows = rows_of(agent, server, i)
    agent.stop()
    for truth in truths:
        row = rows[trace_of(truth["i"])]
        assert total(row) == row["duration_ns"] and row["status"] == 204, row
        assert row["busy_threads"] in (0, None), row
        if truth["path"] == "/exec":
            assert "work_elsewhere" in row["not_measured"] and row["other_ns"] >= 199 * MS, row
            assert row["net_ns"] == row["runq_ns"] == row["sleep_ns"] == 0, row
        else:
            assert row["other_ns"] < 100 * MS and "work_elsewhere" not in row["not_measured"], row
    counts.check(agent)


def test_a_wait_belongs_to_the_socket_not_to_the_number_of_its_descriptor(start_agent, cleanup, debian_python):
    """The head was read from a descriptor that is closed: its number is that of the connection to a service, and the client is waited for
    under another number."""
    server = servers.Server([debian_python.path, os.path.join(host.WORKLOADS, "reused_descriptor.py")])
    cleanup.append(server)
    port = server.port = int(server.wait_log(r"Listening at: http://127\.0\.0\.1:(\d+)")[0].group(1))
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    waited = {}
    for i, (line, pause) in enumerate([("GET /service-1", 0), ("GET /service-60", 0), ("POST /body-60", 0.06)], 1):
        length = 5 if pause else 0
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(f"{line} HTTP/1.1\r\nHost: x\r\ntraceparent: 00-{trace_of(i)}-{i:016x}-01\r\nContent-Length: {length}\r\n\r\n".encode())
            time.sleep(pause)
            s.sendall(b"hello"[:length])
            waited[trace_of(i)] = int(s.makefile("rb").read().partition(b"\r\n\r\n")[2])
    rows = rows_of(agent, server, 3)
    agent.stop()
    assert rows.keys() == waited.keys()
    for i, part, other in [(2, "net_ns", "client_wait_ns"), (3, "client_wait_ns", "net_ns")]:
        row, truth = rows[trace_of(i)], waited[trace_of(i)]
        assert truth - row["cpu_ns"] - row["runq_ns"] - 1 * MS <= row[part] <= truth + 1 * MS + row["runq_ns"], (row, truth)
        assert (row[other] or 0) < 1 * MS and total(row) == row["duration_ns"] and not row["not_measured"], (row, truth)
    counts.check(agent)


def test_the_peer_with_the_most_time(start_agent, cleanup, debian_python):
    """Of many services: one that many short waits were for, after long ones for others, and in turns with them."""
    server = servers.Server([debian_python.path, os.path.join(host.WORKLOADS, "many_peers.py")])
    late = [servers.LateServer(ms) for ms in (*[12] * 7, *[8] * 5, 2)]
    cleanup += [server, *late]
    server.port = int(server.wait_log(r"running on http://127\.0\.0\.1:(\d+)")[0].group(1))
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    often, others = late[-1].port, [service.port for service in late[:-1]]
    plans = [[*others[:n], *[often] * 40] for n in (4, 7, 12)] + [[port for _ in range(6) for port in (*others[:n], *[often] * 8)] for n in (6, 7)]
    truths = {}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        for i, plan in enumerate(plans, 1):
            truths[trace_of(i)] = ask(connection, "/" + "/".join(map(str, plan)), i)
    rows = rows_of(agent, server, len(plans))
    agent.stop()
    for trace, truth in truths.items():
        row, waited = rows[trace], {int(port): ns for port, ns in truth.items() if port.isdigit()}
        assert max(waited, key=waited.get) == often == row["net_peer_port"], (row, waited)
        # asleep, not awake between the two clocks
        assert 40 * 2 * MS <= row["net_peer_ns"] <= waited[often] + MS, (row, waited)


def test_many_requests_open_at_once(start_agent, cleanup, debian_python):
    """More open requests than free slots for heads: each row has its own head, also on connections that are used again."""
    n, rounds = 700, 2  # of 1,024 slots, shared by chance
    server = start(cleanup, debian_python, "uvicorn_httptools")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    paths = {}
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port))) for _ in range(n)]
        for first in range(1, rounds * n, n):
            for i, client in enumerate(clients, first):
                paths[trace_of(i)] = f"/await-{2000 + i}"
                client.request("GET", paths[trace_of(i)], headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
            for client in clients:
                assert client.getresponse().read()
    rows = rows_of(agent, server, rounds * n)
    agent.stop()
    assert {trace: row["path"] for trace, row in rows.items()} == paths
    assert max(row["open_requests"] for row in rows.values()) > n // 2
    counts.check(agent)


def test_short_requests_are_sampled_and_their_weights_add_up(start_agent, cleanup, debian_python):
    n = 200
    server = start(cleanup, debian_python, "http_server")
    agent = start_agent("--request.rows_per_second=5", trackers=TRACKERS)
    begin = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        truths = [ask(connection, "/", i + 1) for i in range(n)]
        elapsed = time.monotonic() - begin
        ask(connection, "/sleep-30", n + 1)
    agent.wait_rows("ebpf_request", lambda r: r["path"] == "/sleep-30")
    agent.stop()
    rows = [r for r in agent.rows["ebpf_request"] if r["server_port"] == server.port]
    profile = [r for r in agent.rows["ebpf_request_profile"] if r["server_port"] == server.port]
    assert sum(r["count"] for r in profile) == n + 1
    slow = sum(t["client"] >= 20 * MS for t in truths)  # each slow request may be a row by duration
    short = [r for r in rows if r["path"] == "/" and r["duration_ns"] < 20 * MS]
    assert 1 <= len(short) <= 5 * (elapsed + 1) + 2, (len(short), elapsed)
    every = sum(r["weight"] for r in rows if r["path"] == "/")
    # requests skipped since the last sampled row are in the profile only
    assert len(short) <= every <= n, (every, slow)
    if elapsed > 4:
        assert every >= n / 2, (every, elapsed)
    counts.check(agent)
