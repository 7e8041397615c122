# SPDX-License-Identifier: Apache-2.0
"""Incidents in a service's own code, on gunicorn's gthread and gevent and on uvicorn: a log handler's lock whose holder writes into a full
pipe, the lock of an import, a pool of connections, a client in C that gevent cannot make cooperative, a coroutine that computes and then reads a socket, a lock of asyncio; and a server
with a thread per connection whose first thread is late. `explain` names the code that took the time, and a remedy that this server has."""
import json
import os
import re
import subprocess
import threading
import time

import pytest

import host
from agent import NO_ENGINE, UNDERSPAN, plain_build
from servers import LateServer, Server, connect, get, read_response, request
from store_fixture import Store
from test_incidents import command

pytestmark = plain_build(NO_ENGINE)
APP = r'''
import asyncio, concurrent.futures, fcntl, logging, os, queue, select, socket, subprocess, sys, threading, time
import sqlalchemy.pool

SLOW = ("127.0.0.1", int(os.environ["SLOW_PORT"]))  # answers a byte after 0.4 s

def late_reader():
    """A pipe of one page, read every 80 ms."""
    read, write = os.pipe()
    fcntl.fcntl(write, 1031, 4096)  # F_SETPIPE_SZ
    def drain():
        while True:
            time.sleep(0.08)
            os.read(read, 4096)
    threading.Thread(target=drain, name="drain", daemon=True).start()
    return os.fdopen(write, "w")

log = logging.getLogger("orders")
log.propagate = False

def write_much():
    log.addHandler(logging.StreamHandler(late_reader()))
    log.error("x" * 9 * 4096)

def write_little():
    log.error("paid")

def import_late():
    import late_module

engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.3,
                                  connect_args={"check_same_thread": False})

def hold_connection(seconds):
    with engine.connect() as connection:
        time.sleep(seconds)

def ask_database():
    """A pool of one connection, which gives up after 0.3 s."""
    try:
        hold_connection(0.6)
    except sqlalchemy.exc.TimeoutError:
        pass

def ask_in_c():
    """As a client in C: gevent has not patched this socket."""
    import _socket
    s = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    s.connect(SLOW)
    s.recv(1)

executor = concurrent.futures.ThreadPoolExecutor(1, "executor")

def work():
    time.sleep(0.3)

def ask_executor():
    """Its only thread works for an earlier request, and then for this one."""
    executor.submit(work).result()

def take_simple():
    items = queue.SimpleQueue()
    threading.Timer(0.3, items.put, (1,)).start()
    items.get()

silent = os.pipe(), os.pipe()

def select_several():
    select.select([read for read, _ in silent], [], [], 0.3)

def serve(path):
    {"/write_much": write_much, "/write_little": write_little, "/ask_in_c": ask_in_c,
     "/import": import_late, "/database": ask_database, "/executor": ask_executor, "/simple": take_simple, "/select": select_several}.get(path.removesuffix("_first"), lambda: None)()

def wsgi(environ, start_response):
    serve(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "2")])
    return [b"{}"]

def compute():
    end = time.thread_time() + 0.2
    while time.thread_time() < end: sum(range(1000))

async def mixed():
    compute()
    with socket.create_connection(SLOW) as s:
        s.recv(1)

async def run_child():
    subprocess.run(["sleep", "0.3"])

async def run_shell():
    os.system("sleep 0.3")

async def select_in_loop():
    select_several()

lock = asyncio.Lock()

async def one_at_a_time():
    async with lock:
        await asyncio.sleep(0.3)

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    await {"/mixed": mixed, "/one_at_a_time": one_at_a_time, "/child": run_child, "/shell": run_shell, "/select": select_in_loop}.get(scope["path"].removesuffix("_first"), lambda: asyncio.sleep(0))()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})

if __name__ == "__main__":
    import http.server
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"{}")
    class LateServer(http.server.ThreadingHTTPServer):
        def verify_request(self, *_):  # after accept(), before the connection's thread starts
            time.sleep(0.15)
            return True
    server = LateServer(("127.0.0.1", 0), Handler)
    print(f"Listening at: http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
    server.serve_forever()
'''
GUNICORN = ["-m", "gunicorn", "--bind=127.0.0.1:0", "incident_app:wsgi"]
COMMANDS = {"gthread": [*GUNICORN, "--worker-class=gthread", "--threads=3"], "gevent": [*GUNICORN, "--worker-class=gevent"],
            "uvicorn": ["-m", "uvicorn", "--port=0", "--loop=asyncio", "incident_app:asgi"], "per connection": ["-m", "incident_app"]}
