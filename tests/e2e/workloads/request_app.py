# SPDX-License-Identifier: Apache-2.0
"""A service with answers that report the composition of the request, by clocks of the service: WSGI (`wsgi`), ASGI (`asgi`), and as a
program `request_app.py PORT` a ThreadingHTTPServer. /sleep-40/cpu-20/await-30: that many milliseconds of each. The answer is JSON:
nanoseconds of CPU, of waiting for a CPU, asleep, the whole handler with begin and end, and the thread's switches; `tid`: the thread of the
handler."""
import asyncio
import http.server
import json
import os
import resource
import sys
import threading
import time

MS = 1_000_000


def run_delay():
    with open("/proc/thread-self/schedstat") as f:
        return int(f.read().split()[1])


def switches():
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_nvcsw + used.ru_nivcsw


def spin(ms):
    until = time.thread_time_ns() + ms * MS
    while time.thread_time_ns() < until:
        pass


def steps(path):
    for step in path.split("?")[0].strip("/").split("/"):
        name, _, ms = step.partition("-")
        if ms:
            yield name, int(ms)


class Handler:
    """Measures a handler from the construction to done()."""

    def __init__(self):
        self.asleep = 0
        self.begin, self.cpu, self.delay, self.switches = time.monotonic_ns(), time.thread_time_ns(), run_delay(), switches()

    def sleep(self, ms):
        begin = time.monotonic_ns()
        time.sleep(ms / 1000)
        self.asleep += time.monotonic_ns() - begin

    def step(self, name, ms):
        if name == "sleep":
            self.sleep(ms)
        elif name == "cpu":
            spin(ms)
        elif name == "exit":
            os._exit(ms)
        elif name == "fork" and not os.fork():  # a child that has all descriptors, as of a pool of processes
            time.sleep(ms / 1000)
            os._exit(0)

    def done(self):
        end = time.monotonic_ns()
        return json.dumps({"cpu": time.thread_time_ns() - self.cpu, "runq": run_delay() - self.delay, "asleep": self.asleep,
                           "handler": end - self.begin, "begin": self.begin, "end": end,
                           "switches": switches() - self.switches, "tid": threading.get_native_id()}).encode()


def serve(path):
    handler = Handler()
    for name, ms in steps(path):
        handler.step(name, ms)
    return handler.done()


def wsgi(environ, start_response):
    body = serve(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", str(len(body))), ("Content-Type", "application/json")])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    handler = Handler()
    for name, ms in steps(scope["path"]):
        if name == "await":
            await asyncio.sleep(ms / 1000)
        else:
            handler.step(name, ms)
    body = handler.done()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


class HttpHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes; the second one would wait for the client's ACK

    def do_GET(self):
        body = serve(self.path)
        self.send_response(404 if self.path.startswith("/missing") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HttpHandler)
    server.daemon_threads = True
    print(f"Listening at: http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
    server.serve_forever()
