# SPDX-License-Identifier: Apache-2.0
"""Requests handed by a loop to a thread of the pool: a row names the thread that ran the endpoint, or tells that the work was elsewhere.
Never a wrong thread, never the pool's work as an unexplained wait. The answer's head is the truth, with the thread's id."""
import collections
import concurrent.futures
import http.client
import json
import os
import socket
import time

import pytest

import host
import servers
from ledger_services import lacking
from test_request import MS, TRACKERS, total, trace_of

SERVERS = {"asyncio": ["--loop=asyncio", "--http=h11"], "uvloop": ["--loop=uvloop", "--http=httptools"]}
# concurrent clients, requests of each, threads of the pool, the paths
LOADS = {
    "alone": (1, 40, 4, ["/pool/5"]),
    "several calls": (1, 40, 4, ["/calls/5"]),
    "a thread of its own": (1, 40, 4, ["/own/5"]),
    "as many as threads": (4, 60, 4, ["/pool/3"]),
    "more than threads": (8, 60, 4, ["/pool/3", "/pool/1"]),
    "very short": (6, 150, 4, ["/pool/0"]),
    "beside coroutines": (6, 60, 4, ["/pool/4", "/loop/3", "/loop/0"]),
    "twice": (4, 40, 4, ["/twice/3", "/pool/2"]),
    "twice, without a pause": (4, 250, 4, ["/twice/3", "/pool/2"]),
    "one queue, alone": (1, 40, 4, ["/shared/5"]),
    "one queue": (8, 100, 8, ["/shared/1", "/shared/3", "/shared/1"]),
    "fewer than threads": (4, 50, 40, ["/pool/13", "/pool/29", "/pool/7", "/pool/21", "/pool/34", "/pool/17", "/pool/26"]),
    "of each kind": (6, 60, 40, ["/pool/3", "/pool/8", "/loop/5", "/twice/4", "/pool/19", "/loop/0", "/pool/13"]),
}
LEAST_LINKED = {"alone": 0.9, "several calls": 0.6, "fewer than threads": 0.1}
LEAST_LINKED_BY_TASKS = {"a thread of its own": 0.6}  # uvloop writes the answer when the thread has ended


def client(port, n, first, paths):
    """{trace: (path, tid, ns)} of n requests on one connection."""
    truths, connection = {}, http.client.HTTPConnection("127.0.0.1", port)
    for i in range(first, first + n):
        path = paths[i % len(paths)]
        connection.request("GET", path, headers={"traceparent": f"00-{trace_of(i)}-{i + 1:016x}-01"})
        answer = connection.getresponse()
        answer.read()
        truths[trace_of(i)] = path, int(answer.headers["X-Tid"]), int(answer.headers["X-Ns"])
    connection.close()
    return truths


def start(cleanup, python, name, threads):
    missing = lacking("FastAPI sync endpoints, uvloop")
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    port = servers.free_port()
    server = servers.Server([python.path, "-m", "uvicorn", f"--port={port}", "--log-level=error", *SERVERS[name], "pool_app:app"], cwd="/tmp",
                            env={"PYTHONPATH": host.WORKLOADS, "POOL_THREADS": str(threads)})
    cleanup.append(server)
    server.port = port

    def up():
        try:
            return client(port, 1, 10**6, ["/loop/0"])
        except ConnectionRefusedError:
            assert server.process.poll() is None, "\n".join(server.log)
    host.wait_until(up, 30, "uvicorn answers")
    return server


