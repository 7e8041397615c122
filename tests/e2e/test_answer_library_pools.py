# SPDX-License-Identifier: Apache-2.0
"""A library's pool of connections that is too small, in the threads of an event loop's pool: of SQLAlchemy and redis in synchronous endpoints of
FastAPI, of urllib3 in run_in_executor(). The handlers measure how long each waited for a connection."""
import concurrent.futures
import http.client
import json
import re
import time

import pytest

import servers
from agent import NO_ENGINE, plain_build
from answer_watched import watched
from host import wait_until
from ledger_services import lacking
from test_request import trace_of

pytestmark = plain_build(NO_ENGINE)
APP = r'''
import asyncio, concurrent.futures, os, queue, time
import anyio, redis, sqlalchemy, sqlalchemy.pool, urllib3
from fastapi import FastAPI

WORK = 0.23  # uvicorn's loop has a timer of 0.1 s
engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.QueuePool, pool_size=1, max_overflow=0, pool_timeout=20,
                                  connect_args={"check_same_thread": False})
http_pool = urllib3.HTTPConnectionPool("127.0.0.1", 1, maxsize=1, block=True)
redis_pool = redis.BlockingConnectionPool(max_connections=1, timeout=20, connection_class=lambda **_: FakeConnection())

class FakeConnection:
    pid = os.getpid()
    connect = disconnect = lambda self: None
    can_read = lambda self: False

def timed(take, give):
    begin = time.monotonic()
    connection = take()
    waited = time.monotonic() - begin
    time.sleep(WORK)
    give(connection)
    return {"waited_ms": 1000 * waited}

def ask_sqlalchemy():
    return timed(engine.connect, lambda c: c.close())

def ask_urllib3():
    return timed(lambda: http_pool._get_conn(20), http_pool._put_conn)

def ask_redis():
    return timed(lambda: redis_pool.get_connection("GET"), redis_pool.release)

def sleeps():
    time.sleep(4.4 * WORK)
    return {"waited_ms": 0}

app = FastAPI()

@app.on_event("startup")
async def limit():
    anyio.to_thread.current_default_thread_limiter().total_tokens = int(os.environ["POOL_THREADS"])

app.get("/sqlalchemy")(ask_sqlalchemy)
app.get("/redis")(ask_redis)
app.get("/sleeps")(sleeps)
executor = concurrent.futures.ThreadPoolExecutor(int(os.environ["POOL_THREADS"]))

@app.get("/urllib3")
async def in_executor():
    return await asyncio.get_running_loop().run_in_executor(executor, ask_urllib3)
'''
# server: (uvicorn's loop, path)
CASES = {"FastAPI, SQLAlchemy": ("asyncio", "/sqlalchemy"), "FastAPI, redis": ("uvloop", "/redis"), "run_in_executor, urllib3": ("uvloop", "/urllib3")}
THREADS, CLIENTS = 8, 5
REMEDY = "a larger pool (of connections: "


