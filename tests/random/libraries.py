# SPDX-License-Identifier: Apache-2.0
"""libraries.py SERVER HOST PORT, or SERVER PATH: the servers that are libraries, with the applications of app.py."""
import asyncio
import http.server
import os
import socketserver
import sys

import app  # which may replace what others import
import steps
from app import Plan, run, run_async, wsgi
from async_steps import step_await
from truth import Truth


def run_aiohttp(host, port=None):
    from aiohttp import web

    async def answer(request, plan, truth):
        await run_async(truth, plan, request.read)
        if not plan.stream_ms:
            truth.end()
            return web.Response(body=plan.body, status=plan.status)
        response = web.StreamResponse(status=plan.status)
        await response.prepare(request)
        for _ in range(2):
            await response.write(b"part\n")
            truth.add(await step_await(plan.stream_ms))
        truth.end()
        await response.write(plan.body)
        return response

    async def handle(request):
        plan = Plan(request.path)
        truth = Truth(plan.number)
        try:
            return await answer(request, plan, truth)
        except BaseException:
            truth.cancel()
            raise
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", handle)
    where = {"host": host, "port": int(port)} if port else {"path": host}
    web.run_app(application, **where, print=None, access_log=None)


def run_tornado(host, port=None):
    import tornado.httpserver
    import tornado.netutil
    import tornado.web

    class Handler(tornado.web.RequestHandler):
        async def get(self):
            plan = Plan(self.request.path)
            truth = Truth(plan.number)
            try:
                await self.answer(plan, truth)
            except BaseException:
                truth.cancel()
                raise
        post = head = put = delete = get

        async def answer(self, plan, truth):
            async def read():
                return self.request.body
            await run_async(truth, plan, read)
            self.set_status(plan.status)
            for _ in range(2 * (plan.stream_ms > 0)):
                self.write(b"part\n")
                await self.flush()
                truth.add(await step_await(plan.stream_ms))
            truth.end()
            self.write(plan.body)

        def compute_etag(self):
            """None: of a large answer it takes milliseconds."""

    async def main():
        application = tornado.web.Application([("/.*", Handler)], log_function=lambda handler: None)
        if port:
            application.listen(int(port), host)
        else:
            tornado.httpserver.HTTPServer(application).add_socket(tornado.netutil.bind_unix_socket(host))
        await asyncio.Event().wait()
    asyncio.run(main())


def run_waitress(host, port=None):
    import waitress
    waitress.serve(wsgi, threads=3, **({"host": host, "port": int(port)} if port else {"unix_socket": host}))


def run_twisted(host, port=None):
    """The WSGI resource, with three threads."""
    import twisted.python.threadpool
    import twisted.web.server
    import twisted.web.wsgi
    from twisted.internet import reactor
    pool = twisted.python.threadpool.ThreadPool(3, 3)
    reactor.callWhenRunning(pool.start)
    reactor.addSystemEventTrigger("after", "shutdown", pool.stop)
    site = twisted.web.server.Site(twisted.web.wsgi.WSGIResource(reactor, pool, wsgi))
    if port:
        reactor.listenTCP(int(port), site, interface=host)
    else:
        reactor.listenUNIX(host, site)
    reactor.run()


def run_cheroot(host, port=None):
    import cheroot.wsgi
    cheroot.wsgi.Server((host, int(port)) if port else host, wsgi, numthreads=3).start()


def run_werkzeug(host, port=None):
    import logging
    import werkzeug.serving
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    werkzeug.serving.run_simple(host if port else "unix://" + host, int(port or 0), wsgi, threaded=True)


def run_pywsgi(host, port):
    import gevent.pywsgi
    gevent.pywsgi.WSGIServer((host, int(port)), wsgi, log=None).serve_forever()


def run_wsgiref(host, port):
    import wsgiref.simple_server

    class Quiet(wsgiref.simple_server.WSGIRequestHandler):
        def log_message(self, *_):
            pass
    wsgiref.simple_server.make_server(host, int(port), wsgi, handler_class=Quiet).serve_forever()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = os.environ.get("RANDOM_PROTOCOL", "HTTP/1.1")
    disable_nagle_algorithm = True  # head and body are two writes; the second write would wait for the client's ACK

    def do_GET(self):
        plan = Plan(self.path)
        truth = run(plan, self.read)
        if plan.stream_ms:
            return self.stream(plan, truth)
        truth.end()
        self.begin(plan.status, "Content-Length", len(plan.body))
        if self.command != "HEAD":
            self.wfile.write(plan.body)
    do_POST = do_HEAD = do_PUT = do_DELETE = do_GET

    def read(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def stream(self, plan, truth):
        """In chunks, or until the connection's end."""
        chunked = self.protocol_version == "HTTP/1.1"
        form = (lambda part: b"%x\r\n%s\r\n" % (len(part), part)) if chunked else bytes
        self.begin(plan.status, *(["Transfer-Encoding", "chunked"] if chunked else []))
        for _ in range(2):
            self.wfile.write(form(b"part\n"))
            truth.add(steps.step_sleep(plan.stream_ms))
        truth.end()
        self.wfile.write(form(plan.body))
        if chunked:
            self.wfile.write(form(b""))

    def begin(self, status, *header):
        self.send_response(status)
        if header:
            self.send_header(*header)
        self.end_headers()

    def log_message(self, *_):
        pass


class HTTPServer(http.server.HTTPServer):
    request_queue_size = 128


def run_http_server(host, port):
    HTTPServer((host, int(port)), Handler).serve_forever()


def run_threading(host, port):
    class Server(socketserver.ThreadingMixIn, HTTPServer):
        daemon_threads = True
    Server((host, int(port)), Handler).serve_forever()


def run_forking(host, port):
    class Server(socketserver.ForkingMixIn, HTTPServer):
        pass
    Server((host, int(port)), Handler).serve_forever()


def run_threading_unix(path):
    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        request_queue_size = 128
        daemon_threads = True

    class UnixHandler(Handler):
        disable_nagle_algorithm = False  # a unix socket has none
    Server(path, UnixHandler).serve_forever()


if __name__ == "__main__":
    globals()["run_" + sys.argv[1]](*sys.argv[2:])
