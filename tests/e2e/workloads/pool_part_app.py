# SPDX-License-Identifier: Apache-2.0
"""Handlers that run on the loop and use its pool for a part, by steps in the path: /sleep-20/cpu-10/pool-5/net-5. `wsgi` is for gunicorn's gevent
worker, `asgi` for uvicorn. The answer's head names the loop's thread, and for how long a thread of the pool was missing or ran."""
import asyncio
import socket
import threading
import time

MS = 1_000_000
try:  # gevent replaces it by a sleep of the loop
    from gevent.monkey import get_original
    native_sleep = get_original("time", "sleep")
except ImportError:
    native_sleep = time.sleep


def spin(ms):
    until = time.thread_time_ns() + ms * MS
    while time.thread_time_ns() < until:
        pass


class Truth:
    def __init__(self):
        self.tid, self.waited, self.worked = threading.get_native_id(), 0, 0

    def work(self, ms):
        """To be called by a thread of the pool."""
        handed = time.monotonic_ns()

        def run():
            begin = time.monotonic_ns()
            native_sleep(ms / 1000)
            self.waited += begin - handed
            self.worked += time.monotonic_ns() - begin
        return run

    def headers(self):
        return [("X-Tid", str(self.tid)), ("X-Waited", str(self.waited)), ("X-Worked", str(self.worked)), ("Content-Length", "0")]


def steps(path):
    return [(name, int(ms)) for name, _, ms in (word.partition("-") for word in path.strip("/").split("/"))]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    truth, loop = Truth(), asyncio.get_running_loop()
    for name, ms in steps(scope["path"]):
        if name == "sleep":
            await asyncio.sleep(ms / 1000)
        elif name == "cpu":
            spin(ms)
        elif name == "pool":
            await loop.run_in_executor(None, truth.work(ms))
        elif name == "name":
            await loop.getaddrinfo("localhost", 80)
    headers = [(name.encode(), value.encode()) for name, value in truth.headers()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def wsgi(environ, start_response):
    import gevent
    truth = Truth()
    for name, ms in steps(environ["PATH_INFO"]):
        if name == "sleep":
            gevent.sleep(ms / 1000)
        elif name == "cpu":
            spin(ms)
        elif name == "pool":
            gevent.get_hub().threadpool.apply(truth.work(ms))
        elif name == "name":
            socket.getaddrinfo("localhost", 80)
    start_response("200 OK", truth.headers())
    return []
