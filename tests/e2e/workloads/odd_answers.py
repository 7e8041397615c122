# SPDX-License-Identifier: Apache-2.0
"""A server of one thread per connection whose answers are what no server should send: GET /NAME, then the connection is closed. On stderr: the port."""
import socket
import sys
import threading
import time


def each(data):
    return [data[i:i + 1] for i in range(len(data))]


HEAD = b"HTTP/1.1 200 OK\r\n"
# name: what is written, and the status that it has; None: none that can be told
ANSWERS = {
    "plain": ([HEAD + b"Content-Length: 5\r\n\r\nhello"], 200),
    "no_length": ([HEAD + b"\r\nhello"], 200),
    "too_short": ([HEAD + b"Content-Length: 100\r\n\r\nhello"], 200),
    "status_99999": ([b"HTTP/1.1 99999 Odd\r\nContent-Length: 2\r\n\r\nok"], None),
    "status_2": ([b"HTTP/1.1 2\r\nContent-Length: 2\r\n\r\nok"], None),
    "garbage": ([b"\0\xff" * 500], None),
    "huge_head": ([HEAD + b"X: " + b"a" * 100_000 + b"\r\nContent-Length: 2\r\n\r\nok"], 200),
    "bad_chunks": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\nhello\r\n0\r\n\r\n"], 200),
    "no_last_chunk": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"], 200),
    "length_and_chunks": ([HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n"], 200),
    "negative_length": ([HEAD + b"Content-Length: -1\r\n\r\nhello"], 200),
    "endless_length": ([HEAD + b"Content-Length: 184467440737095516160\r\n\r\nhello"], 200),
    "body_by_bytes": ([HEAD + b"Content-Length: 5\r\n\r\n", *each(b"hello")], 200),
    "carriage_returns": ([b"HTTP/1.1 200 OK\rContent-Length: 2\r\rok"], 200),
    "line_feeds": ([b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"], 200),
    "escapes": ([b"HTTP/1.1 503 \x1b[2J<script>\r\nContent-Length: 2\r\n\r\nok"], 503),
    "nothing": ([], None),
}


def serve(connection):
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(4096)
        if not more:
            return connection.close()
        got += more
    for piece in ANSWERS[got.split(b" ")[1][1:].decode()][0]:
        connection.sendall(piece)
    time.sleep(0.005)
    connection.close()


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"Listening at: http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
