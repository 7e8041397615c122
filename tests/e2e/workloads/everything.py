# SPDX-License-Identifier: Apache-2.0
"""everything.py SECONDS: threads that continuously contend for the GIL, sleep, collect garbage, send requests to siblings,
and block an event loop: events for every tracker of processes."""
import asyncio
import gc
import os
import socket
import sys
import threading
import time

from workload import listen, now, tell, warm_up


def compute(until):
    while now() < until:
        sum(range(20000))


def sleep(until):
    while now() < until:
        time.sleep(0.001)


def collect(until):
    while now() < until:
        gc.collect(0)
        time.sleep(0.002)


def connect(until, address):
    while now() < until:
        with socket.create_connection(address) as s:
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")
            s.recv(100)


def serve(listener):
    """One thread accepts, further threads read and answer: hand-offs and requests."""
    def answer(connection):
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            return
        threading.Thread(target=answer, args=[connection], daemon=True).start()


def stall(until):
    async def turns():
        while now() < until:
            time.sleep(0.15)
            await asyncio.sleep(0)

    asyncio.run(turns())


def main():
    if not warm_up():
        return
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=[listener], daemon=True).start()
    until = now() + int(float(sys.argv[1]) * 1e9)
    threads = [threading.Thread(target=f, args=[until]) for f in (compute, compute, sleep, sleep, collect, stall)]
    threads.append(threading.Thread(target=connect, args=[until, listener.getsockname()]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(end=now())
    listen()
    os._exit(0)


main()
