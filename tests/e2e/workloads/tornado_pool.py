# SPDX-License-Identifier: Apache-2.0
"""tornado that answers /plain at once and has a pool of one thread answer /pool, each with the id of the thread that ran the handler."""
import asyncio
import socket
import sys
import threading
import time

import tornado.httpserver
import tornado.netutil
import tornado.web


def work():
    time.sleep(0.02)
    return threading.get_native_id()


class Plain(tornado.web.RequestHandler):
    def get(self):
        self.write(str(threading.get_native_id()))


class Pool(tornado.web.RequestHandler):
    async def get(self):
        self.write(str(await asyncio.get_running_loop().run_in_executor(None, work)))


async def main():
    [listener] = tornado.netutil.bind_sockets(0, "127.0.0.1")
    # a connection is accepted with its request, which is read at once: not after a wait, if the client was slow
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
    tornado.httpserver.HTTPServer(tornado.web.Application([("/plain", Plain), ("/pool", Pool)])).add_socket(listener)
    print(f"running on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
