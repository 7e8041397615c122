# SPDX-License-Identifier: Apache-2.0
"""Servers in which no connection waits for a thread, though some have threads (asyncio, reader, accepting); and servers in which each connection
is picked up by a different thread: a new thread (threading), a thread with only a dup()ed descriptor (duplicating), a child made for the
connection (forking), a child that receives the connection by SCM_RIGHTS (passing). And popular servers: cheroot, waitress, uvicorn.
other_servers.py NAME; answers each request with one line of JSON."""
import array
import asyncio
import http.server
import json
import os
import queue
import signal
import socket
import sys
import threading
import time

from workload import warm_up

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def listener():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(100)
    return s


def run_asyncio(s):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.01)
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    async def serve():
        server = await asyncio.start_server(answer, sock=s)
        await server.serve_forever()

    asyncio.run(serve())


def run_reader(s):
    """As waitress does: the main thread reads requests, worker threads compute and write the answer."""
    tasks = queue.Queue()

    def answer():
        while True:
            connection = tasks.get()
            time.sleep(0.01)
            connection.sendall(ANSWER)
            connection.close()

    for _ in range(2):
        threading.Thread(target=answer, daemon=True).start()
    while True:
        connection, _ = s.accept()
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        tasks.put(connection)


def answer_with_ids(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    body = json.dumps({"pid": os.getpid(), "tid": threading.get_native_id()}).encode()
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    connection.close()


def run_accepting(s):
    """Like uWSGI: each thread accepts."""
    def serve():
        while True:
            answer_with_ids(s.accept()[0])

    for _ in range(3):
        threading.Thread(target=serve, daemon=True).start()
    serve()


def run_duplicating(s):
    tasks = queue.Queue()

    def serve():
        while True:
            answer_with_ids(socket.socket(fileno=tasks.get()))

    threading.Thread(target=serve, daemon=True).start()
    while True:
        connection, _ = s.accept()
        tasks.put(os.dup(connection.fileno()))
        connection.close()


def run_forking(s):
    """The parent's descriptor has the same number each time."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = s.accept()
        if os.fork() == 0:
            time.sleep(0.02)
            answer_with_ids(connection)
            os._exit(0)
        connection.close()


def run_passing(s):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        here.close()
        while True:
            _, ancillary, _, _ = there.recvmsg(1, socket.CMSG_LEN(4))
            if not ancillary:
                os._exit(0)  # the parent is gone
            answer_with_ids(socket.socket(fileno=array.array("i", ancillary[0][2])[0]))
    while True:
        connection, _ = s.accept()
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
        connection.close()


def ids(environ, start_response):
    body = json.dumps({"pid": os.getpid(), "tid": threading.get_native_id()}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


async def ids_async(scope, receive, send):
    body = json.dumps({"pid": os.getpid(), "tid": threading.get_native_id()}).encode()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


def run_cheroot(s):
    """The main thread polls, worker threads read."""
    import cheroot.wsgi
    address = s.getsockname()
    s.close()
    cheroot.wsgi.Server(address, ids, numthreads=3).start()


def run_waitress(s):
    import waitress
    s.setblocking(False)
    waitress.serve(ids, sockets=[s], threads=3)


def run_uvicorn(s):
    import uvicorn
    uvicorn.Server(uvicorn.Config(ids_async, log_level="error", lifespan="off", loop="asyncio", http="h11")).run(sockets=[s])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps({"pid": os.getpid(), "tid": threading.get_native_id()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def run_threading(s):
    server = http.server.ThreadingHTTPServer(s.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = s
    server.serve_forever()


s = listener()
if warm_up(port=s.getsockname()[1]):
    globals()["run_" + sys.argv[1]](s)
