# SPDX-License-Identifier: Apache-2.0
"""A server that reads each head from a duplicate of the connection's descriptor, and closes that: `GET /service-60` asks a service of its
own, over a socket that gets the same number; `POST /body-60` reads the body from a further duplicate. The answer is the nanoseconds that
the service took, or that the body was waited for."""
import socket
import sys
import threading
import time


def serve_service(listener):
    while True:
        peer = listener.accept()[0]
        time.sleep(int(peer.recv(100)) / 1000)
        peer.sendall(b"done")
        peer.close()


def read_head(connection):
    """The head, and the number of the descriptor that it was read from."""
    with connection.dup() as duplicate:
        return duplicate.recv(65536), duplicate.fileno()


def work(connection, service):
    head, fd = read_head(connection)
    method, path = head.decode().split()[:2]
    begin = time.monotonic_ns()
    if method == "POST":
        # not under the number of the descriptor that was closed
        with socket.socket(), connection.dup() as duplicate:
            assert duplicate.fileno() != fd
            duplicate.recv(100)
    else:
        with socket.create_connection(service) as s:
            assert s.fileno() == fd
            s.sendall(path.partition("-")[2].encode())
            s.recv(100)
    body = b"%d" % (time.monotonic_ns() - begin)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def main():
    service = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_service, args=(service,), daemon=True).start()
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"Listening at: http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    while True:
        with listener.accept()[0] as connection:
            work(connection, service.getsockname())


main()
