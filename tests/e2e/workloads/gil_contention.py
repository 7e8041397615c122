# SPDX-License-Identifier: Apache-2.0
"""Threads that wait for the GIL. gil_contention.py KIND SECONDS; the kinds are in KINDS below."""
import functools
import gc
import hashlib
import operator
import os
import signal
import socket
import sys
import threading
import time

from workload import listen, now, run_delay_ns, tell, thread_ends, warm_up


def compute(until):
    while now() < until:
        sum(range(1000))


def read(until):
    with open("/dev/zero", "rb", buffering=0) as f:
        while now() < until:
            f.read(1)


def wake(until):
    while now() < until:
        time.sleep(0.001)


def take_turns(until):
    """Drops the GIL itself, while siblings sleep for it."""
    while now() < until:
        sum(range(100000))
        time.sleep(0.001)


held = []  # when the first thread certainly had the GIL: begin, end, begin, end, ...


def hold(function, *args):
    """Calls the function between two reads of the clock, all in C: the GIL cannot be released in between."""
    begin, _, end = list(map(operator.methodcaller("__call__"), (now, functools.partial(function, *args), now)))
    held.extend((begin, end))


def sort(until):
    data = list(range(100000, 0, -1)) + list(range(100000))
    while now() < until:
        hold(sorted, data)
        data.reverse()


def collect(until):
    kept = [{} for _ in range(200000)]
    while now() < until:
        hold(gc.collect)
    del kept


def convoy(until):
    """Sends bytes to the same thread: releases the GIL at each call, and must queue again."""
    a, b = socket.socketpair()
    while now() < until:
        a.send(b"x")
        b.recv(1)
    a.close()
    b.close()


def churn(until):
    while now() < until:
        time.sleep(0)


def digest(until):
    """Computes most of the time without the GIL, in a C extension."""
    data = bytes(200000)
    while now() < until:
        hashlib.sha256(data).digest()


def spawn(until):
    """Threads that end while siblings wait."""
    while now() < until:
        threads = [threading.Thread(target=sum, args=(range(20000),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def interrupt(until):
    """Signals at each of the process's threads in turn: the signals interrupt the sleep on the futex."""
    others = [t.ident for t in threading.enumerate() if t.ident != threading.get_ident()]
    while now() < until:
        for ident in others:
            try:
                signal.pthread_kill(ident, signal.SIGUSR1)
            except ProcessLookupError:
                pass
        time.sleep(0.002)


def switch_often():
    sys.setswitchinterval(1e-5)


def switch_seldom():
    sys.setswitchinterval(0.1)


def one_cpu():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


# functions of the threads, and the preparation
KINDS = {
    "cpu4": ([compute] * 4,),
    "hold": ([sort, read, wake, wake],),  # one thread keeps the GIL in long calls
    "gc": ([collect, wake, wake],),
    "convoy": ([compute, convoy, convoy, convoy],),
    "often": ([compute] * 3 + [convoy], switch_often),
    "seldom": ([compute] * 3 + [wake], switch_seldom),
    "turns": ([take_turns] * 4,),
    "many": ([compute] * 50,),
    "churn": ([compute, churn, churn],),
    "digest": ([compute, digest, digest],),
    "spawn": ([compute, spawn],),
    "signals": ([compute] * 3 + [interrupt],),
    "pinned": ([compute] * 3 + [convoy, wake], one_cpu),
}


def main():
    kind, seconds = sys.argv[1], float(sys.argv[2])
    functions, prepare = (*KINDS[kind], lambda: None)[:2]
    signal.signal(signal.SIGUSR1, lambda *_: None)
    prepare()
    if not warm_up():
        return
    begin = now()
    until = begin + int(seconds * 1e9)
    before = run_delay_ns()

    def run(function):
        function(until)
        thread_ends()

    threads = [threading.Thread(target=run, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    tids = [thread.native_id for thread in threads]
    for thread in threads:
        thread.join()
    tell(begin=begin, end=now(), tids=tids, held=held, run_delay_ns=run_delay_ns() - before)
    listen()
    os._exit(0)


main()
