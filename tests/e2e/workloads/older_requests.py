# SPDX-License-Identifier: Apache-2.0
"""A server of HTTP/1.1 on a TCP and a unix socket, a thread for each connection. What it does at last waits for a file of the path's name in the directory."""
import os
import socket
import sys
import threading
import time

DIRECTORY = sys.argv[1]


def wait_for(path):
    while not os.path.exists(os.path.join(DIRECTORY, path.strip("/"))):
        time.sleep(0.005)


def head(more=b"Content-Length: 2"):
    return b"HTTP/1.1 200 OK\r\n" + more + b"\r\n\r\n"


def answer(s, path, left):
    """`left`: of the body, to be read."""
    if path == "/stream":
        s.sendall(head(b"Transfer-Encoding: chunked"))
    if path == "/told":
        s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if path != "/now" and not path.startswith("/upload"):
        wait_for(path)
    if path in ("/continue", "/tell"):
        s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.02)
    while left > 0:
        left -= len(s.recv(65536))
    if path == "/stream":
        for part in (b"5\r\nhello\r\n", b"A\r\n0123456789\r\n", b"0\r\n\r\n"):
            s.sendall(part)
            time.sleep(0.02)
    elif path == "/parts":
        s.sendall(head(b"Content-Length: 34"))
        for _ in range(2):
            time.sleep(0.02)
            s.sendall(b"HTTP/1.1 200 OK\r\n")
    else:
        s.sendall(head() + b"ok")


def serve(s):
    got = b""
    while True:
        while b"\r\n\r\n" not in got:
            more = s.recv(65536)
            if not more:
                return
            got += more
        lines, got = got.split(b"\r\n\r\n", 1)
        length = next((int(line.split(b":")[1]) for line in lines.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
        taken, got = got[:length], got[length:]
        answer(s, lines.split(b" ")[1].decode(), length - len(taken))


def accept(listener):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


local = socket.socket(socket.AF_UNIX)
local.bind(os.path.join(DIRECTORY, "socket"))
local.listen()
threading.Thread(target=accept, args=(local,), daemon=True).start()
everyone = socket.create_server(("127.0.0.1", 0))
print("Listening at:", everyone.getsockname()[1], file=sys.stderr, flush=True)
accept(everyone)
