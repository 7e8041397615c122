# SPDX-License-Identifier: Apache-2.0
"""A handler that waits in select(), poll() or epoll_wait() of its own (psycopg, gRPC, a client of Kafka, asyncio.run()) is in no event loop: on a
thread per request, on a sync worker, which waits for connections in select(), on uWSGI's, which waits for them in epoll_wait(), on cheroot's,
whose sockets have a timeout, and on a thread of a loop's pool. The row and `explain` say so; how long it waited is the handler's own measurement."""
import glob
import http.client
import json
import os
import subprocess
import time

import pytest

from agent import Agent, NO_ENGINE, plain_build
from answers import Answers
from host import DEBIAN_PYTHON, wait_until
from ledger_services import lacking
from servers import free_port
from store_fixture import Store
from test_request import TRACKERS

pytestmark = plain_build(NO_ENGINE)
WAITS, ROUNDS, WAITED_MS = ("select", "poll", "epoll", "run"), 2, 150
APP = """
import asyncio, os, select, socketserver, sys, time, wsgiref.simple_server

def wait_select(fd):
    select.select([fd], [], [], 0.15)

def wait_poll(fd):
    poll = select.poll()  # of two: the wait for one is a wait for what it is
    poll.register(fd, select.POLLIN)
    poll.register(2, select.POLLPRI)
    poll.poll(150)

def wait_epoll(fd):
    with select.epoll() as epoll:
        epoll.register(fd, select.EPOLLIN)
        epoll.poll(0.15)

def wait_run(fd):
    asyncio.run(asyncio.sleep(0.15))

def work(path):
    how = globals().get("wait_" + path.strip("/"))
    read, write = os.pipe()
    begin = time.monotonic()
    if how:
        how(read)
    took = (time.monotonic() - begin) * 1000
    os.close(read)
    os.close(write)
    return str(took).encode()

def app(environ, start_response):
    body = work(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = await asyncio.to_thread(work, scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})

class Threading(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True

if sys.argv[1:] == ["cheroot"]:
    import cheroot.wsgi
    cheroot.wsgi.Server(("127.0.0.1", int(os.environ["PORT"])), app, numthreads=1).start()
elif __name__ == "__main__":
    wsgiref.simple_server.make_server("127.0.0.1", int(os.environ["PORT"]), app, Threading).serve_forever()
"""
SERVERS = {"gthread": (["-m", "gunicorn", "-k", "gthread", "--threads", "3", "polls_app:app"], "thread"), "sync": (["-m", "gunicorn", "polls_app:app"], "thread"),
           "threads": (["polls_app.py"], "thread"), "cheroot": (["polls_app.py", "cheroot"], "thread"), "uwsgi": ([], "thread"), "uvicorn": (["-m", "uvicorn", "--log-level=error", "polls_app:asgi"], "pool")}


def uwsgi(port):
    missing = lacking("uWSGI")
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    [plugin] = sorted(glob.glob("/usr/lib/uwsgi/plugins/python3*_plugin.so"))[:1]
    return ["uwsgi-core", "--plugin", plugin, "--enable-threads", f"--http-socket=127.0.0.1:{port}", "--module=polls_app:app", "--disable-logging",
            "--die-on-term"]


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return float(body)


def answers(port):
    try:
        return get(port, "/up") >= 0
    except OSError:
        return False


def run_all(directory, cleanup):
    """{(server, path): [the handler's ms, the row of explain --json] of each round}"""
    (directory / "polls_app.py").write_text(APP)
    store = Store(directory / "db")
    cleanup.append(store)
    ask = Answers(store)
    ask.apply()
    ports, servers = {name: free_port() for name in SERVERS}, []
    for name, (argv, _) in SERVERS.items():
        at = ["--port", str(ports[name])] if name == "uvicorn" else ["-b", f"127.0.0.1:{ports[name]}"] if "gunicorn" in argv else []
        argv = uwsgi(ports[name]) if name == "uwsgi" else [DEBIAN_PYTHON, *argv, *at]
        servers.append(subprocess.Popen(argv, cwd=directory, env={**os.environ, "PORT": str(ports[name])},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        cleanup.append(servers[-1])
    for port in ports.values():
        wait_until(lambda: answers(port), 20, "a server answers")
    os.environ["UNDERSPAN_CLICKHOUSE_PASSWORD"] = store.password
    agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", f"--pid={','.join(str(s.pid) for s in servers)}",
                  stdout=False, trackers=[*TRACKERS, "off_cpu", "loop_stall"])
    cleanup.append(agent)
    agent.wait_ready()
    time.sleep(1)
    truth = {}
    for port in ports.values():  # the threads of a pool are known by earlier work
        for _ in range(3):
            get(port, "/up")
    for name, port in ports.items():
        for path in [f"/{how}" for how in WAITS] * ROUNDS:
            truth.setdefault((name, path), []).append(get(port, path))
    wanted = f"FROM ebpf_request WHERE path != '/up' AND server_port IN ({','.join(map(str, ports.values()))})"
    wait_until(lambda: int(store.ask(f"SELECT count() {wanted}")) == len(truth) * ROUNDS, 20, "a row for each request")
    waits = "SELECT count() FROM ebpf_off_cpu WHERE cause = 'poll' AND arrayExists(f -> startsWith(f, 'wait_'), py_stack)"
    wait_until(lambda: int(store.ask(waits)) >= len(truth) * ROUNDS, 20, "a row with code for each wait")
    names, found = {port: name for name, port in ports.items()}, {}
    for number in store.ask(f"SELECT toString(request_id) {wanted} ORDER BY start_time FORMAT TSV").split():
        done = ask.command("explain", "--json", number)
        assert done.returncode == 0, done.stderr
        [row] = json.loads(done.stdout)["requests"]
        its = found.setdefault((names[row["server_port"]], row["path"]), [])
        its.append((truth[names[row["server_port"]], row["path"]][len(its)], row))
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    cleanup = []
    try:
        yield run_all(tmp_path_factory.mktemp("polls"), cleanup)
    finally:
        for thing in reversed(cleanup):
            thing.kill()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("how", WAITS)
def test_a_handlers_poll_is_no_loops(told, server, how):
    for took, row in told[server, f"/{how}"]:
        assert row["model"] == SERVERS[server][1] and row["await_ms"] < 1 and not row["loop_busy_ms"], row
        # what the handler measured, but for its CPU, for the GIL and for a CPU
        beside = sum(row[f"{part}_ms"] or 0 for part in ("cpu", "runq", "gil", "gc_own", "lock"))
        assert WAITED_MS - 2 <= row["other_ms"] <= took + 1 and took - beside - 1 <= row["other_ms"], (took, row)
        [other] = [cause for cause in row["causes"] if cause["ms"] > 100]
        assert other["cause"] == "other" and other["said"].startswith("the thread waited for one of several descriptors (select(), poll(), epoll_wait()), in "), other
        assert f"wait_{how} (" in other["said"] and not any("coroutine" in cause["said"] or "loop" in cause["fix"] for cause in row["causes"]), row["causes"]
