# SPDX-License-Identifier: Apache-2.0
"""A service that asks another one at UPSTREAM_PORT; WSGI (gunicorn) and ASGI (uvicorn).
/new/N opens a connection for the question /N, /kept/N uses one that the thread or the loop keeps; /many/N asks 30 times over one
connection. A thread of its own, or a task of the loop, asks for /background all the time, over a connection that it keeps."""
import asyncio
import http.client
import os
import threading
import time

PORT = int(os.environ["UPSTREAM_PORT"])
MANY = 30
kept = threading.local()


def ask(connection, path):
    connection.request("GET", path)
    return connection.getresponse().read()


def background():
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    while True:
        ask(connection, "/background")
        time.sleep(0.05)


def app(environ, start_response):
    kind, _, n = environ["PATH_INFO"][1:].partition("/")
    if not hasattr(kept, "connection"):
        kept.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    connection = kept.connection if kind == "kept" else http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    for i in range(MANY if kind == "many" else 1):
        ask(connection, f"/{n}-{i}" if kind == "many" else f"/{n}")
    if kind != "kept":
        connection.close()
    start_response("200 OK", [("Content-Length", "0")])
    return []


async def ask_in_loop(reader, writer, path):
    writer.write(b"GET %s HTTP/1.1\r\nHost: upstream\r\n\r\n" % path.encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)


pool = []


async def background_in_loop():
    connection = await asyncio.open_connection("127.0.0.1", PORT)
    while True:
        await ask_in_loop(*connection, "/background")
        await asyncio.sleep(0.05)


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        asgi.task = asyncio.ensure_future(background_in_loop())
        await receive()
        return await send({"type": "lifespan.startup.complete"})
    kind, _, n = scope["path"][1:].partition("/")
    connection = pool.pop() if kind == "kept" and pool else await asyncio.open_connection("127.0.0.1", PORT)
    await ask_in_loop(*connection, f"/{n}")
    if kind == "kept":
        pool.append(connection)
    else:
        connection[1].close()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


if os.environ.get("OUTBOUND_BACKGROUND"):
    threading.Thread(target=background, daemon=True).start()