# incident: (server, path of a request before it, path)
INCIDENTS = {"log": ("gthread", "/write_much", "/write_little"), "client in C": ("gevent", None, "/ask_in_c"),
             "mixed": ("uvicorn", None, "/mixed"), "lock of a loop": ("uvicorn", "/one_at_a_time", "/one_at_a_time"),
             "import": ("gthread", "/import", "/import"), "pool": ("gthread", "/database", "/database"),
             "child": ("uvicorn", None, "/child"), "shell": ("uvicorn", None, "/shell"), "select in a loop": ("uvicorn", None, "/select"),
             "select": ("gthread", None, "/select"), "executor": ("gthread", "/executor", "/executor"), "simple queue": ("gthread", None, "/simple"),
             "late accept": ("per connection", "/accepted", "/accepted")}


def until_watched(store, kind, server):
    """Rows have all parts; those of a loop are known as such (a client that sends late shows it), and its stalls are rows."""
    port, first = server.address[1], {"gevent": "/ask_in_c_first", "uvicorn": "/mixed_first"}.get(kind, "/first")

    def is_watched():
        with connect(server.address) as late:
            time.sleep(0.05)
            late.sendall(request(first))
            read_response(late)
        rows = f"FROM ebpf_request WHERE server_port = {port} AND NOT has(not_measured, 'gil')"
        if kind in ("gthread", "per connection"):
            return int(store.ask(f"SELECT count() {rows}"))
        return int(store.ask(f"SELECT count() FROM ebpf_loop_stall WHERE pid IN (SELECT pid {rows} AND model = 'loop') AND net_ns IS NOT NULL"))
    host.wait_until(is_watched, 30, f"rows of {kind}")


def incident(name, address):
    """Milliseconds of the client's slowest request."""
    _, before, path = INCIDENTS[name]
    took = []

    def ask(path):
        begin = time.monotonic()
        get(address, path)
        took.append(1000 * (time.monotonic() - begin))
    threads = [threading.Thread(target=ask, args=(p,)) for p in (before, path) if p]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    return took


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """{incident: its slowest request, or the one that waited longest for a lock, as `explain --json` has it}, and what the clients measured."""
    directory = tmp_path_factory.mktemp("code")
    (directory / "incident_app.py").write_text(APP)
    (directory / "late_module.py").write_text("import time\ntime.sleep(0.4)\n")
    late, servers = LateServer(400), {}
    environment = {"PYTHONPATH": str(directory), "SLOW_PORT": str(late.port)}
    with Store(directory / "db") as store:
        command(store, "schema", "--apply")
        agent = subprocess.Popen([UNDERSPAN, "run", f"--clickhouse={store.url}", "--flush_interval=1", "--request.min_duration_us=0",
                                  f"--spool.directory={directory / 'spool'}", "--governor.cpu_percent=0"],
                                 env={**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}, stderr=subprocess.PIPE, text=True)
        try:
            while "ready" not in agent.stderr.readline():
                assert agent.poll() is None
            found = {}
            for name, (kind, _, path) in INCIDENTS.items():
                if kind not in servers:
                    server = servers[kind] = Server(["/usr/bin/python3", *COMMANDS[kind]], env=environment)
                    port = int(server.wait_log(r"(?:[Rr]unning on|Listening at:) http://127.0.0.1:(\d+)")[0].group(1))
                    server.address = ("127.0.0.1", port)
                    until_watched(store, kind, server)
                took = incident(name, servers[kind].address)
                part = "lock_ns" if name in ("import", "pool") else "duration_ns"
                rows = f"FROM ebpf_request WHERE server_port = {servers[kind].address[1]} AND path = '{path}'"
                n = len(took) if INCIDENTS[name][1] in (None, path) else 1
                host.wait_until(lambda: int(store.ask(f"SELECT count() {rows}")) == n, 30, f"rows of {path}")
                time.sleep(1.5)  # the waits of the same time
                number = store.ask(f"SELECT request_id {rows} ORDER BY {part} DESC LIMIT 1").strip()
                [row] = json.loads(command(store, "explain", number, "--json"))["requests"]
                found[name] = row, took
            yield found
        finally:
            for server in servers.values():
                server.kill()
            late.kill()
            agent.terminate()
            agent.wait(30)


