# SPDX-License-Identifier: Apache-2.0
"""A server of one thread per connection whose answers end in unusual ways, by the request's path (LATE s pass between the last byte and the
close). Arguments: the listener's protocol, or the path of a unix socket. On stderr: the port."""
import os
import re
import socket
import sys
import tempfile
import threading
import time

LATE = 0.3
BODY = b"x" * 5
KNOWN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + BODY
OPEN = b"HTTP/1.0 200 OK\r\n\r\n" + BODY  # ends with the connection
KEPT = ("/", "/sendfile")


def close_late(connection):
    time.sleep(LATE)
    connection.close()


def answer(connection, path):
    if path == "/sendfile":
        with tempfile.TemporaryFile() as file:
            file.write(KNOWN)
            file.flush()
            os.sendfile(connection.fileno(), file.fileno(), 0, len(KNOWN))
        return
    connection.sendall(OPEN if path in ("/late", "/late-elsewhere") else KNOWN)
    if path == "/late-elsewhere":
        threading.Thread(target=close_late, args=(connection,), daemon=True).start()
    elif path not in KEPT:
        close_late(connection)


def serve(connection):
    got = b""
    while True:
        while b"\r\n\r\n" not in got:
            more = connection.recv(65536)
            if not more:
                return connection.close()
            got += more
        head, got = got.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if length and len(got) < int(length[1]):
            return connection.close()  # a client that leaves within a body
        path = head.split(b" ")[1].decode()
        answer(connection, path)
        if path not in KEPT:
            return None


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[1]))
        listener.bind(("127.0.0.1", 0))
        print(f"Listening at: http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        print("Listening at: http://127.0.0.1:0", file=sys.stderr, flush=True)
    listener.listen()
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
