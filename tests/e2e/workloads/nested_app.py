# SPDX-License-Identifier: Apache-2.0
"""request_app.py whose handlers call their own server: /call-80 asks for /sleep-80 (the loop: /await-80), /deep-80 for /sleep-20/call-80
(/await-20/call-80), in the trace of the request. The answer's `inner` is what the called one answered, `called` the call's nanoseconds.
A program for threads (`nested_app.py`), and ASGI (`asgi`)."""
import asyncio
import http.client
import http.server
import json
import sys
import time

from request_app import Handler, HttpHandler, steps

WAITS = {"call": "/{wait}-{ms}", "deep": "/{wait}-20/call-{ms}"}


def carried_on(traceparent):
    """The header of a call: the same trace; a parent that is the caller's and one more."""
    version, trace, parent, flags = traceparent.split("-")
    return f"{version}-{trace}-{int(parent, 16) + 1:016x}-{flags}"


def answer(handler, inner, called):
    truth = json.loads(handler.done())
    return json.dumps({**truth, "inner": inner, "called": called}).encode()


class Nested(HttpHandler):
    def call(self, path):
        connection = http.client.HTTPConnection(*self.server.server_address)
        connection.request("GET", path, headers={"traceparent": carried_on(self.headers["traceparent"])})
        inner = json.loads(connection.getresponse().read())
        connection.close()
        return inner

    def do_GET(self):
        handler, inner, called = Handler(), None, 0
        for name, ms in steps(self.path):
            if name in WAITS:
                begin = time.monotonic_ns()
                inner = self.call(WAITS[name].format(wait="sleep", ms=ms))
                called = time.monotonic_ns() - begin
            else:
                handler.step(name, ms)
        body = answer(handler, inner, called)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


async def call(server, path, traceparent):
    reader, writer = await asyncio.open_connection(*server)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\ntraceparent: {carried_on(traceparent)}\r\nConnection: close\r\n\r\n".encode())
    text = await reader.read()
    writer.close()
    return json.loads(text.split(b"\r\n\r\n", 1)[1])


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    handler, inner, called = Handler(), None, 0
    for name, ms in steps(scope["path"]):
        if name in WAITS:
            begin = time.monotonic_ns()
            inner = await call(scope["server"], WAITS[name].format(wait="await", ms=ms), dict(scope["headers"])[b"traceparent"].decode())
            called = time.monotonic_ns() - begin
        elif name == "await":
            await asyncio.sleep(ms / 1000)
        else:
            handler.step(name, ms)
    body = answer(handler, inner, called)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nested)
    server.daemon_threads = True
    print(f"Listening at: http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
    server.serve_forever()
