# SPDX-License-Identifier: Apache-2.0
"""The servers of the ledger's test, each a single process under workloads/ledger_server_app.py, and a client of exact timing with its own clock."""
import functools
import glob
import json
import os
import re
import select
import selectors
import socket
import subprocess
import time

import host
from servers import Server, free_port

now = time.time_ns
HEADER = re.compile(rb"^([\w-]+): *(.*?) *\r$", re.M)
# model: the thread that runs the handler. queue: where a request waits for the thread. defers: TCP_DEFER_ACCEPT, no connection before data
GUNICORN = dict(command="gunicorn", ipv6=True, unix=True)
KINDS = {
    "gthread-20": dict(GUNICORN, options=["--worker-class=gthread", "--threads=2", "--keep-alive=5"]),
    "gthread-23": dict(GUNICORN, options=["--worker-class=gthread", "--threads=2", "--keep-alive=5"]),
    "gthread-26": dict(GUNICORN, options=["--worker-class=gthread", "--threads=2", "--keep-alive=5"]),
    "gunicorn sync": dict(GUNICORN, options=["--worker-class=sync"], threads=1, keeps=False, queue=("accept_queue",)),
    "gunicorn gevent": dict(GUNICORN, options=["--worker-class=gevent"], model="loop", green=True),
    "gunicorn uvicorn worker": dict(GUNICORN, options=["--worker-class=uvicorn.workers.UvicornWorker"], app="asgi", model="loop", websocket=True),
    "uvicorn h11": dict(command="uvicorn", options=["--loop=asyncio", "--http=h11"], app="asgi", model="loop", websocket=True),
    "uvicorn httptools": dict(command="uvicorn", options=["--loop=asyncio", "--http=httptools"], app="asgi", model="loop", websocket=True),
    "uvicorn uvloop": dict(command="uvicorn", options=["--loop=uvloop", "--http=httptools"], app="asgi", model="loop", websocket=True),
    "FastAPI sync endpoints": dict(command="uvicorn", options=["--loop=asyncio", "--http=h11"], app="pool", model="pool", queue=("pool_wait",)),
    "FastAPI sync endpoints, uvloop": dict(command="uvicorn", options=["--loop=uvloop", "--http=httptools"], app="pool", model="pool",
                                           queue=("pool_wait",)),
    "hypercorn": dict(command="hypercorn", ipv6=True, app="asgi", model="loop", websocket=True, keeps=False),
    "hypercorn trio": dict(command="hypercorn", options=["--worker-class=trio"], ipv6=True, app="asgi", model="loop", websocket=True, keeps=False),
    "daphne": dict(command="daphne", ipv6=True, unix=True, app="asgi", model="loop", websocket=True),
    "aiohttp": dict(command="library", ipv6=True, model="loop", websocket=True),
    "tornado": dict(command="library", ipv6=True, model="loop", websocket=True),
    "waitress": dict(command="library", model="pool", queue=("pool_wait",)),
    "twisted WSGI": dict(command="library", module="twisted", model="pool", queue=("pool_wait",)),
    "cheroot": dict(command="library"),
    "werkzeug": dict(command="library", threads=None, keeps=False),
    "Django runserver": dict(command="library", module="django", threads=None, keeps=False),
    "wsgiref": dict(command="library", threads=1, keeps=False, queue=("accept_queue",), no_100=True),
    "ThreadingHTTPServer": dict(command="library", module="http_server", threads=None, no_500=True),
    "uWSGI": dict(command="uwsgi", queue=("accept_queue",), keeps=False, no_500=True, no_100=True, defers=True),
}

# Debian packages of the purpose `servers`, by kind; the remaining kinds need the packages of `check`
PACKAGES = {
    "gunicorn gevent": ["python3-gevent"],
    "gunicorn uvicorn worker": ["python3-uvloop", "python3-httptools"],
    "uvicorn httptools": ["python3-httptools"],
    "uvicorn uvloop": ["python3-uvloop", "python3-httptools"],
    "FastAPI sync endpoints": ["python3-fastapi"],
    "FastAPI sync endpoints, uvloop": ["python3-fastapi", "python3-uvloop", "python3-httptools"],
    "hypercorn": ["python3-hypercorn"],
    "hypercorn trio": ["python3-hypercorn", "python3-trio"],
    "daphne": ["python3-daphne"],
    "aiohttp": ["python3-aiohttp"],
    "tornado": ["python3-tornado"],
    "twisted WSGI": ["python3-twisted"],
    "werkzeug": ["python3-werkzeug"],
    "uWSGI": ["uwsgi-core", "uwsgi-plugin-python3"],
}