def watched(start_agent, server):
    """An agent that knows the server's process."""
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == server.pid and r["tracker"] == "gc_pause")
    time.sleep(0.3)
    return agent


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", SERVERS)
def test_a_row_names_the_thread_or_says_that_it_cannot(name, load, start_agent, cleanup, debian_python):
    clients, each, threads, paths = LOADS[load]
    server = start(cleanup, debian_python, name, threads)
    agent = watched(start_agent, server)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        parts = [pool.submit(client, server.port, each, 1 + n * 10_000, paths) for n in range(clients)]
        truths = {trace: truth for part in parts for trace, truth in part.result().items()}
    rows = agent.wait_rows("ebpf_request", lambda r: r["host_pid"] == server.pid and r["trace_id"] in truths, n=len(truths))
    assert len(rows) == len(truths), f"{len(rows)} rows of {len(truths)} requests"
    linked, wrong, silent = 0, [], []
    for row in rows:
        path, tid, ns = truths[row["trace_id"]]
        assert total(row) == row["duration_ns"] and row["path"] == path, row
        if path.startswith("/loop"):
            wrong += [row] * (row["link"] != "same" or row["tid"] != tid)
        elif row["link"] == "wake":
            linked += 1
            wrong += [(row, truths[row["trace_id"]])] * (row["tid"] != tid)
        elif row["await_ns"] > MS and "work_elsewhere" not in row["not_measured"]:
            silent.append((row, ns))
    # the pool's threads are not counted: known is a loop without another request, or one that had not handed on any yet
    busy = collections.Counter(row["busy_threads"] for row in rows)
    assert set(busy) <= {None, 0, 1} and busy[1] <= clients and (clients == 1 or busy[None]), busy
    asked = sum(not path.startswith("/loop") for path, _, _ in truths.values())
    print(f"{name}, {load}: {asked} of the pool, {linked} linked, {len(wrong)} to a wrong thread, {len(silent)} neither linked nor marked")
    if os.environ.get("POOLS_SHOW"):
        print(wrong[:2], silent[:2])
    assert not wrong, (len(wrong), wrong[0])
    assert not silent, (len(silent), silent[0])
    assert linked >= LEAST_LINKED.get(load, 0) * asked
    assert name == "uvloop" or linked >= LEAST_LINKED_BY_TASKS.get(load, 0) * asked


@pytest.mark.parametrize("path", ["/blocked", "/own_blocked"])
@pytest.mark.parametrize("name", SERVERS)
def test_a_loop_that_blocks_between_two_calls_of_its_pool(name, path, start_agent, cleanup, debian_python):
    """The loop sleeps after the first call, whose thread has ended it unseen: the time is the loop's, asleep, and no computation of the pool's thread.
    On which lock a thread made for the request waits for work is not known at first: beside other work some rows are still that thread's."""
    server = start(cleanup, debian_python, name, 4)
    agent = watched(start_agent, server)
    client(server.port, 2, 10**6, [path + "/0"])  # the thread exists, and its lock is known
    truths = client(server.port, 30, 1, [path + "/20"])
    rows = agent.wait_rows("ebpf_request", lambda r: r["host_pid"] == server.pid and r["trace_id"] in truths, n=len(truths))
    assert len(rows) == len(truths)
    wrong = [row for row in rows if row["link"] != "same" or row["tid"] != truths[row["trace_id"]][1] or row["sleep_ns"] < 20 * MS]
    print(f"{name}: {len(wrong)} of {len(rows)} rows of a thread that did not do the work")
    assert len(wrong) <= (len(rows) // 3 if path == "/own_blocked" else 0), (len(wrong), wrong[0])
    assert all(total(row) == row["duration_ns"] and (row in wrong or "work_elsewhere" in row["not_measured"]) for row in rows), rows


def test_the_first_request_of_a_loop(start_agent, cleanup, debian_python):
    """Nobody has seen the loop's thread wait for several connections, before the request or for the pool's thread, which has worked meanwhile."""
    loops = 12
    server = servers.Server([debian_python.path, os.path.join(host.WORKLOADS, "young_loops.py"), str(loops)], cwd="/tmp")
    cleanup.append(server)
    ports = [int(line.group(1)) for line in server.wait_log(r"running on http://127\.0\.0\.1:(\d+)", loops)]
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    truths = {}
    for i, port in enumerate(ports, 1):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(f"GET /first HTTP/1.1\r\nHost: x\r\ntraceparent: 00-{trace_of(i)}-{i + 1:016x}-01\r\n\r\n".encode())
            answer = b"".join(iter(lambda: s.recv(1000), b""))
        truths[trace_of(i)] = int(answer.rpartition(b"\r\n")[2])
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] in ports and r["trace_id"] in truths, n=loops)
    assert len(rows) == loops
    wrong = [row for row in rows if row["tid"] != truths[row["trace_id"]] and "work_elsewhere" not in row["not_measured"]]
    threads = [row for row in rows if row["model"] == "thread"]
    print(f"{loops} rows, {len(wrong)} of a wrong thread without a mark, {len(threads)} as if of a server with threads")
    assert not wrong and not threads, (len(wrong), len(threads), (wrong or threads)[0])


