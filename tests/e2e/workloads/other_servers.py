# SPDX-License-Identifier: Apache-2.0
"""Servers in which no connection waits for a thread, though some have threads; and one where a thread is made for
each. other_servers.py asyncio|reader|threading; answers each request with one line of JSON."""
import asyncio
import http.server
import json
import os
import queue
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
    {"asyncio": run_asyncio, "reader": run_reader, "threading": run_threading}[sys.argv[1]](s)