@functools.lru_cache(None)
def lacking(kind):
    """The packages missing here."""
    return [package for package in PACKAGES.get(kind, []) if subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True).stdout != "installed"]


class Service(Server):
    """`addresses`: {"ipv4": (host, port), "ipv6": ..., "unix": path, "uwsgi": (host, port)}, as many as the server can have."""

    def __init__(self, kind, directory, peer):
        self.kind, self.calls, self.pairs, self.delays, self.worker, self.played = kind, [], [], [], 0, {}
        self.command, self.app, self.model, self.threads, self.keeps, self.queue = "", "wsgi", "thread", 2, True, ("queue",)
        self.ipv6 = self.unix = self.green = self.websocket = self.no_500 = self.no_100 = self.defers = False
        self.options, self.module = [], kind
        vars(self).update(KINDS[kind])
        if self.model == "loop":
            self.queue, self.threads = ("accept_queue", "queue"), 1
        self.name = re.sub(r"\W+", "-", kind)
        self.port = free_port()
        self.addresses = {"ipv4": ("127.0.0.1", self.port)}
        if self.ipv6:
            self.addresses["ipv6"] = ("::1", self.port)
        if self.unix:
            self.addresses["unix"] = os.path.join(directory, self.name)
        generation = next((g for g in host.find_gunicorns() if kind == f"gthread-{g.version}"), None)
        paths = [host.WORKLOADS, *([generation.path] if generation and generation.path else [])]
        self.generation = generation
        super().__init__(getattr(self, "run_" + self.command)(), cwd=directory, env={
            "PYTHONPATH": ":".join(paths), "PEER_PORT": str(peer.port), "LEDGER_APP": "fastapi" if self.app == "pool" else ""})

    def run_gunicorn(self):
        binds = [f"--bind=127.0.0.1:{self.port}", f"--bind=[::1]:{self.port}", f"--bind=unix:{self.addresses['unix']}"]
        return [host.DEBIAN_PYTHON, "-m", "gunicorn", *binds, "--workers=1", "--graceful-timeout=1", "--log-level=warning", *self.options,
                *(["--no-control-socket"] if self.generation and self.generation.version >= 25 else []), f"ledger_server_app:{self.app}"]

    def run_uvicorn(self):
        return [host.DEBIAN_PYTHON, "-m", "uvicorn", f"--port={self.port}", "--log-level=error", *self.options, f"ledger_server_app:{self.app}"]

    def run_hypercorn(self):
        return [host.DEBIAN_PYTHON, "-m", "hypercorn", f"--bind=127.0.0.1:{self.port}", f"--bind=[::1]:{self.port}", "--graceful-timeout=1",
                "--log-level=error", *self.options, "ledger_server_app:asgi"]

    def run_daphne(self):
        return [host.DEBIAN_PYTHON, "-m", "daphne", "--endpoint", f"tcp:port={self.port}:interface=127.0.0.1", "--endpoint",
                f"tcp6:port={self.port}:interface=\\:\\:1", "--unix-socket", self.addresses["unix"], "--verbosity=0", "ledger_server_app:asgi"]

    def run_library(self):
        return [host.DEBIAN_PYTHON, os.path.join(host.WORKLOADS, "ledger_server_app.py"), self.module, "127.0.0.1", str(self.port)]

    def run_uwsgi(self):
        self.addresses["uwsgi"] = ("127.0.0.1", free_port())
        [plugin] = sorted(glob.glob("/usr/lib/uwsgi/plugins/python3*_plugin.so"))[:1]
        return ["uwsgi-core", "--plugin", plugin, "--enable-threads", "--threads=2", f"--http-socket=127.0.0.1:{self.port}",
                f"--uwsgi-socket=127.0.0.1:{self.addresses['uwsgi'][1]}", "--module=ledger_server_app:wsgi", "--disable-logging", "--die-on-term"]

    def note_delay(self):
        """Notes how long the threads were ready without a CPU."""
        total = 0
        if self.threads is None:
            total = run_delay_of_all()
        for folder in glob.glob(f"/proc/{self.worker}/task/*") if self.worker and self.threads else []:
            try:
                total += run_delay(folder)
            except OSError:
                pass  # the thread has ended
        self.delays.append((now(), total))

    def ran_ns(self):
        """CPU time of the worker's threads, ended ones included: clock_getcpuclockid(3)."""
        return time.clock_gettime_ns(~self.worker << 3 | 2) if self.worker else 0

    def call(self, path, **more):
        """Makes one request and waits for the end."""
        call = Call(self, path, **more)
        finish([call])
        return call

    def wait_up(self):
        def up():
            try:
                self.worker = self.call("/").truth["pid"]
                return True
            except (ConnectionRefusedError, FileNotFoundError):
                assert self.process.poll() is None, "\n".join(self.log)
        return host.wait_until(up, 30, f"{self.kind} answers")


