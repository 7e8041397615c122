# SPDX-License-Identifier: Apache-2.0
"""Requests of known composition (request_steps.py) on every kind of server: `wsgi`, `asgi`, `pool` (synchronous endpoints of FastAPI), and, by
`ledger_server_app.py SERVER HOST PORT` or `ledger_server_app.py SERVER PATH`, the servers that are libraries. Beside steps a path may have: body (reads the request's), stream-20 (three
parts, 20 ms apart), big-500 (so many KB are added to the answer), raise, and ws, a websocket that echoes."""
import asyncio
import http.server
import os
import sys
import types

import request_steps
from request_steps import Truth


class Plan:
    def __init__(self, path):
        self.words = dict(word.partition("-")[::2] for word in path.strip("/").split("/") if word)
        special = {"body", "stream", "big", "raise"}
        self.steps = list(request_steps.steps("/".join(f"{name}-{ms or 0}" for name, ms in self.words.items() if name not in special)))
        self.reads, self.raises = "body" in self.words, "raise" in self.words
        self.stream_ms, self.padding = int(self.words.get("stream", 0)), b" " * (1000 * int(self.words.get("big", 0)))

    def answer(self, truth):
        if self.raises:
            raise RuntimeError("as asked for")
        return truth.body() + self.padding


def compose(plan, read):
    """All but the streaming."""
    truth = Truth()
    if plan.reads:
        truth.received = len(read())
    for step, ms in plan.steps:
        truth.add(step(ms))
    return truth


async def compose_async(plan, read):
    truth = Truth()
    if plan.reads:
        truth.received = len(await read())
    for step, ms in plan.steps:
        parts = step(ms)
        truth.add(await parts if asyncio.iscoroutine(parts) else parts)
    return truth


def stream(plan, truth):
    for _ in range(2):
        yield b" "
        truth.add(request_steps.step_sleep(plan.stream_ms))
    yield plan.answer(truth)


async def stream_async(plan, truth):
    for _ in range(2):
        yield b" "
        truth.add(await request_steps.step_await(plan.stream_ms))
    yield plan.answer(truth)