def asked(port, path, i):
    """(trace, ms until the answer, ms of it in the library's pool)"""
    connection, begun = http.client.HTTPConnection("127.0.0.1", port), time.monotonic()
    connection.request("GET", path, headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
    answer = connection.getresponse()
    waited = json.loads(answer.read())["waited_ms"]
    connection.close()
    return trace_of(i), (time.monotonic() - begun) * 1000, waited


def at_once(port, paths, first):
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as clients:
        return list(clients.map(lambda i: asked(port, paths[i], first + i), range(len(paths))))


@pytest.mark.parametrize("name", CASES)
def test_the_pool_of_connections_is_named(name, tmp_path, cleanup, debian_python, monkeypatch):
    missing = lacking("FastAPI sync endpoints, uvloop")
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    (tmp_path / "pools_app.py").write_text(APP)
    loop, path = CASES[name]
    port = servers.free_port()
    server = servers.Server([debian_python.path, "-m", "uvicorn", "--log-level=error", f"--port={port}", f"--loop={loop}", "pools_app:app"], cwd="/tmp",
                            env={"PYTHONPATH": str(tmp_path), "POOL_THREADS": str(THREADS)})
    ask, agent = watched(server, tmp_path, cleanup, monkeypatch, lambda: asked(port, "/sleeps", 10**6), ["off_cpu"])
    time.sleep(1)
    at_once(port, ["/sleeps"] * CLIENTS, 10**6)  # the threads exist
    time.sleep(1)
    told = at_once(port, [path] * CLIENTS, 1)
    told += at_once(port, [path] * CLIENTS + ["/sleeps"], 101)
    agent.stop()
    found, others = [], []
    for trace, ms, waited in told:
        done = ask.command("explain", "--json", trace)
        assert done.returncode == 0, done.stderr
        [row] = [r for r in json.loads(done.stdout)["requests"] if r["pid"] == server.pid]
        assert abs(row["duration_ms"] - ms) < 100, (row["duration_ms"], ms)
        fixes = [c for c in row["causes"] if c["fix"].startswith(REMEDY)]
        (found if waited > ms / 2 + 50 else others if waited < ms / 2 - 50 else []).append((row["link"], waited, fixes, row["causes"]))
    told_by_wake = [f for f in found if f[0] == "same"]
    print(f"{name}: {len(found)} waited for a connection, {len(told_by_wake)} on a thread that the ledger does not name; {len(others)} did not wait")
    assert len(found) >= 4 and len(others) >= 3 and told_by_wake, (found, others)
    # a thread that ends while the loop is awake, or within 10 ms of its timer's end, has no row of its wake
    silent = [f for f in found if not f[2]]
    assert len(silent) <= 2, silent
    for _, waited, fixes, _ in told_by_wake:
        if not fixes:
            continue
        [fix] = fixes
        [ms] = re.findall(r"woke the loop before the answer, after it had waited longest for: lock, in .* \(([\d.]+) ms\)", fix["said"])
        assert abs(float(ms) - waited) < 60, (waited, fix)
    for _, waited, fixes, causes in others:
        assert not fixes, (waited, causes)


def test_sums_that_are_not_stored_yet_are_told(tmp_path, cleanup, debian_python, monkeypatch):
    """The sums that tell which threads are the pool's come every ten seconds: before, the answer says how long to wait, and then it has them."""
    (tmp_path / "pools_app.py").write_text(APP)
    port = servers.free_port()
    server = servers.Server([debian_python.path, "-m", "uvicorn", "--log-level=error", f"--port={port}", "--loop=uvloop", "pools_app:app"], cwd="/tmp",
                            env={"PYTHONPATH": str(tmp_path), "POOL_THREADS": str(THREADS)})
    ask, agent = watched(server, tmp_path, cleanup, monkeypatch, lambda: asked(port, "/sleeps", 10**6), ["off_cpu"])

    def sums():
        return int(ask.store.ask(f"SELECT uniqExact(end_time) FROM ebpf_off_cpu_profile WHERE pid = {server.pid}"))
    wait_until(lambda: sums() >= 2, 40, "sums of two intervals")
    before = sums()
    told = at_once(port, ["/urllib3"] * CLIENTS, 1)
    trace = max(told, key=lambda t: t[2])[0]
    wait_until(lambda: int(ask.store.ask(f"SELECT count() FROM ebpf_request WHERE trace_id = '{trace}'")), 20, "the request's row")

    def explained():
        done, text = ask.command("explain", "--json", trace), ask.command("explain", trace)
        assert done.returncode == 0 == text.returncode, done.stderr + text.stderr
        return json.loads(done.stdout)["requests"][0], " ".join(text.stdout.split())
    row, text = explained()
    assert sums() == before, "a slow machine: the sums have come meanwhile"
    [pending] = row["pending"]
    assert 1 <= pending["wait_s"] <= 12 and not row["pool"], (pending, row["pool"])
    assert "not yet stored: the sums of waits of the request's last" in text and re.search(r"ask again in \d+ s", text), text
    time.sleep(pending["wait_s"])
    row, text = explained()
    assert not row["pending"] and row["pool"] and "not yet stored" not in text, (row["pending"], row["pool"])