class Pair:
    """Two requests sent at once. `answered`: number of requests answered by the server."""
    name = "pipelined"

    def __init__(self, service, path):
        self.service, self.traces, data = service, [os.urandom(16).hex() for _ in range(2)], b""
        self.begin = now()
        with connect(service.addresses["ipv4"]) as s:
            self.peer_port = s.getsockname()[1]
            s.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: test\r\ntraceparent: 00-{trace}-{trace[:16]}-01\r\n\r\n".encode()
                               for trace in self.traces))
            s.settimeout(0.5)  # some servers wait for more, and drop the second request
            while data.count(b"HTTP/1.1 200") < 2:
                try:
                    more = s.recv(65536)
                except TimeoutError:
                    break
                if not more:
                    break
                data += more
        self.answered = data.count(b"HTTP/1.1 200") + data.count(b"HTTP/1.0 200")
        self.end = now()

    def may_be(self, row):
        return row["peer_port"] == self.peer_port and self.begin - 10**7 < row["start_time"] * 1000 < self.end

    def wrong(self, rows):
        """rows: the rows of the connection. The second request has no head if both came with a single read; the row is marked
        then."""
        first = [row for row in rows if row["trace_id"] == self.traces[0]]
        second = [row for row in rows if row["trace_id"] == self.traces[1] or "pipelined" in row["not_measured"] and not row["trace_id"]]
        if len(first) != 1 or len(second) > 1 or len(second) < self.answered - 1 or len(rows) != len(first) + len(second):
            yield "one row", f"{self.answered} were answered: {len(first)} and {len(second)} rows: {rows}"
        if self.answered and [row["status"] for row in first] != [200]:
            yield "status", f"the first one was answered; its row: {first}"


def connect(address, small=False):
    """small: only a small part of an unread answer leaves the server."""
    s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    s.settimeout(30)
    if small:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
    s.connect(address)
    return s


