# SPDX-License-Identifier: Apache-2.0
"""A server that reads into a first piece of 7 bytes, and whose answers begin with a part of the status line: in pieces of one write, the first
one perhaps empty, or in writes of their own, by the request's path. On stderr: the port."""
import socket
import sys

ANSWER = [b"HTTP/1.1 ", b"200 OK\r\nContent-Length: 2\r\n\r\n", b"ok"]


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    first, rest = bytearray(7), bytearray(65536)
    while connection.recvmsg_into([first, rest])[0]:
        if rest.startswith(b"ites "):
            for piece in ANSWER:
                connection.sendall(piece)
        else:
            connection.sendmsg([b"", *ANSWER] if rest.startswith(b"pty ") else ANSWER)


with socket.create_server(("127.0.0.1", 0)) as listener:
    print(f"running on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    while True:
        with listener.accept()[0] as connection:
            serve(connection)
