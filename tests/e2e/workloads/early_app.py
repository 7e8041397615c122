# SPDX-License-Identifier: Apache-2.0
"""Answers POST at once, without the request's body: `asgi`, `wsgi`, and, run as a program, aiohttp, or (`early_app.py PORT refuse`) http.server,
which refuses to read the body that a client wants to send. Each answer's body is the path."""
import http.server
import sys


def wsgi(environ, start_response):
    body = environ["PATH_INFO"].encode()
    start_response("413 Too Large" if environ["REQUEST_METHOD"] == "POST" else "200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = scope["path"].encode()
    await send({"type": "http.response.start", "status": 413 if scope["method"] == "POST" else 200,
                "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def handler(request):
    from aiohttp import web
    return web.Response(text=request.path, status=413 if request.method == "POST" else 200)


class Refusing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_expect_100(self):
        self.do_GET(417)
        return False

    def do_GET(self, status=200):
        body = self.path.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if sys.argv[2:] == ["refuse"]:
        http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Refusing).serve_forever()
    from aiohttp import web
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None)
