# SPDX-License-Identifier: Apache-2.0
"""An event loop in which coroutines block N times in each of the KINDS, and note when and where.
loop_truth.py LOOP N SECONDS; LOOP: asyncio, uvloop, gevent, trio; gil: asyncio beside a thread that holds the GIL N times; thread: the
same calls without a loop, beside epoll."""
import asyncio
import os
import socket
import sys
import threading
import time

from workload import now, tell, warm_up


class Sleep:
    def block(self):
        time.sleep(SECONDS); return here()


class Cpu:
    def block(self):
        until = now() + int(SECONDS * 1e9)
        while now() < until: pass
        return here(-1)


class Waker(threading.Thread):
    """Acts SECONDS after being told."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self.act = act
        self.told, self.teller = os.pipe()
        self.start()

    def tell(self):
        os.write(self.teller, b"x")

    def run(self):
        while os.read(self.told, 1):
            time.sleep(SECONDS)
            self.act()


class Lock:
    """Released by a second thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()
        self.waker = Waker(self.lock.release)

    def block(self):
        self.waker.tell()
        self.lock.acquire(); return here()


class Net:
    """A socket of a blocking client; the answer comes from a second thread."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.client = socket.create_connection(server.getsockname())
            self.server, _ = server.accept()
        self.waker = Waker(lambda: self.server.send(b"x"))

    def block(self):
        self.waker.tell()
        self.client.recv(1); return here()


class Child:
    def block(self):
        pid = os.fork()
        if pid == 0:
            time.sleep(SECONDS)
            os._exit(0)
        os.waitpid(pid, 0); return here()


KINDS = {"sleep": Sleep, "cpu": Cpu, "lock": Lock, "net": Net, "other": Child}


def here(line=0):
    """The caller's place, as named in a row."""
    frame = sys._getframe(1)
    code = frame.f_code
    return [getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno + line]


def run_delay():
    """Of this thread."""
    with open("/proc/thread-self/schedstat") as f:
        return int(f.read().split()[1])


def clocks():
    """This thread's waits for a CPU, CPU time, time: of one moment, as no wait lies between."""
    while True:
        found = run_delay(), time.thread_time_ns(), now()
        if run_delay() == found[0]:
            return found


def block(kind, things):
    """One blocking call with the truth."""
    delay, cpu, start = clocks()
    place = things[kind].block()
    delay_now, cpu_now, stop = clocks()
    return {"kind": kind, "start": start, "stop": stop, "place": place, "delay": delay_now - delay, "cpu": cpu_now - cpu}


def plan():
    """The order of the kinds: all, in turn."""
    return [kind for _ in range(N) for kind in KINDS]


def hold_the_gil(begun, holds):
    """In C code, which does not release the GIL."""
    n = 1_000_000
    while True:  # the count of numbers that takes so long here
        start = time.thread_time()
        sum(range(n))
        took = time.thread_time() - start
        if took > SECONDS:
            break
        n = int(n * min(2, max(1.1, 1.1 * SECONDS / took)))
    begun.wait()
    time.sleep(SECONDS)
    for _ in range(N):
        start = now()
        sum(range(n))
        holds.append((start, now()))
        time.sleep(SECONDS)


async def main(ready):
    things = {kind: make() for kind, make in KINDS.items()}
    while not ready.is_set():  # until the test has seen the rows of a watched loop
        time.sleep(0.12)
        await asyncio.sleep(0.2)
    begin, stalls = now(), []
    await asyncio.sleep(0.01)  # a turn that begins after the stamp
    for kind in plan():
        stalls.append(block(kind, things))
        for _ in range(5):  # busy turns, which are no stalls
            await asyncio.sleep(0)
        await asyncio.sleep(SECONDS * 1.5)  # not blocking either
    tell(begin=begin, end=now(), stalls=stalls)
    while ready.is_set():
        await asyncio.sleep(0.05)


async def beside_a_holder(ready):
    holds, begun = [], threading.Event()
    holder = threading.Thread(target=hold_the_gil, args=(begun, holds))
    holder.start()
    while not ready.is_set():
        time.sleep(0.12)
        await asyncio.sleep(0.2)
    begin = now()
    begun.set()
    while holder.is_alive():
        await asyncio.sleep(0.01)
    tell(begin=begin, end=now(), holds=holds)
    while ready.is_set():
        await asyncio.sleep(0.05)


def with_gevent(ready):
    import gevent
    things = {kind: make() for kind, make in KINDS.items()}
    while not ready.is_set():
        time.sleep(0.12)
        gevent.sleep(0.2)
    begin, stalls = now(), []

    def one(kind):
        stalls.append(block(kind, things))
    gevent.sleep(0.01)
    for kind in plan():
        gevent.spawn(one, kind).join()
        gevent.sleep(SECONDS * 1.5)
    tell(begin=begin, end=now(), stalls=stalls)
    while ready.is_set():
        gevent.sleep(0.05)


async def with_trio(ready):
    import trio
    things = {kind: make() for kind, make in KINDS.items()}
    while not ready.is_set():
        time.sleep(0.12)
        await trio.sleep(0.2)
    begin, stalls = now(), []
    await trio.sleep(0.01)
    for kind in plan():
        stalls.append(block(kind, things))
        for _ in range(5):
            await trio.sleep(0)
        await trio.sleep(SECONDS * 1.5)
    tell(begin=begin, end=now(), stalls=stalls)
    while ready.is_set():
        await trio.sleep(0.05)


def without_a_loop(ready):
    """A server with a main thread that polls as asyncio does without being an event loop, like gunicorn's
    gthread."""
    import selectors
    things = {kind: make() for kind, make in KINDS.items()}
    quiet, other = socket.socketpair()
    poller = selectors.EpollSelector()
    poller.register(quiet, selectors.EVENT_READ)
    while not ready.is_set():
        poller.select(0.05)
    begin, stalls = now(), []
    for kind in plan():
        stalls.append(block(kind, things))
        for _ in range(5):
            poller.select(0)
        poller.select(SECONDS * 1.5)
    tell(begin=begin, end=now(), stalls=stalls)
    while ready.is_set():
        poller.select(0.05)


def converse(ready, done):
    """The test's words come in on a second thread, so the loop turns while waiting."""
    warm_up()
    ready.set()
    os.read(0, 100)
    ready.clear()
    done.set()


def run():
    ready, done = threading.Event(), threading.Event()
    if LOOP == "uvloop":
        import uvloop
        uvloop.install()
    threading.Thread(target=converse, args=(ready, done), daemon=True).start()
    if LOOP == "gevent":
        with_gevent(ready)
    elif LOOP == "trio":
        import trio
        trio.run(with_trio, ready)
    elif LOOP == "thread":
        without_a_loop(ready)
    else:
        asyncio.run((beside_a_holder if LOOP == "gil" else main)(ready))
    done.wait()


LOOP, N, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
run()
