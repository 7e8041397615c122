# SPDX-License-Identifier: Apache-2.0
"""The request ledger over unix sockets, of which the kernel does not report the end: clients that leave at any moment, directly and through
nginx. As many rows as requests, none late, none invented; afterwards nothing is open or busy."""
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

import counts
import host
import test_counts
from agent import PATIENCE, Agent
from ledger_services import lacking
from servers import Server, free_port
from test_metrics import scrape, total

EACH = 3
SLEEP_MS = round(100 * PATIENCE)  # clients leave before that
LATE_MS = 600  # a row that ends when the agent looks next would be up to a second too long
APP = os.path.join(host.WORKLOADS, "ledger_server_app.py")
GUNICORN = ["-m", "gunicorn", "--bind=unix:{path}", "--workers=1", "--graceful-timeout=1", "--log-level=critical", "--keep-alive=5"]
UVICORN = ["-m", "uvicorn", "--uds={path}", "--log-level=critical"]
GTHREAD = [*GUNICORN, "--worker-class=gthread", "--threads=2", "ledger_server_app:wsgi"]
SERVERS = {
    "gthread-20": GTHREAD,
    "gthread-23": GTHREAD,
    "gthread-26": GTHREAD,
    "gunicorn sync": [*GUNICORN, "ledger_server_app:wsgi"],
    "gunicorn gevent": [*GUNICORN, "--worker-class=gevent", "ledger_server_app:wsgi"],
    "gunicorn uvicorn worker": [*GUNICORN, "--worker-class=uvicorn.workers.UvicornWorker", "ledger_server_app:asgi"],
    "uvicorn h11": [*UVICORN, "--loop=asyncio", "--http=h11", "ledger_server_app:asgi"],
    "uvicorn uvloop": [*UVICORN, "--loop=uvloop", "--http=httptools", "ledger_server_app:asgi"],
    "FastAPI sync endpoints": [*UVICORN, "--loop=asyncio", "--http=h11", "ledger_server_app:pool"],
    "hypercorn": ["-m", "hypercorn", "--bind=unix:{path}", "--graceful-timeout=1", "--log-level=critical", "ledger_server_app:asgi"],
    "daphne": ["-m", "daphne", "--unix-socket={path}", "--verbosity=0", "ledger_server_app:asgi"],
    "aiohttp": [APP, "aiohttp", "{path}"],
    "tornado": [APP, "tornado", "{path}"],
    "waitress": [APP, "waitress", "{path}"],
    "cheroot": [APP, "cheroot", "{path}"],
    "werkzeug": [APP, "werkzeug", "{path}"],
}
ASYNC = ("gunicorn uvicorn worker", "uvicorn h11", "uvicorn uvloop", "hypercorn", "daphne", "aiohttp", "tornado")
POOLS = ("FastAPI sync endpoints", "waitress")
NGINX = """
daemon off; worker_processes 1; pid {directory}/nginx.pid; error_log stderr crit; user root;
events {{}}
http {{ log_format sent "$http_traceparent $upstream_bytes_sent"; access_log {directory}/sent sent;
{temporary}
{servers}
}}
"""


def receive(s):
    """An answer, to its end."""
    data = b""
    while True:
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if b"chunked" in head.lower() and body.endswith(b"\r\n0\r\n\r\n") or length and len(body) >= int(length.group(1)):
            return data
        more = s.recv(65536)
        if not more:
            return data
        data += more


