# SPDX-License-Identifier: Apache-2.0
"""Answers the first request of a connection, shuts its direction down 50 ms later, and drops what comes after that until the client closes."""
import socket
import sys
import time

listener = socket.create_server(("127.0.0.1", 0))
print(f"Listening at: http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        time.sleep(0.05)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.05)
        while connection.recv(512):
            pass