def test_a_loop_whose_plain_requests_look_like_a_threads(start_agent, cleanup, debian_python):
    """tornado reads a new connection before it waits for it: of plain requests nothing shows the loop. Those handed to the pool afterwards
    have their thread all the same, from the first one on."""
    server = servers.Server([debian_python.path, os.path.join(host.WORKLOADS, "tornado_pool.py")], cwd="/tmp")
    cleanup.append(server)
    [port] = [int(line.group(1)) for line in server.wait_log(r"running on http://127\.0\.0\.1:(\d+)", 1)]
    agent, truths = watched(start_agent, server), {}
    for i, path in enumerate(["/plain"] * 6 + ["/pool"] * 8, 1):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", path, headers={"traceparent": f"00-{trace_of(i)}-{i + 1:016x}-01"})
        truths[trace_of(i)] = path, int(connection.getresponse().read())
        connection.close()
    rows = agent.wait_rows("ebpf_request", lambda r: r["host_pid"] == server.pid and r["trace_id"] in truths, n=len(truths))
    assert len(rows) == len(truths)
    plain = [row for row in rows if row["path"] == "/plain"]
    assert {row["model"] for row in plain[1:]} == {"thread"}, "tornado shows its loop now: this test is of no use"
    found = collections.Counter((row["path"], row["link"], row["tid"] == truths[row["trace_id"]][1], *row["not_measured"]) for row in rows[1:])
    print(found)
    assert found == {("/plain", "same", True): 5, ("/pool", "wake", True): 8}, found


@pytest.mark.parametrize("name", SERVERS)
def test_a_body_that_comes_while_the_thread_works(name, start_agent, cleanup, debian_python):
    """The loop reads the rest of a body that the endpoint does not wait for."""
    server, tids = start(cleanup, debian_python, name, 4), {}
    agent = watched(start_agent, server)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for i in range(1, 31):
        connection.putrequest("POST", "/unread/20")
        connection.putheader("traceparent", f"00-{trace_of(i)}-{i:016x}-01")
        connection.putheader("Content-Length", "2000")
        connection.endheaders()
        for _ in range(2):
            time.sleep(0.004)
            connection.send(bytes(1000))
        answer = connection.getresponse()
        answer.read()
        tids[trace_of(i)] = int(answer.headers["X-Tid"])
    connection.close()
    rows = agent.wait_rows("ebpf_request", lambda r: r["host_pid"] == server.pid and r["trace_id"] in tids, n=len(tids))
    linked = [row for row in rows if row["link"] == "wake"]
    print(f"{name}: {len(linked)} of {len(rows)} linked")
    for row in rows:
        assert total(row) == row["duration_ns"] and row["bytes_in"] > 2000, row
        assert row in linked or "work_elsewhere" in row["not_measured"], row
    for row in linked:
        assert row["tid"] == tids[row["trace_id"]] and row["sleep_ns"] + row["runq_ns"] >= 20 * MS, row
    assert len(linked) > 0.8 * len(rows)


def ask_in_parts(port, n, first):
    """{trace: truth} of n requests on one connection."""
    truths, connection = {}, http.client.HTTPConnection("127.0.0.1", port)
    for i in range(first, first + n):
        connection.request("GET", "/parts/10", headers={"traceparent": f"00-{trace_of(i)}-{i + 1:016x}-01"})
        truths[trace_of(i)] = json.loads(connection.getresponse().read())
    connection.close()
    return truths


@pytest.mark.parametrize("clients", [2, 8])
@pytest.mark.parametrize("name", SERVERS)
def test_a_thread_that_works_on_behind_the_answers_begin(name, clients, start_agent, cleanup, debian_python):
    """The thread tells the loop to write the begin, which looks like the work's end, and works on: the row says so."""
    server = start(cleanup, debian_python, name, 8)
    agent = watched(start_agent, server)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        parts = [pool.submit(ask_in_parts, server.port, 60, 1 + n * 10_000) for n in range(clients)]
        truths = {trace: truth for part in parts for trace, truth in part.result().items()}
    rows = agent.wait_rows("ebpf_request", lambda r: r["host_pid"] == server.pid and r["trace_id"] in truths, n=len(truths))
    linked = [row for row in rows if row["link"] == "wake"]
    print(f"{name}, {clients} clients: {len(linked)} of {len(rows)} linked")
    for row in rows:
        truth = truths[row["trace_id"]]
        assert total(row) == row["duration_ns"], row
        assert truth["behind"] < 2 * MS or "work_elsewhere" in row["not_measured"], (row, truth)
        assert row not in linked or row["tid"] == truth["tid"], (row, truth)


