# SPDX-License-Identifier: Apache-2.0
"""Applications with a handler that blocks the thread for a time given in the path (/block/0.2) and answers with time
and place: ASGI (`asgi`), WSGI (`wsgi`), and aiohttp's server, when run as a program."""
import json
import os
import sys
import time


def unpatched_sleep():
    """gunicorn's gevent worker replaces time.sleep() by a function that does not block."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey.get_original("time", "sleep") if monkey else time.sleep


def block(path):
    sleep, start = unpatched_sleep(), time.perf_counter_ns()
    if path.startswith("/block/"):
        sleep(float(path[len("/block/"):])); line = sys._getframe().f_lineno
        return {"start": start, "stop": time.perf_counter_ns(), "pid": os.getpid(), "place": ["block", __file__, line]}
    return {}


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = json.dumps(block(scope["path"])).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def wsgi(environ, start_response):
    body = json.dumps(block(environ["PATH_INFO"])).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def main():
    from aiohttp import web

    async def answer(request):
        return web.json_response(block(request.path))

    async def serve():
        import asyncio
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        print(f"running on http://127.0.0.1:{port}", file=sys.stderr, flush=True)
        await asyncio.Event().wait()

    import asyncio
    asyncio.run(serve())


if __name__ == "__main__":
    main()
