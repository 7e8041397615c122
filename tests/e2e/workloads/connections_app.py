# SPDX-License-Identifier: Apache-2.0
"""A service that talks to 10.91.0.2 behind a wire that loses packets; WSGI (gunicorn) and ASGI (uvicorn).
/connect/PORT connects and closes; /echo/PORT sends a line and waits for it; /dns asks a server that never answers for a name; /big sends a
large answer; /await/PORT connects and closes in a coroutine, /name asks for a name there. The answer says in ms how long the call took."""
import asyncio
import socket
import time

UPSTREAM = "10.91.0.2"
BIG = b"x" * 4_000_000


def connect(port):
    socket.create_connection((UPSTREAM, port), timeout=20).close()


def echo(port):
    with socket.create_connection((UPSTREAM, port), timeout=20) as upstream:
        upstream.sendall(b"x" * 100 + b"\n")
        assert upstream.recv(200)


def dns():
    try:
        socket.getaddrinfo("shop.example", 80)
    except socket.gaierror:
        pass


def app(environ, start_response):
    name, _, port = environ["PATH_INFO"][1:].partition("/")
    begun = time.monotonic()
    if name == "big":
        start_response("200 OK", [("Content-Length", str(len(BIG)))])
        return [BIG]
    {"connect": lambda: connect(int(port)), "echo": lambda: echo(int(port)), "dns": dns}[name]()
    body = b"%.3f" % ((time.monotonic() - begun) * 1000)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    begun = time.monotonic()
    name, _, port = scope["path"][1:].partition("/")
    try:
        if name == "name":
            await asyncio.get_running_loop().getaddrinfo("shop.example", 80)
        else:
            (await asyncio.open_connection(UPSTREAM, int(port)))[1].close()
    except socket.gaierror:
        pass
    body = b"%.3f" % ((time.monotonic() - begun) * 1000)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