@pytest.mark.parametrize("clients, each", [(1, 30), (3, 150)])
@pytest.mark.parametrize("name", SERVERS)
def test_the_peer_of_a_pools_work(name, clients, each, start_agent, cleanup, debian_python):
    """Each endpoint waits for one of two peers, or for none: the row of a known thread has this peer, with the time; no row has another request's.
    The thread closes the socket at once: its end of the wait may be noticed later."""
    server = start(cleanup, debian_python, name, 4)
    late = [servers.LateServer(ms) for ms in (30, 12)]
    cleanup += late
    peers = {peer.port: peer.ms for peer in late}
    paths = [*(f"/peer/{port}" for port in peers), "/pool/2"]
    agent = watched(start_agent, server)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        parts = [pool.submit(client, server.port, each, 1 + n * 10_000, paths[n:] + paths[:n]) for n in range(clients)]
        truths = {trace: truth for part in parts for trace, truth in part.result().items()}
    rows = agent.wait_rows("ebpf_request", lambda r: r["host_pid"] == server.pid and r["trace_id"] in truths, n=len(truths))
    linked = [row for row in rows if row["link"] == "wake"]
    print(f"{name}, {clients} clients: {len(linked)} of {len(rows)} linked")
    for row in rows:
        port = int(truths[row["trace_id"]][0].split("/")[2])
        if not row["net_peer_port"]:
            assert row["net_peer_ns"] == 0 and (row not in linked or port not in peers), (port, row)
            continue
        # the connect and the byte are of the same peer; short waits are not attributed
        assert row["net_peer_port"] == port and row["net_peer_ip"] == "::ffff:127.0.0.1", (port, row)
        # the peer's time goes on while the thread, connected, is not asleep
        awake = sum(row[part + "_ns"] or 0 for part in ("cpu", "runq", "throttled", "gil", "gc_sibling", "lock", "fault"))
        assert (peers[port] - 1) * MS - awake < row["net_peer_ns"] <= row["net_ns"] < row["net_peer_ns"] + MS, row
    assert clients > 1 or len(linked) >= 0.8 * len(rows)


def test_a_thread_that_waits_for_its_answer_to_be_written_is_known(start_agent, cleanup, debian_python):
    """A thread of twisted's WSGI asks the loop to write and waits for the result, so the loop wakes the thread a second time: not with further
    work. Where an end is not seen, the row is marked."""
    missing = lacking("twisted WSGI")
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    port, truths = servers.free_port(), {}
    server = servers.Server([debian_python.path, os.path.join(host.WORKLOADS, "ledger_server_app.py"), "twisted", "127.0.0.1", str(port)], cwd="/tmp",
                            env={"PYTHONPATH": host.WORKLOADS, "PEER_PORT": "1"})
    cleanup.append(server)

    def ask(i):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.request("GET", "/sleep-10", headers={"traceparent": f"00-{trace_of(i)}-{i + 1:016x}-01", "Connection": "close"})
            return json.loads(connection.getresponse().read())
        except ConnectionRefusedError:
            assert server.process.poll() is None, "\n".join(server.log)
        finally:
            connection.close()
    host.wait_until(lambda: ask(10**6), 30, "twisted answers")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    host.wait_until(lambda: ask(10**6) and agent.select("ebpf_request", lambda r: r["server_port"] == port and not {"gil", "gc"} & set(
        r["not_measured"])), 20, "rows")
    for i in range(1, 41):
        truths[trace_of(i)] = ask(i)
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in truths, n=len(truths))
    assert len(rows) == len(truths)
    linked = [row for row in rows if row["link"] == "wake"]
    print(f"{len(linked)} of {len(rows)} linked")
    for row in rows:
        assert total(row) == row["duration_ns"], row
        assert row in linked or "work_elsewhere" in row["not_measured"], row
    for row in linked:
        assert row["tid"] == truths[row["trace_id"]]["tid"] and row["model"] == "pool" and row["sleep_ns"] >= 10 * MS, row
    assert len(linked) > 0.8 * len(rows)


PARTS = {
    "asyncio": ["-m", "uvicorn", "--loop=asyncio", "--http=h11", "--log-level=error", "--port={port}", "pool_part_app:asgi"],
    "uvloop": ["-m", "uvicorn", "--loop=uvloop", "--http=httptools", "--log-level=error", "--port={port}", "pool_part_app:asgi"],
    "gevent": ["-m", "gunicorn", "--worker-class=gevent", "--log-level=warning", "--bind=127.0.0.1:{port}", "pool_part_app:wsgi"],
}
PATHS = ["/sleep-20/cpu-10/pool-5", "/cpu-20/pool-3", "/cpu-10/name-0/sleep-10", "/sleep-30/cpu-20/name-0", "/pool-5/sleep-20", "/pool-5"]


