# SPDX-License-Identifier: Apache-2.0
"""The main thread waits N times for SECONDS, always in the same way, and notes the durations.
off_cpu_truth.py KIND N SECONDS; a second thread, or a child, ends each wait."""
import json
import os
import select
import socket
import sys
import threading
import time

from workload import listen, now, tell, warm_up


class Sleep:
    waker = False

    def wait(self):
        time.sleep(SECONDS)


class Lock:
    waker = True

    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()

    def wait(self):
        self.lock.acquire()

    def wake(self):
        self.lock.release()


class Pair:
    """Two ends, for reading and for writing."""
    waker = True

    def __init__(self):
        self.read_end, self.write_end = socket.socketpair()

    def wait(self):
        self.read_end.recv(1)

    def wake(self):
        self.write_end.send(b"x")


class Tcp(Pair):
    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.write_end = socket.create_connection(server.getsockname())
            self.read_end, _ = server.accept()


class Poll(Tcp):
    """Like a client library's wait for a server: poll() of a single descriptor."""

    def wait(self):
        self.read_end.settimeout(10)
        self.read_end.recv(1)


class Listener:
    """Like socketserver's serve_forever(): poll() of a listening socket, then accept()."""
    waker = True

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.poll = select.poll()
        self.poll.register(self.server, select.POLLIN)

    def wait(self):
        self.poll.poll()
        self.server.accept()[0].close()

    def wake(self):
        socket.create_connection(self.server.getsockname()).close()


class Epoll(Tcp):
    def wait(self):
        with select.epoll() as epoll:
            epoll.register(self.read_end, select.EPOLLIN)
            epoll.poll(10)
        self.read_end.recv(1)


class Select(Tcp):
    def wait(self):
        select.select([self.read_end, 0], [], [], 10)
        self.read_end.recv(1)


class Pipe:
    waker = True

    def __init__(self):
        self.read_end, self.write_end = os.pipe()

    def wait(self):
        os.read(self.read_end, 1)

    def wake(self):
        os.write(self.write_end, b"x")


class Child:
    waker = False

    def wait(self):
        self.pid = os.fork()
        if self.pid == 0:
            time.sleep(SECONDS)
            os._exit(0)
        os.waitpid(self.pid, 0)


KINDS = {k.__name__.lower(): k for k in (Sleep, Lock, Pair, Tcp, Poll, Listener, Epoll, Select, Pipe, Child)}


class Waker(threading.Thread):
    def __init__(self, kind):
        super().__init__(daemon=True)
        self.kind = kind
        self.go, self.told = os.pipe()
        self.start()

    def run(self):
        while os.read(self.go, 1):
            time.sleep(SECONDS)
            self.kind.wake()


def on_cpu_or_ready():
    """Time in which this thread ran or waited for a CPU, in nanoseconds."""
    with open("/proc/thread-self/schedstat") as f:
        return sum(map(int, f.read().split()[:2]))


def main():
    kind = KINDS[sys.argv[1]]()
    if not warm_up():
        return
    waker = Waker(kind) if kind.waker else None
    waits = []
    begin = now()
    for _ in range(N):
        if waker:
            os.write(waker.told, b"x")
        before, start = on_cpu_or_ready(), now()
        kind.wait()
        stop = now()
        waits.append((start, stop, getattr(kind, "pid", None), on_cpu_or_ready() - before))
    end = now()
    tell(begin=begin, end=end, waits=waits, waker=waker.native_id if waker else None)
    listen()
    os._exit(0)


N, SECONDS = int(sys.argv[2]), float(sys.argv[3])
main()