class Service(Server):
    def __init__(self, kind, directory):
        self.kind = kind
        self.path = os.path.join(directory, kind.replace(" ", "-"))
        self.nginx = free_port()
        self.sleep = f"/await-{SLEEP_MS}" if kind in ASYNC else f"/sleep-{SLEEP_MS}"
        generation = next((g for g in host.find_gunicorns() if kind == f"gthread-{g.version}"), None)
        paths = [host.WORKLOADS, *([generation.path] if generation and generation.path else [])]
        options = ["--no-control-socket"] if generation and generation.version >= 25 else []
        super().__init__([host.DEBIAN_PYTHON, *(word.format(path=self.path) for word in SERVERS[kind]), *options], cwd=directory, env={
            "PYTHONPATH": ":".join(paths), "LEDGER_APP": "fastapi" if kind.startswith("FastAPI") else ""})
        self.sent = {}  # trace id: kind of leaving
        self.afterwards = []

    def request(self, name, path, method="GET", headers=""):
        """The bytes of a request that is counted."""
        trace = os.urandom(16).hex()
        self.sent[trace] = name
        return (f"{method} {path} HTTP/1.1\r\nHost: test\r\ntraceparent: 00-{trace}-{trace[:16]}-01\r\n{headers}\r\n").encode()

    def connect(self, through):
        s = socket.socket(socket.AF_INET if through else socket.AF_UNIX)
        s.settimeout(20)
        s.connect(("127.0.0.1", self.nginx) if through else self.path)
        return s

    def wait_up(self):
        def up():
            try:
                with self.connect(False) as s:
                    s.sendall(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
                    self.worker = int(re.search(rb'"pid": (\d+)', receive(s)).group(1))
                return True
            except (ConnectionRefusedError, FileNotFoundError, TimeoutError):
                assert self.process.poll() is None, "\n".join(self.log)
        host.wait_until(up, 30, f"{self.kind} answers")


def before_the_head(service, through):
    service.connect(through).close()


def in_the_head(service, through):
    with service.connect(through) as s:
        s.sendall(service.request("in the head", service.sleep, headers="X-More: 0123456789\r\n")[:-10])
        time.sleep(0.03)


def in_the_body(service, through):
    with service.connect(through) as s:
        s.sendall(service.request("in the body", "/body", "POST", "Content-Length: 1000\r\n") + b"x" * 500)
        time.sleep(0.03)


def while_the_handler_waits(service, through):
    with service.connect(through) as s:
        s.sendall(service.request("while the handler waits", service.sleep))
        time.sleep(0.03)


def during_a_stream(service, through):
    with service.connect(through) as s:
        s.sendall(service.request("during a stream", f"/stream-{SLEEP_MS // 2}"))
        s.recv(1)
        time.sleep(0.01)


def only_to_write(service, through):
    with service.connect(through) as s:
        s.sendall(service.request("only to write", service.sleep, headers="Connection: close\r\n"))
        s.shutdown(socket.SHUT_WR)
        receive(s)


def with_unread_bytes(service, through):
    with service.connect(through) as s:
        s.sendall(service.request("with unread bytes", "/big-4000"))
        s.recv(1)
        time.sleep(0.02)


CLIENT = """
import socket, sys
s = socket.socket(socket.AF_INET if sys.argv[1].isdigit() else socket.AF_UNIX)
s.connect(("127.0.0.1", int(sys.argv[1])) if sys.argv[1].isdigit() else sys.argv[1])
s.sendall(bytes.fromhex(sys.argv[2]))
print("sent", flush=True)
sys.stdin.read()
"""


def killed(service, through):
    """Not a fork of this process, which would keep sockets of other threads."""
    where, head = str(service.nginx) if through else service.path, service.request("killed", service.sleep)
    client = subprocess.Popen([sys.executable, "-c", CLIENT, where, head.hex()],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client.stdout.readline()
    time.sleep(0.03)
    client.kill()
    client.communicate()


LEAVES = (before_the_head, in_the_head, in_the_body, while_the_handler_waits, during_a_stream, only_to_write, with_unread_bytes, killed)


def play(service, through):
    for leave in LEAVES:
        for _ in range(EACH):
            leave(service, through)
            time.sleep(2 * SLEEP_MS / 1000)  # the handler's rest
    for name, path in [("answered", "/sleep-5"), ("streamed", "/stream-5"), ("answered at the end", "/sleep-5")]:
        with service.connect(through) as s:
            s.sendall(service.request(name, path, headers="Connection: close\r\n"))
            receive(s)
        time.sleep(0.05 * PATIENCE)  # the server closes


def sent_on(directory):
    """The requests of which nginx wrote anything to a server."""
    with open(os.path.join(directory, "sent")) as f:
        return {line.split("-")[1] for line in f if line.startswith("00-") and sum(map(int, re.findall(r"\d+", line.split()[1])))}


@pytest.fixture(scope="module", params=["directly", "through nginx"])
def run(request, tmp_path_factory):
    directory, things, through = str(tmp_path_factory.mktemp("unix")), [], request.param == "through nginx"
    os.chmod(directory, 0o755)
    try:
        services = [Service(kind, directory) for kind in SERVERS if not lacking(kind)]
        things += services
        for service in services:
            service.wait_up()
        metrics = test_counts.free_port()
        agent = Agent("--request.min_duration_us=0", f"--metrics.listen=127.0.0.1:{metrics}", *(f"--pid={s.pid}" for s in services),
                      trackers=["request", "gc_pause", "gil_wait"])
        things.append(agent)
        agent.wait_ready()
        agent.services, agent.through, agent.metrics = services, through, metrics
        for service in services:  # until the processes are known
            def known():
                service.wait_up()
                time.sleep(0.2)
                return agent.select("ebpf_request", lambda r: r["host_pid"] == service.worker and not {"gil", "gc"} & set(r["not_measured"]))
            host.wait_until(known, 20, f"rows of {service.kind}")
        if through:
            conf = os.path.join(directory, "nginx.conf")
            with open(conf, "w") as f:
                f.write(NGINX.format(directory=directory, temporary="".join(f"{name}_temp_path {directory}/{name};\n" for name in (
                    "client_body", "proxy", "fastcgi", "uwsgi", "scgi")), servers="\n".join(
                        f"server {{ listen 127.0.0.1:{s.nginx}; location / {{ proxy_pass http://unix:{s.path}:; }} }}" for s in services)))
            things.append(Server(["/usr/sbin/nginx", "-e", "stderr", "-c", conf, "-p", directory]))
            host.wait_until(lambda: not os.system(f"ss -Hltn 'sport = {services[-1].nginx}' | grep -q ."), 10, "nginx listens")
        players = [threading.Thread(target=play, args=(service, through)) for service in services]
        for player in players:
            player.start()
        for player in players:
            player.join()
        time.sleep(2.5)
        samples = scrape(metrics)[0]
        agent.sent_on = sent_on(directory) if through else None
        agent.gauges = {what: total(samples, "request_" + what) for what in ("open", "busy_threads")}
        agent.stop()
        counts.check(agent)
        yield agent
    finally:
        for thing in reversed(things):
            thing.kill()


@pytest.mark.parametrize("kind", SERVERS)
def test_each_request_is_one_row(run, kind):
    service = next(s for s in run.services if s.kind == kind)
    rows = [row for row in run.rows["ebpf_request"] if row["host_pid"] == service.worker and row["trace_id"]]
    wrong = []
    for trace, name in service.sent.items():
        found = [row for row in rows if row["trace_id"] == trace]
        if len(found) != (trace in run.sent_on if run.through else 1):
            wrong.append((name, f"{len(found)} rows", found))
        wrong += [(name, *what) for row in found for what in differences(kind, name, row, run.through)]
    assert not run.through or len(run.sent_on & set(service.sent)) > 6 * EACH - 3
    wrong += [("a row of no request", row) for row in rows if row["trace_id"] not in service.sent]
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(map(str, wrong))


def differences(kind, name, row, through):
    ms = row["duration_ns"] / 1e6
    parts = {column: ns for column, ns in row.items() if column.endswith("_ns") and column not in ("duration_ns", "net_peer_ns", "body_wait_ns")}
    brief = {column: round(ns / 1e6, 1) for column, ns in parts.items() if ns}, row["status"], row["outcome"], row["end_by"], row["busy_threads"]
    if row["family"] != "unix":
        yield "family", row["family"]
    if sum(ns or 0 for ns in parts.values()) != row["duration_ns"]:
        yield "the parts do not add up", brief
    if name != "with unread bytes" and ms - (row["runq_ns"] + (row["queue_ns"] or 0) + row["client_slow_ns"]) / 1e6 > SLEEP_MS + LATE_MS:
        yield "too long", brief
    # nginx passes a request on later than the client sends it
    if name == "while the handler waits" and ms < 25 / PATIENCE and not through:
        yield "too short", brief
    # the reader's row: the pool's thread has not written
    if kind in POOLS and row["link"] == "same" and row["await_ns"] > SLEEP_MS * 4e5 and "work_elsewhere" not in row["not_measured"]:
        yield "the pool's work is an await", brief
    answered = name.startswith(("answered", "streamed"))
    if answered and (row["status"], row["outcome"]) != (200, "answered"):
        yield "answered", brief
    if name in ("in the head", "in the body", "while the handler waits", "during a stream", "killed") and not through and \
            row["outcome"] == "answered" and row["status"] == 200:
        yield "the client had left", brief
    if name == "answered at the end" and row["busy_threads"] not in (0, None):
        yield "busy", brief


def test_nothing_is_open_afterwards(run):
    assert run.gauges == {"open": 0, "busy_threads": 0}


def test_a_request_that_waited_for_one_whose_client_left(start_agent, cleanup, tmp_path):
    """The thread closes the socket of the first one and reads the second one without leaving its CPU: each row is about its own request."""
    service = Service("gunicorn sync", str(tmp_path))
    cleanup.append(service)
    service.wait_up()
    agent = start_agent("--request.min_duration_us=0", f"--pid={service.pid}", trackers=["request"])

    def known():
        service.wait_up()
        return agent.select("ebpf_request", lambda r: r["host_pid"] == service.worker)
    host.wait_until(known, 20, "a row")
    pairs = []
    for _ in range(5):
        with service.connect(False) as first, service.connect(False) as second:
            first.sendall(service.request("left", f"/sleep-{SLEEP_MS}"))
            time.sleep(0.03)
            second.sendall(service.request("waited", "/cpu-60/sleep-5", headers="Connection: close\r\n"))
            first.close()
            receive(second)
        pairs.append(list(service.sent)[-2:])
        time.sleep(0.05 * PATIENCE)
    agent.wait_rows("ebpf_request", lambda r: r["trace_id"] in service.sent, 2 * len(pairs))
    agent.stop()
    counts.check(agent)
    rows = {r["trace_id"]: r for r in agent.rows["ebpf_request"]}
    for first, second in pairs:
        left, waited = rows[first], rows[second]
        assert left["outcome"] == "client_aborted" and waited["outcome"] == "answered", (left, waited)
        for row in left, waited:
            assert (row["model"], row["open_requests"], row["busy_threads"], row["loop_busy_ns"]) == ("thread", 1, 0, 0), row
        assert waited["cpu_ns"] + waited["runq_ns"] >= 50e6 and left["end_time"] <= waited["start_time"], (left, waited)


PAIR = """
import http.server, os, socket, sys, threading
path = sys.argv[1]
service = socket.socket(socket.AF_UNIX)
service.bind(path)
service.listen()

def serve():
    while True:
        with service.accept()[0] as connection:
            connection.sendall(b"ok" if connection.recv(100) else b"")
threading.Thread(target=serve, daemon=True).start()

class Handler(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True

    def do_GET(self):
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.sendall(b"1")
                assert client.recv(100) == b"ok"
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def test_a_clients_socket_at_the_address_of_a_servers(start_agent, cleanup, tmp_path):
    """The kernel uses the memory of closed sockets again: an answer that a handler reads is no begin of a request."""
    port = free_port()
    server = Server([host.DEBIAN_PYTHON, "-c", PAIR, str(tmp_path / "service"), str(port)])
    cleanup.append(server)
    agent = start_agent("--request.min_duration_us=0", f"--pid={server.pid}", trackers=["request", "gil_wait", "gc_pause"])

    def ask():
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return receive(s)
    host.wait_until(lambda: ask_or_none(ask) and agent.select("ebpf_request", lambda r: r["server_port"] == port), 20, "a row")
    for _ in range(20):
        ask()
    rows = agent.wait_rows("ebpf_request", lambda r: r["server_port"] == port, 21)
    agent.stop()
    counts.check(agent)
    assert all((row["model"], row["open_requests"], row["loop_busy_ns"]) == ("thread", 1, 0) for row in rows[1:]), rows
    assert all(row["family"] == "ipv4" for row in agent.rows["ebpf_request"] if row["pid"] == server.pid)


def ask_or_none(ask):
    try:
        return ask()
    except ConnectionRefusedError:
        return None