def ask_parts(port, n, first, paths):
    """{trace: (path, tid, waited, worked)} of n requests on one connection."""
    truths, connection = {}, http.client.HTTPConnection("127.0.0.1", port)
    for i in range(first, first + n):
        path = paths[i % len(paths)]
        connection.request("GET", path, headers={"traceparent": f"00-{trace_of(i)}-{i + 1:016x}-01"})
        answer = connection.getresponse()
        answer.read()
        truths[trace_of(i)] = path, *(int(answer.headers[name]) for name in ("X-Tid", "X-Waited", "X-Worked"))
    connection.close()
    return truths


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("name", PARTS)
def test_a_part_in_the_pool_is_no_wait_for_the_pool(name, clients, start_agent, cleanup, debian_python):
    """A handler on the loop has a name resolved, or a file read, by a thread of the pool: what the handler did before is not `pool_wait`."""
    port = servers.free_port()
    argv = [argument.format(port=port) for argument in PARTS[name]]
    server = servers.Server([debian_python.path, *argv], cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS})
    cleanup.append(server)

    def up():
        try:
            return ask_parts(port, len(PATHS), 10**6, PATHS)
        except ConnectionRefusedError:
            assert server.process.poll() is None, "\n".join(server.log)
    host.wait_until(up, 30, f"{name} answers")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    host.wait_until(lambda: ask_parts(port, 1, 2 * 10**6, PATHS) and agent.select("ebpf_request", lambda r: r["server_port"] == port
                                                                                   and not {"gil", "gc"} & set(r["not_measured"])), 20, "rows")
    time.sleep(0.3)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        parts = [pool.submit(ask_parts, port, 24, 1 + n * 10_000, PATHS) for n in range(clients)]
        truths = {trace: truth for part in parts for trace, truth in part.result().items()}
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in truths, n=len(truths))
    assert len(rows) == len(truths)
    wrong = []
    for row in rows:
        path, tid, waited, worked = truths[row["trace_id"]]
        assert total(row) == row["duration_ns"] and row["path"] == path, row
        said = {part: row[part + "_ns"] / MS for part in ("pool_wait", "await", "cpu", "runq", "gil", "loop_busy") if row[part + "_ns"]}
        if row["link"] == "same" and row["tid"] != tid or row["link"] != "same" and path != "/pool-5":
            wrong.append((path, "thread", row["link"], said))
        if row["pool_wait_ns"] > waited + 2 * MS:
            wrong.append((path, "pool_wait", waited / MS, said))
        if worked > 2 * MS and row["link"] == "same" and "work_elsewhere" not in row["not_measured"]:
            wrong.append((path, "silent", worked / MS, said, row["model"], row["not_measured"]))
    print(f"{name}, {clients}: {len(rows)} rows, {sum(r['link'] == 'wake' for r in rows)} linked, {len(wrong)} wrong")
    assert not wrong, (len(wrong), wrong[:8])


def slow_client(port, i, pause_s):
    """Nanoseconds from the request to the answer's end, for a client that begins to read after `pause_s`."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
        s.connect(("127.0.0.1", port))
        begin = time.monotonic_ns()
        s.sendall(f"GET /sleep-20/big-6000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: 00-{trace_of(i)}-{i:016x}-01\r\n\r\n".encode())
        time.sleep(pause_s)
        while s.recv(1 << 20):
            pass
        return time.monotonic_ns() - begin


def test_the_reader_writes_the_rest_for_a_slow_client(start_agent, cleanup, debian_python):
    """A thread of waitress writes as much as the socket takes, and the main thread the rest. The row ends with the last byte, and the thread's
    parts and the client's share are known: of each request, since the thread's next request begins without a last answer of its own."""
    port = servers.free_port()
    server = servers.Server([debian_python.path, "-m", "waitress", f"--listen=127.0.0.1:{port}", "--threads=2", "ledger_server_app:wsgi"],
                            cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS, "PEER_PORT": "1"})
    cleanup.append(server)
    server.wait_log("Serving on")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    def both_threads_are_known():
        """A thread asleep since before the agent began: its first wake-up cannot be told from others."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda i: slow_client(port, i, 0), (10**6, 10**6 + 1)))
        known = agent.select("ebpf_request", lambda r: r["server_port"] == port and not {"gil", "gc", "work_elsewhere"} & set(r["not_measured"]))
        return len({row["tid"] for row in known}) == 2

    host.wait_until(both_threads_are_known, 20, "rows of both threads")
    waited = {trace_of(i): slow_client(port, i, 0.15) for i in range(1, 9)}
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in waited, n=len(waited))
    for row in rows:
        why = (row, waited[row["trace_id"]])
        assert total(row) == row["duration_ns"] and row["link"] == "write" and row["status"] == 200, why
        assert "work_elsewhere" not in row["not_measured"], why
        assert 150 * MS < row["duration_ns"] - row["client_wait_ns"] < waited[row["trace_id"]] + 2 * MS, why
        assert 20 * MS <= row["sleep_ns"] < 22 * MS + row["runq_ns"], why
        handler = sum(row[f"{part}_ns"] or 0 for part in ("pool_wait", "cpu", "runq", "throttled", "gil", "gc_own", "gc_sibling", "lock", "fault", "sleep"))
        assert row["client_slow_ns"] > 150 * MS - handler - 5 * MS, why


