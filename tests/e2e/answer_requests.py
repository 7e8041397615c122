# SPDX-License-Identifier: Apache-2.0
"""Real servers under workloads/answer_app.py, a client with its own clock, and the permitted answers about each request."""
import json
import os
import selectors
import socket
import threading
import time

import host
from agent import PATIENCE
from answers import PARTS
from servers import Server, connect, free_port

HOST_NAME = "answers"
OTEL = os.path.join(host.ROOT, "deploy", "otel")
DEMO = os.path.join(host.ROOT, "deploy", "demo")
BEFORE = ("accept_ms", "client_wait_ms", "handoff_ms")
INSIDE = [part for part in PARTS if part not in (*BEFORE, "gc_ms", "rest_ms", "cpu_ms")]
LOOPS = ("uvicorn", "hypercorn")
REASONS = {"accept_ms": "accept queue: ", "client_wait_ms": ("hand-off: ", "client: "), "handoff_ms": "hand-off: "}
now = time.time_ns


class Peer:
    """Answers each connection's number of milliseconds so much later, with the clock's time."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                time.sleep(int(connection.recv(100)) / 1000)
                connection.sendall(b"%d" % now())

    def kill(self):
        self.listener.close()


class Service(Server):
    """answer_app.py under one of `COMMANDS`, in one process."""

    def __init__(self, kind, directory, sdk, peer, port=None, generation=None):
        self.kind, self.port = kind, port or free_port()
        self.address = ("127.0.0.1", self.port)
        self.spans_path = os.path.join(directory, f"{kind}-{self.port}.jsonl")
        self.requests = []
        paths = [host.WORKLOADS, OTEL, DEMO, sdk, *([generation.path] if generation and generation.path else [])]
        super().__init__([host.DEBIAN_PYTHON, *self.command(generation)], cwd=directory, env={
            "PYTHONPATH": ":".join(paths), "SPANS_FILE": self.spans_path, "PEER_PORT": str(peer.port), "OWN_PORT": str(self.port), "HOST_NAME": HOST_NAME})

    def command(self, generation):
        if self.kind in ("waitress", "werkzeug"):
            return [os.path.join(host.WORKLOADS, "answer_app.py"), self.kind, str(self.port)]
        if self.kind == "hypercorn":
            return ["-m", "hypercorn", "answer_app:asgi", f"--bind=127.0.0.1:{self.port}"]
        if self.kind == "uvicorn":
            return ["-m", "uvicorn", "answer_app:asgi", f"--port={self.port}", "--log-level=warning", "--loop=asyncio", "--http=h11"]
        return ["-m", "gunicorn", f"--bind=127.0.0.1:{self.port}", "--workers=1", "--graceful-timeout=2", "answer_app:wsgi",
                *(["--worker-class=sync"] if self.kind == "sync" else ["--worker-class=gthread", "--threads=2", "--keep-alive=5"]),
                *(["--no-control-socket"] if generation.version >= 25 else [])]

    def ask(self, path, **more):
        """Sends one request and waits for the end."""
        request = self.send(path, **more)
        finish([request])
        return request

    def send(self, path, name=None, **more):
        """name: the request counts; requests without a name only warm up."""
        request = Request(self, path, name, **more)
        if name:
            self.requests.append(request)
        return request

    def wait_up(self):
        def up():
            try:
                return self.ask("/")
            except ConnectionRefusedError:
                assert self.process.poll() is None, "\n".join(self.log)
        return host.wait_until(up, 15, f"{self.kind} answers")

    def spans(self):
        with open(self.spans_path) as f:
            return [json.loads(line) for line in f]


class Request:
    """A request already sent. `slow_ms`: pause after the connect. `follows`: uses the connection of that request. Stamps are
    in nanoseconds."""

    def __init__(self, service, path, name, slow_ms=0, follows=None, keep=False):
        self.service, self.path, self.name, self.follows = service, path, name, follows
        self.trace, self.span = os.urandom(16).hex(), os.urandom(8).hex()
        self.begin = now()
        self.socket = follows.socket if follows else connect(service.address)
        self.connected = now()
        time.sleep(slow_ms / 1000)
        self.sent = now()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: {'keep-alive' if keep else 'close'}\r\n"
                             f"traceparent: 00-{self.trace}-{self.span}-01\r\n\r\n").encode())
        self.keep, self.data = keep, b""

    def received(self, data):
        """True when the answer is complete."""
        assert data, f"{self.service.kind} closed without an answer: {self.data}"
        self.data += data
        self.done = now()
        head, _, body = self.data.partition(b"\r\n\r\n")
        try:
            self.truth = json.loads(body)
        except ValueError:
            return False
        assert head.startswith(b"HTTP/1.1 200"), head
        if not self.keep:
            self.socket.close()
        return True

    @property
    def waited(self):
        return (self.done - self.begin) / 1e6

    def client_span(self):
        return {"Timestamp": self.begin, "TraceId": self.trace, "SpanId": self.span, "SpanName": self.name, "SpanKind": "Client",
                "ResourceAttributes": {"host.name": HOST_NAME}, "Duration": self.done - self.begin}


def finish(requests):
    selector = selectors.DefaultSelector()
    for request in requests:
        selector.register(request.socket, selectors.EVENT_READ, request)
    while selector.get_map():
        ready = selector.select(30)
        assert ready, "no answer within 30 s"
        for key, _ in ready:
            if key.data.received(key.fileobj.recv(65536)):
                selector.unregister(key.fileobj)
    return requests


class Known:
    """The times of a request by the clocks of both ends, and whether an answer agrees. Stamps in ns, lengths in ms."""

    def __init__(self, request, span, around):
        """span: row of the request's server span; around: all requests of the service."""
        self.request, self.kind, truth = request, request.service.kind, request.truth
        self.start, self.end, self.span = span["Timestamp"], span["Timestamp"] + span["Duration"], span["Duration"] / 1e6
        self.collections = {tuple(c) for other in around for c in other.truth["collections"] if c[1]}
        self.own_gc = {c for c in self.collections if c[2] == truth["tid"]}
        others = [other for other in around if other is not request and other.truth["tid"] == truth["tid"]]
        self.parts = {name + "_ms": ns / 1e6 for name, ns in truth["parts"].items()}
        self.unsure = truth["delay"] / 1e6 + self.parts.pop("unsure_ms", 0)
        self.cpu = (truth["cpu"] - sum(c[3] for c in self.own_gc if truth["begin"] < c[0] < truth["end"])) / 1e6
        # collections of siblings take precedence: the sleep of a thread is shorter by a collection in the same time
        self.others_gc = self.gc(self.start, self.end, self.collections - self.own_gc)[1]
        # work of the thread outside the parts: parsing, writing the answer, waiting for a CPU, or for the GIL
        # while siblings ran
        self.unexplained = max(0, self.span - sum(self.parts.values()) - self.cpu - self.gc(self.start, self.end, self.own_gc)[0])
        # time of further requests of an event loop's thread, during which the loop did not poll
        self.meanwhile = sum(max(0, min(o.truth["end"], truth["end"]) - max(o.truth["begin"], truth["begin"])) for o in others) / 1e6
        self.sent, self.slow = request.sent, (request.sent - request.connected) / 1e6
        self.accept_called, self.accepted = (None, None) if request.follows else truth["accepted"]
        self.early = (request.sent - request.begin) / 1e6  # from connect to a late first byte
        self.hidden = (self.start - self.sent) / 1e6
        # end of the previous request of the thread; an event loop accepts connections between requests
        ends = [o.truth["end"] for o in others if self.sent < o.truth["end"] <= truth["begin"]]
        self.free = max(ends, default=self.sent)
        self.taken = self.free
        if self.kind in LOOPS:
            self.taken = self.sent if request.follows else min(ends, default=self.sent)
        elif self.kind in ("waitress", "werkzeug"):
            self.taken = self.sent

    def gc(self, begin, end, some=None):
        """How long the process stood still for collections, at least and at most: a stamp may be older than the collection."""
        some = self.collections if some is None else some
        most = sum(max(0, min(end, c[1]) - max(begin, c[0])) for c in some)
        return max(0, most - sum(c[1] - c[0] - c[3] for c in some if c[0] < end and c[1] > begin)) / 1e6, most / 1e6

    def wrong(self, row, ports, callers):
        return [*self.wrong_inside(row), *self.wrong_before(row, ports), *self.wrong_whole(row, callers)]

    @staticmethod
    def says(row, part, low, high):
        slack = max(2 * PATIENCE, 0.02 * high)
        if row[part] is None or not low - slack <= row[part] <= high + slack:
            yield f"{part} is {row[part]}, not {low:.3f} to {high:.3f}"

    def wrong_inside(self, row):
        for part in INSIDE:
            nominal = self.parts.get(part, 0)
            busy = self.meanwhile if part == "poll_ms" else 0
            yield from self.says(row, part, nominal - self.unsure - busy - self.others_gc, nominal + self.unsure + self.unexplained)
        yield from self.says(row, "cpu_ms", self.cpu - self.unsure, self.cpu + self.unsure + self.unexplained)
        (low, high), (own_low, own_high) = self.gc(row["from_us"] * 1000, row["to_us"] * 1000), self.gc(self.start, self.end, self.own_gc)
        yield from self.says(row, "gc_ms", low, high)
        yield from self.says(row, "gc_others_ms", low - own_high, high - own_low)
        if self.kind in LOOPS and not any("own share" in text for text in row["not_measured"]):
            yield "that others may have run meanwhile is not said"

    def wrong_before(self, row, ports):
        """The wait for a thread is time in the server's queue where the queue has rows, and NULL, not 0, elsewhere."""
        queue = "accept_ms" if self.kind in ("sync", *LOOPS) else "handoff_ms"
        unseen = (self.free - self.taken) / 1e6
        for part in BEFORE:
            low, high = 0, self.hidden - (self.free - self.sent) / 1e6 + self.early
            if part == queue:
                low, high = (self.taken - self.sent) / 1e6 - self.gc(self.sent, self.taken)[1], high + (self.taken - self.sent) / 1e6
            if part == "accept_ms":
                low, high = self.in_accept_queue()
            elif part == "client_wait_ms" and self.accepted:  # before a loop's read, or a worker's
                low = max(0, self.sent - max(self.accepted, self.request.connected)) / 1e6 - self.gc(self.request.connected, self.sent)[1]
            elif self.accepted and self.taken > self.accepted > self.sent:
                low = min(low, (self.taken - self.accepted) / 1e6 - self.gc(self.accepted, self.taken)[1])
            if row[part] is None:
                if not any(text.startswith(REASONS[part]) for text in row["not_measured"]):
                    yield f"{part} is NULL without a reason"
                if self.is_seen(part) and (ports or self.kind in ("sync", "gthread-20", "gthread-23")):
                    yield f"{part} is NULL"
            elif part == "handoff_ms" and unseen > 2:
                yield f"{part} is {row[part]}, and {unseen:.3f} are not seen"
            else:
                yield from self.says(row, part, low, high)

    def in_accept_queue(self):
        """At least until accept() was called, at most until accept() returned."""
        if not self.accepted:
            return 0, 0
        low = max(0, self.accept_called - self.request.connected) / 1e6 - self.gc(self.request.connected, self.accepted)[1]
        return max(0, low), (self.accepted - self.request.begin) / 1e6

    def is_seen(self, part):
        return self.kind.startswith("gthread") or part == "accept_ms" or (self.kind == "sync" and part == "handoff_ms")

    def wrong_whole(self, row, callers):
        if abs(sum(row[part] or 0 for part in PARTS) - row["total_ms"]) > 0.002:
            yield "the parts do not add up"
        yield from self.says(row, "span_ms", self.span, self.span)
        whole = (max(self.request.done, self.end) - self.request.begin) / 1e6
        if callers:
            yield from self.says(row, "total_ms", self.request.waited, whole)
            yield from self.says(row, "caller_ms", self.request.waited, self.request.waited)
        elif row["handoff_ms"] is not None and row["accept_ms"] is not None and self.free > self.sent:
            yield from self.says(row, "total_ms", self.span + self.hidden, whole)
        if self.slow > 20 and (callers or (self.kind.startswith("gthread") and row["handoff_ms"] is not None)):
            # the connection may have been accepted during this time
            slow = (row["accept_ms"] or 0) + (row["client_wait_ms"] or 0) + row["rest_ms"]
            if not self.slow - 2 <= slow <= whole - self.span + 2:
                yield f"accept queue, client and rest are {slow:.3f}, and the client was slow for {self.slow:.3f}"
