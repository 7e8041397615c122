# SPDX-License-Identifier: Apache-2.0
"""The main thread waits N times for SECONDS, always in the same way, and notes the durations.
off_cpu_truth.py KIND N SECONDS; a second thread, or a child, ends each wait."""
import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import sys
import tempfile
import threading
import time

from workload import listen, now, tell, warm_up

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import fuse


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


class Output(Pipe):
    """Of a child and of its errors, as subprocess.run(capture_output=True) reads them."""

    def wait(self):
        self.errors = getattr(self, "errors", None) or os.pipe()
        poll = select.poll()
        for end in self.errors[0], self.read_end:
            poll.register(end, select.POLLIN)
        poll.poll()
        os.read(self.read_end, 1)


class Trigger(Tcp):
    """Of a server with poll(): a pipe that wakes it, and sockets."""

    def wait(self):
        self.trigger = getattr(self, "trigger", None) or os.pipe()
        poll = select.poll()
        for end in self.trigger[0], self.read_end:
            poll.register(end, select.POLLIN)
        poll.poll()
        self.read_end.recv(1)


class Child:
    waker = False

    def wait(self):
        self.pid = os.fork()
        if self.pid == 0:
            time.sleep(SECONDS)
            os._exit(0)
        os.waitpid(self.pid, 0)


class Process(Child):
    """By the child's pidfd, as subprocess waits with a timeout since 3.15."""

    def wait(self):
        self.pid = os.fork()
        if self.pid == 0:
            time.sleep(SECONDS)
            os._exit(0)
        poll = select.poll()
        poll.register(pidfd := os.pidfd_open(self.pid), select.POLLIN)
        poll.poll()
        os.close(pidfd)
        os.waitpid(self.pid, 0)


class FileLock:
    """Of two descriptions of one file; the waker's one has the lock."""
    waker = True
    lock = staticmethod(fcntl.flock)

    def __init__(self):
        self.own = tempfile.NamedTemporaryFile()
        self.other = open(self.own.name, "r+")

    def prepare(self):
        self.lock(self.own, fcntl.LOCK_UN)
        self.lock(self.other, fcntl.LOCK_EX)

    def wait(self):
        self.lock(self.own, fcntl.LOCK_EX)

    def wake(self):
        self.lock(self.other, fcntl.LOCK_UN)


class RecordLock(FileLock):
    """F_OFD_SETLKW, as POSIX locks do not exclude threads of one process."""
    F_OFD_SETLKW = 38

    def lock(self, file, kind):
        kind = {fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_UN: fcntl.F_UNLCK}[kind]
        fcntl.fcntl(file, self.F_OFD_SETLKW, struct.pack("hhqqixxxx", kind, 0, 0, 0, 0))


class Semaphore:
    """Of System V."""
    waker = True

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.id = self.libc.semget(0, 1, 0o1600)

    def add(self, value):
        assert self.libc.semop(self.id, struct.pack("Hhh", 0, value, 0), 1) == 0

    def wait(self):
        self.add(-1)

    def wake(self):
        self.add(1)

    def end(self):
        self.libc.semctl(self.id, 0, 0)  # IPC_RMID


class Stat:
    """Attributes of a folder whose file system answers after SECONDS, as with a server behind a network."""
    waker = False

    def __init__(self):
        fuse.own_mounts()
        self.folder = tempfile.mkdtemp()
        self.device = fuse.mount(self.folder)
        self.server = threading.Thread(target=self.serve, daemon=True)
        self.server.start()

    def serve(self):
        while True:
            request = os.read(self.device, 1 << 20)
            opcode, node = struct.unpack_from("<4xI8xQ", request)
            if opcode == fuse.GETATTR:
                time.sleep(SECONDS)
                unique, = struct.unpack_from("<8xQ", request)
                body = struct.pack("<Q2I", 0, 0, 0) + fuse.attributes(node, 0)  # asked again each time
                os.write(self.device, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
            else:
                fuse.respond(self.device, b"", b"", request)

    def wait(self):
        os.stat(self.folder)


KINDS = {k.__name__.lower(): k for k in (Sleep, Lock, Pair, Tcp, Poll, Listener, Epoll, Select, Pipe, Output, Trigger, Child, Process,
                                               FileLock, RecordLock, Semaphore, Stat)}


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
        if hasattr(kind, "prepare"):
            kind.prepare()
        if waker:
            os.write(waker.told, b"x")
        before, start = on_cpu_or_ready(), now()
        kind.wait()
        stop = now()
        waits.append((start, stop, getattr(kind, "pid", None), on_cpu_or_ready() - before))
    end = now()
    waker = waker or getattr(kind, "server", None)
    tell(begin=begin, end=end, waits=waits, waker=waker.native_id if waker else None)
    if hasattr(kind, "end"):
        kind.end()
    listen()
    os._exit(0)


N, SECONDS = int(sys.argv[2]), float(sys.argv[3])
main()