def ask_truths(port, n, first, paths):
    """{trace: the handler's truth} of n requests on one connection."""
    truths, connection = {}, http.client.HTTPConnection("127.0.0.1", port)
    for i in range(first, first + n):
        connection.request("GET", paths[i % len(paths)], headers={"traceparent": f"00-{trace_of(i)}-{i + 1:016x}-01"})
        truths[trace_of(i)] = json.loads(connection.getresponse().read())
    connection.close()
    return truths


@pytest.mark.parametrize("clients, threads", [(2, 4), (6, 3)])
def test_the_wait_for_a_thread_ends_before_the_handler_begins(clients, threads, start_agent, cleanup, debian_python):
    """A thread that takes the next request without a sleep, and waits for a lock in the handler: that wake-up is not the begin of its work."""
    port = servers.free_port()
    server = servers.Server([debian_python.path, "-m", "waitress", f"--listen=127.0.0.1:{port}", f"--threads={threads}", "ledger_server_app:wsgi"],
                            cwd="/tmp", env={"PYTHONPATH": host.WORKLOADS, "PEER_PORT": "1"})
    cleanup.append(server)
    server.wait_log("Serving on")
    agent = start_agent("--request.min_duration_us=0", trackers=TRACKERS)
    paths = ["/lock-4", "/sleep-3/lock-3", "/cpu-2", "/sleep-1", "/cpu-1/lock-5"]
    host.wait_until(lambda: ask_truths(port, 1, 10**6, paths) and agent.select("ebpf_request", lambda r: r["server_port"] == port
                                                                               and not {"gil", "gc"} & set(r["not_measured"])), 20, "rows")
    time.sleep(0.3)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        parts = [pool.submit(ask_truths, port, 400 // clients, 1 + n * 10_000, paths) for n in range(clients)]
        truths = {trace: truth for part in parts for trace, truth in part.result().items()}
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port and r["trace_id"] in truths, n=len(truths))
    assert len(rows) == len(truths)
    late, overlapping, threads_of, unknown = [], [], collections.defaultdict(list), 0
    for row in rows:
        truth = truths[row["trace_id"]]
        assert total(row) == row["duration_ns"], row
        if "work_elsewhere" in row["not_measured"]:
            unknown += 1
            continue
        assert row["tid"] == truth["tid"], (row, truth)
        begin = row["start_time"] * 1000 + sum(row[part + "_ns"] or 0 for part in ("accept_queue", "client_wait", "queue", "pool_wait"))
        if begin > truth["begin"] + MS:
            late.append(((begin - truth["begin"]) / MS, row["path"], row["pool_wait_ns"] / MS, row["lock_ns"] / MS))
        threads_of[row["tid"]].append((begin, row["start_time"] * 1000 + row["duration_ns"]))
    for spans in threads_of.values():
        spans.sort()
        overlapping += [(before, after) for before, after in zip(spans, spans[1:]) if after[0] < before[1] - MS]
    print(f"{clients} clients, {threads} threads: {len(rows)} rows, {unknown} unknown, {len(late)} late, {len(overlapping)} overlapping")
    assert not late and not overlapping, (len(late), late[:5], len(overlapping), overlapping[:3])
    assert unknown < len(rows) / 2