class Call:
    """A request on the way. Stamps are in nanoseconds: begin (before connect), connected, sent (before the first byte), sent_all, first (byte
    of the answer), done.

    name: the call counts; calls without a name only warm up. connect_ms: silence after connecting. pieces: [(bytes, ms before)], the body by
    default. to: the address, and the proxy in between: {"through": nginx's port}. follows: uses the connection of the given call.
    read_after_ms: earliest read. ran: CPU time of the server between the first byte and the read, ns.
    """

    def __init__(self, service, path, name=None, method="GET", to="ipv4", through=None, follows=None, keep=False, wait_ms=0, body=b"",
                 pieces=None, expect=False, headers="", read_after_ms=0, leave_after_ms=0, upgrade=False):
        self.service, self.path, self.name, self.method, self.to, self.through = service, path, name, method, to, through
        self.follows, self.keep, self.body, self.upgrade = follows, keep, body, upgrade
        self.leaves, self.read_after_ms = leave_after_ms, read_after_ms
        self.trace, self.span = os.urandom(16).hex(), os.urandom(8).hex()
        self.nth = follows.nth + 1 if follows else 1
        self.data, self.done, self.first, self.truth, self.status = b"", 0, 0, None, None
        service.calls.append(self)
        self.streamed, self.pauses_ms, self.read_at = "/stream" in path, sum(ms for _, ms in pieces(b"", body)) if pieces else 0, 0
        service.note_delay()
        self.delay, self.pressure = -run_delay("/proc/thread-self"), -run_delay_of_all()
        self.begin = now()
        self.socket = follows.socket if follows else connect(through or service.addresses[to], small=read_after_ms > 0)
        self.connected = now()
        self.peer_port = self.socket.getsockname()[1] if self.socket.family != socket.AF_UNIX else 0
        time.sleep(wait_ms / 1000)
        self.head = (f"{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: {'Upgrade' if upgrade else 'keep-alive' if keep else 'close'}\r\n"
                     f"traceparent: 00-{self.trace}-{self.span}-01\r\n{headers}"
                     + (f"Content-Length: {len(body)}\r\n" if body else "") + "Expect: 100-continue\r\n" * expect + "\r\n").encode()
        self.sent = now()
        for piece, ms in pieces(self.head, body) if pieces else [(self.head, 0), (body, 0)]:
            time.sleep(ms / 1000)
            if piece:
                self.socket.sendall(piece)
            if expect and piece is self.head:
                self.data = self.socket.recv(65536)
                assert self.data.startswith(b"HTTP/1.1 100"), self.data
        self.sent_all = now()
        if leave_after_ms:
            time.sleep(leave_after_ms / 1000)
            self.left = now()
            self.socket.close()
            self.delay += run_delay("/proc/thread-self")

    @property
    def bytes_out(self):
        """Without interim answers (100 Continue)."""
        return len(self.answer)

    def received(self, data):
        """True when the answer is complete."""
        self.data += data
        self.done = now()
        self.first = self.first or self.done
        self.answer = self.data
        while self.answer.startswith(b"HTTP/1.1 100"):
            self.answer = self.answer.partition(b"\r\n\r\n")[2]
        head, blank, body = self.answer.partition(b"\r\n\r\n")
        if not blank and data:
            return False
        headers = {name.lower(): value for name, value in HEADER.findall(head + b"\r\n")}
        self.status = int(head.split()[1]) if head else None
        self.framing = "chunked" if b"chunked" in headers.get(b"transfer-encoding", b"") else \
            "length" if b"content-length" in headers or self.method == "HEAD" else "close"
        complete = self.method == "HEAD" or self.status == 101 or not data
        if self.framing == "chunked" and not complete:
            complete = body.endswith(b"\r\n0\r\n\r\n")
        if self.framing == "length" and not complete:
            complete = len(body) >= int(headers[b"content-length"])
        if complete:
            self.delay += run_delay("/proc/thread-self")
            self.pressure += run_delay_of_all()
            self.finish(body)
        return complete

    def finish(self, body):
        if not self.keep and not self.upgrade:
            self.socket.close()
        if self.status == 200 and self.method != "HEAD":
            if self.framing == "chunked":
                body = b"".join(re.split(rb"(?:^|\r\n)[0-9a-fA-F]+\r\n", body))
            self.truth = json.loads(body)

    @property
    def delay_ms(self):
        """How long the client was ready and had no CPU."""
        return self.delay / 1e6

    @property
    def pressure_ms(self):
        """Time in which any thread of this machine was ready without a CPU, such as the thread that delivers
        the data."""
        return max(self.delay, self.pressure) / 1e6

    @property
    def server_delay_ms(self):
        """As pressure_ms() for the server's threads; after the end of the threads, for all of this
        machine."""
        before = [delay for at, delay in self.service.delays if at <= self.begin]
        after = [delay for at, delay in self.service.delays if at >= (self.done or self.left)]
        return (after[0] - before[-1]) / 1e6


def run_delay(folder):
    with open(f"{folder}/schedstat") as f:
        return int(f.read().split()[1])


def run_delay_of_all():
    """Time in which any thread of this machine was ready without a CPU."""
    try:
        with open("/proc/pressure/cpu") as f:
            return int(re.search(r"some .*total=(\d+)", f.read()).group(1)) * 1000
    except OSError:
        return 0  # the kernel does not count run delay


def finish(calls):
    selector = selectors.DefaultSelector()
    for call in calls:
        if call.leaves:
            continue
        if call.read_after_ms:
            select.select([call.socket], [], [], 30)
            call.answered, call.ran = now(), -call.service.ran_ns()
            time.sleep(call.read_after_ms / 1000)
            call.ran += call.service.ran_ns()
        call.read_at = now()
        selector.register(call.socket, selectors.EVENT_READ, call)
    while selector.get_map():
        ready = selector.select(30)
        assert ready, f"no answer within 30 s: {[(key.data.service.kind, key.data.path) for key in selector.get_map().values()]}"
        for key, _ in ready:
            if key.data.received(key.fileobj.recv(1 << 20)):
                selector.unregister(key.fileobj)
    return calls