def wsgi(environ, start_response):
    plan = Plan(environ["PATH_INFO"])
    truth = compose(plan, lambda: environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    headers = [("Content-Type", "application/json")]
    if plan.stream_ms:
        start_response("200 OK", headers)
        return stream(plan, truth)
    body = plan.answer(truth)
    start_response("200 OK", [*headers, ("Content-Length", str(len(body)))])
    return [body] if environ["REQUEST_METHOD"] != "HEAD" else []


async def asgi(scope, receive, send):
    if scope["type"] == "websocket":
        return await asgi_websocket(receive, send)
    if scope["type"] == "lifespan":  # to return without an answer ends hypercorn's trio worker
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        return await send({"type": "lifespan.shutdown.complete"})
    if scope["type"] != "http":
        return

    async def read():
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        return body
    plan = Plan(scope["path"])
    truth = await compose_async(plan, read)
    start = {"type": "http.response.start", "status": 200, "headers": []}
    if plan.stream_ms:
        await send(start)
        async for part in stream_async(plan, truth):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        return await send({"type": "http.response.body", "body": b""})
    body = plan.answer(truth)
    await send({**start, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def asgi_websocket(receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] != "websocket.receive":
            return
        await send({"type": "websocket.send", "text": message["text"]})


def make_pool():
    """Two threads for the endpoints; the loop reads and writes."""
    import anyio
    from fastapi import Depends, FastAPI, Request, Response
    from fastapi.responses import StreamingResponse
    app = FastAPI()

    @app.on_event("startup")
    async def limit():
        anyio.to_thread.current_default_thread_limiter().total_tokens = 2

    async def body_of(request: Request):
        return await request.body()

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST"])
    def endpoint(path: str, data: bytes = Depends(body_of)):
        plan = Plan(path)
        truth = compose(plan, lambda: data)
        if plan.stream_ms:
            return StreamingResponse(stream(plan, truth))
        return Response(plan.answer(truth))
    return app


def run_aiohttp(host, port=None):
    from aiohttp import web

    async def handle(request):
        if request.path == "/ws":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                await socket.send_str(message.data)
            return socket
        plan = Plan(request.path)
        truth = await compose_async(plan, request.read)
        if not plan.stream_ms:
            return web.Response(body=plan.answer(truth))
        response = web.StreamResponse()
        await response.prepare(request)
        async for part in stream_async(plan, truth):
            await response.write(part)
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    where = {"host": [host, "::1"], "port": int(port)} if port else {"path": host}
    web.run_app(app, **where, print=None, access_log=None)


def run_tornado(host, port=None):
    import tornado.httpserver
    import tornado.netutil
    import tornado.web
    import tornado.websocket

    class Handler(tornado.web.RequestHandler):
        async def get(self):
            async def read():
                return self.request.body
            plan = Plan(self.request.path)
            truth = await compose_async(plan, read)
            if not plan.stream_ms:
                return self.write(plan.answer(truth))
            async for part in stream_async(plan, truth):
                self.write(part)
                await self.flush()
        post = head = get

    class Echo(tornado.websocket.WebSocketHandler):
        def on_message(self, message):
            self.write_message(message)

    async def main():
        app = tornado.web.Application([("/ws", Echo), ("/.*", Handler)], log_function=lambda handler: None)
        if port:
            app.listen(int(port), host)
            app.listen(int(port), "::1")
        else:
            tornado.httpserver.HTTPServer(app).add_socket(tornado.netutil.bind_unix_socket(host))
        await asyncio.Event().wait()
    asyncio.run(main())


def run_waitress(*addresses):
    import waitress
    if addresses[0].startswith("/"):
        waitress.serve(wsgi, unix_socket=addresses[0], threads=2)
    else:
        waitress.serve(wsgi, host=addresses[0], port=int(addresses[1]), threads=2)


def run_twisted(host, port):
    """The WSGI resource, with two threads."""
    import twisted.python.threadpool
    import twisted.web.server
    import twisted.web.wsgi
    from twisted.internet import reactor
    pool = twisted.python.threadpool.ThreadPool(2, 2)
    reactor.callWhenRunning(pool.start)
    reactor.addSystemEventTrigger("after", "shutdown", pool.stop)
    reactor.listenTCP(int(port), twisted.web.server.Site(twisted.web.wsgi.WSGIResource(reactor, pool, wsgi)), interface=host)
    reactor.run()


def run_cheroot(host, port=None):
    import cheroot.wsgi
    cheroot.wsgi.Server((host, int(port)) if port else host, wsgi, numthreads=2).start()


def run_werkzeug(host, port=None):
    import logging
    import werkzeug.serving
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    werkzeug.serving.run_simple(host if port else "unix://" + host, int(port or 0), wsgi, threaded=True)


def run_django(host, port):
    """The server of runserver, with the application of this file."""
    import django.conf
    import django.core.management
    sys.modules["ledger_server_app"] = types.SimpleNamespace(wsgi=wsgi, urlpatterns=[])  # this module, which must not be loaded twice
    django.conf.settings.configure(ALLOWED_HOSTS=["*"], WSGI_APPLICATION="ledger_server_app.wsgi", ROOT_URLCONF="ledger_server_app", SECRET_KEY="-",
                                   LOGGING_CONFIG=None)
    django.core.management.execute_from_command_line(["manage.py", "runserver", "--noreload", f"{host}:{port}"])


def run_wsgiref(host, port):
    import wsgiref.simple_server

    class Quiet(wsgiref.simple_server.WSGIRequestHandler):
        def log_message(self, *_):
            pass
    wsgiref.simple_server.make_server(host, int(port), wsgi, handler_class=Quiet).serve_forever()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes; the second write would wait for the client's ACK

    def do_GET(self):
        plan = Plan(self.path)
        truth = compose(plan, lambda: self.rfile.read(int(self.headers["Content-Length"])))
        if not plan.stream_ms:
            body = plan.answer(truth)
            self.begin("Content-Length", len(body))
            if self.command != "HEAD":
                self.wfile.write(body)
            return
        self.begin("Transfer-Encoding", "chunked")
        for part in (*stream(plan, truth), b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
    do_POST = do_HEAD = do_GET

    def begin(self, name, value):
        self.send_response(200)
        self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


def run_http_server(host, port):
    class Threading(http.server.ThreadingHTTPServer):
        request_queue_size = 128
    Threading((host, int(port)), Handler).serve_forever()


if "fastapi" in os.environ.get("LEDGER_APP", ""):
    pool = make_pool()
if __name__ == "__main__":
    globals()["run_" + sys.argv[1]](*sys.argv[2:])