def causes_of(told, name):
    """The causes; the duration is as a client measured."""
    row, took = told[name]
    assert any(abs(row["duration_ms"] - ms) < 20 + ms / 20 + (row["runq_ms"] or 0) for ms in took), (row["duration_ms"], took)
    return row["causes"]


def test_the_holder_of_a_log_handlers_lock_waited_for_a_pipe(told):
    """It writes nine pages into a pipe of one: some seven waits of 80 ms while the other waits, together nearly all of the time."""
    [lock] = [c for c in causes_of(told, "log") if c["cause"] == "lock"]
    held, did = map(float, re.search(r"had it \(([\d.]+) ms, ([\d.]+) of it pipe, in StreamHandler.emit", lock["said"]).groups())
    assert held > 300 and did > 0.8 * held, lock["said"]


def test_two_requests_import_a_module(told):
    """One imports it for 400 ms, the other comes 100 ms later and waits for the import's lock."""
    [lock] = [c for c in causes_of(told, "import") if c["cause"] == "lock"]
    assert lock["ms"] == pytest.approx(300, abs=30) and "called from import_late" in lock["said"], lock
    assert lock["fix"].startswith("import that module when the application is loaded"), lock


def test_a_pool_gives_up(told):
    """The pool's only connection is in use for 600 ms; the request that comes 100 ms later gives up after 300 ms."""
    [lock] = [c for c in causes_of(told, "pool") if c["cause"] == "lock"]
    assert lock["ms"] == pytest.approx(300, abs=30) and "called from hold_connection" in lock["said"], lock
    assert "no thread is known to have ended it: a time-out ends such a wait, too" in lock["said"], lock
    assert lock["fix"].startswith("a larger pool (of connections: SQLAlchemy"), lock


def test_a_blocked_loop_of_gevent_has_a_remedy_of_gevent(told):
    blocked = causes_of(told, "client in C")[0]
    assert blocked["cause"] == "loop_blocked" and blocked["ms"] == pytest.approx(400, abs=40) and "in ask_in_c" in blocked["said"]
    assert re.match(r"in ask_in_c \(.*\), which kept the event loop for 4\d\d\.\d ms: use calls that gevent makes cooperative", blocked["fix"])
    assert "await" not in blocked["fix"] and "asyncio" not in blocked["fix"]


def test_a_coroutine_that_computes_and_reads(told):
    """One turn of the loop: the code that read is not named where the time is of the code that computed."""
    causes = {c["said"].split(",")[0]: c for c in causes_of(told, "mixed") if c["cause"] == "loop_blocked"}
    read, computed = causes["a call in a coroutine blocked the event loop's thread (a socket)"], causes["the thread computed"]
    assert "in mixed" in read["said"] and re.match(r"in mixed \(.*\), which kept the event loop for \d+\.\d ms: use await", read["fix"])
    assert computed["ms"] == pytest.approx(200, abs=30) and computed["fix"].startswith("use await instead"), computed


