# SPDX-License-Identifier: Apache-2.0
"""A client that sends a request's body slowly, and handlers that read a body slowly which has come: servers with an event loop, and waitress,
whose reader takes the body. The client's and the handler's clocks are the truth of what `explain` says."""
import http.client
import json
import os
import time

import pytest

import servers
from agent import NO_ENGINE, plain_build
from answer_watched import watched
from test_request import trace_of

pytestmark = plain_build(NO_ENGINE)
APP = r'''
import asyncio, json, time

async def app(scope, receive, send):
    """/read: the body at once; /sink: 0.1 s of work behind each piece; /work: 0.4 s of work first."""
    if scope["type"] == "lifespan":
        for event in "startup", "shutdown":
            await receive()
            await send({"type": f"lifespan.{event}.complete"})
        return
    path, asked, n, more = scope["path"], 0, 0, True
    if path == "/work":
        await asyncio.sleep(0.4)
    while more:
        begin = time.monotonic()
        message = await receive()
        asked += time.monotonic() - begin
        more = message.get("more_body", False)
        n += len(message.get("body", b""))
        if path == "/sink":
            await asyncio.sleep(0.1)
    body = json.dumps({"received_ms": 1000 * asked, "bytes": n}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})

def wsgi(environ, start_response):
    body = json.dumps({"received_ms": 0, "bytes": len(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))}).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

async def of_aiohttp():
    from aiohttp import web

    async def handler(request):
        n, begin = 0, time.monotonic()
        if request.path == "/work":
            await asyncio.sleep(0.4)
        asked = 0
        while True:
            begin = time.monotonic()
            data = await request.content.readany()
            asked += time.monotonic() - begin
            if not data:
                break
            n += len(data)
            if request.path == "/sink":
                await asyncio.sleep(0.1)
        return web.json_response({"received_ms": 1000 * asked, "bytes": n})
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path}", handler)
    return app

if __name__ == "__main__":
    import sys
    from aiohttp import web
    web.run_app(of_aiohttp(), host="127.0.0.1", port=int(sys.argv[1]))
'''
SERVERS = {"uvicorn, h11": ["-m", "uvicorn", "--log-level=error", "--loop=asyncio", "--http=h11", "--port={port}", "uploads_app:app"],
           "uvicorn, uvloop": ["-m", "uvicorn", "--log-level=error", "--loop=uvloop", "--http=httptools", "--port={port}", "uploads_app:app"],
           "hypercorn": ["-m", "hypercorn", "--bind=127.0.0.1:{port}", "uploads_app:app"],
           "daphne": ["-m", "daphne", "-p", "{port}", "uploads_app:app"],
           "aiohttp": ["{app}", "{port}"],
           "waitress": ["-m", "waitress", "--threads=1", "--listen=127.0.0.1:{port}", "uploads_app:wsgi"]}
PIECES, PAUSE = 8, 0.06


def upload(port, path, i, pieces=PIECES, pause=PAUSE, size=1000, chunked=False):
    """(ms until the answer, ms from the head to the last piece, the handler's words)"""
    connection, begun = http.client.HTTPConnection("127.0.0.1", port), time.monotonic()
    connection.putrequest("POST", path)
    connection.putheader("traceparent", f"00-{trace_of(i)}-{i:016x}-01")
    connection.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(pieces * size))))
    connection.endheaders()
    for _ in range(pieces):
        time.sleep(pause)
        connection.send(b"%x\r\n%s\r\n" % (size, bytes(size)) if chunked else bytes(size))
    if chunked:
        connection.send(b"0\r\n\r\n")
    sent = (time.monotonic() - begun) * 1000
    said = json.loads(connection.getresponse().read())
    connection.close()
    return (time.monotonic() - begun) * 1000, sent, said


@pytest.mark.parametrize("name", SERVERS)
def test_a_body_that_comes_slowly(name, tmp_path, cleanup, debian_python, monkeypatch):
    (tmp_path / "uploads_app.py").write_text(APP)
    port = servers.free_port()
    argv = [part.format(port=port, app=tmp_path / "uploads_app.py") for part in SERVERS[name]]
    server = servers.Server([debian_python.path, *argv], cwd="/tmp", env={"PYTHONPATH": str(tmp_path)})
    ask, agent = watched(server, tmp_path, cleanup, monkeypatch, lambda: upload(port, "/read", 10**6, 1, 0), ["off_cpu", "tcp_connect"])
    time.sleep(1)
    for i in range(3):
        upload(port, "/read", 10**6 + i, 2, 0.01)
    time.sleep(1)
    loads = {1: {"path": "/read"}, 2: {"path": "/read", "chunked": True}, 3: {"path": "/work", "pieces": 1, "pause": 0},
             4: {"path": "/sink", "pause": 0, "pieces": 4, "size": 1 << 17}}
    if name == "waitress":
        loads = {i: loads[i] for i in (1, 2)}
    elif name == "daphne":  # it takes the whole body into a file first
        del loads[4]
    told = {i: upload(port, i=i, **load) for i, load in loads.items()}
    agent.stop()
    for i, (ms, sent, said) in told.items():
        done = ask.command("explain", "--json", trace_of(i))
        assert done.returncode == 0, done.stderr
        [row] = [r for r in json.loads(done.stdout)["requests"] if r["pid"] == server.pid]
        causes = {c["cause"]: c for c in row["causes"]}
        waited = row["client_wait_ms"] if name == "waitress" else row["body_wait_ms"]
        print(f"{name} {loads[i]}: {ms:.0f} ms, the body sent in {sent:.0f}, the handler waited {said['received_ms']:.0f}; row: await {row['await_ms']:.0f}, for the client {waited:.0f}")
        assert said["bytes"] == loads[i].get("pieces", PIECES) * loads[i].get("size", 1000) and abs(row["duration_ms"] - ms) < 30 + row["runq_ms"], (row, ms)
        if loads[i]["path"] == "/read":
            # the loop, woken by a piece, may wait for a CPU
            assert 0.8 * sent - row["runq_ms"] - row["cpu_ms"] < waited < sent + 5, (waited, sent, row)
            late = causes["client_late"]
            assert late["ms"] >= waited > 0.8 * late["ms"] and f", pid {os.getpid()}" in late["said"], late
            assert late["fix"] == "find what kept that client from sending", late
        else:
            # the bytes were there: in the socket until the handler had room
            assert waited < said["received_ms"] + 20 and waited < 0.2 * row["await_ms"] and row["await_ms"] > 150, (waited, said, row)
            assert "client_late" not in causes and causes["await"], causes