@pytest.mark.parametrize("name, place", [("child", r"Popen\._try_wait \(.*called from run_child"), ("shell", r"run_shell")])
def test_a_coroutine_that_waits_for_a_child(told, name, place):
    """By the code in module subprocess, and by the thread's own waits: os.system() has no frame."""
    row, _ = told[name]
    [blocked] = [c for c in causes_of(told, name) if c["cause"] == "loop_blocked" and c["ms"] > 250]
    assert blocked["ms"] == pytest.approx(row["child_ms"], abs=1) == pytest.approx(300, abs=40)
    assert re.match(rf"a call in a coroutine blocked the event loop's thread \(a child process\), in {place}", blocked["said"]), blocked
    assert re.search(r"which kept the event loop for 3\d\d\.\d ms: use await asyncio\.create_subprocess_exec", blocked["fix"]), blocked
    assert [s["cause"] for s in row["stalls"] if s["end_us"] - s["begin_us"] > 250_000] == ["child"], row["stalls"]


def test_a_coroutine_in_select(told):
    """The loop did not poll: nothing was awaited."""
    row, _ = told["select in a loop"]
    [blocked] = [c for c in causes_of(told, "select in a loop") if c["cause"] == "loop_blocked"]
    assert row["await_ms"] < 5 and row["other_ms"] == pytest.approx(300, abs=40) and blocked["ms"] == row["other_ms"], row
    assert blocked["said"].endswith("(select() or poll() of descriptors that are not the loop's)") and "in select_several" in blocked["fix"], blocked


def test_a_handler_in_select_is_no_loop(told):
    row, _ = told["select"]
    [other] = [c for c in causes_of(told, "select") if c["cause"] == "other"]
    assert row["model"] == "thread" and row["await_ms"] == 0 and other["ms"] == pytest.approx(300, abs=40), row
    assert other["said"].startswith("the thread waited for one of several descriptors (select(), poll(), epoll_wait()), in select_several"), other


def test_a_future_of_a_pool_whose_threads_are_busy(told):
    """The pool's only thread works for another request for 200 ms more, and 300 ms for this one."""
    [lock] = [c for c in causes_of(told, "executor") if c["cause"] == "lock"]
    assert lock["ms"] == pytest.approx(500, abs=60) and "called from ask_executor" in lock["said"] and "thread executor_0 ended" in lock["said"], lock
    assert lock["said"].startswith("the thread waited for another thread's result (a future), in") and "more threads there (max_workers)" in lock["fix"], lock


def test_a_simple_queue_may_be_no_lock(told):
    """Its get() is in C, without a frame, as a lock's acquire()."""
    [lock] = [c for c in causes_of(told, "simple queue") if c["cause"] == "lock"]
    assert lock["ms"] == pytest.approx(300, abs=40), lock
    assert lock["said"].startswith("the thread waited for a lock or an item of a SimpleQueue, in take_simple"), lock
    assert "had it or put the item (" in lock["said"] and "if it waits in SimpleQueue.get()" in lock["fix"], lock


def test_a_coroutine_that_awaits_another(told):
    """300 ms of another's work with the lock, less the 100 ms of the client, and 300 ms of its own."""
    await_ms = told["lock of a loop"][0]["await_ms"]
    [awaited] = [c for c in causes_of(told, "lock of a loop") if c["cause"] == "await"]
    assert 400 < await_ms < 600 and "another coroutine (a lock" in awaited["said"]


def test_of_a_thread_per_connection_none_is_missing(told):
    """Both requests waited 150 ms for their own thread, the second before it for accept(), while the thread that accepts slept: no thread was
    busy, and more would not help."""
    late = [c for c in causes_of(told, "late accept") if c["cause"] == "thread_asleep"]
    assert sorted(c["ms"] for c in late) == pytest.approx([50, 150], abs=30), late
    for cause in late:
        assert ", which accepts connections, slept, in LateServer.verify_request (" in cause["said"] and not cause["fix"], cause
