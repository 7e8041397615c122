# SPDX-License-Identifier: Apache-2.0
"""Threads that wait for the GIL. gil_contention.py KIND SECONDS: cpu4 (four that compute), hold (one that keeps the
GIL in long calls, a reader, two that wake again and again), gc (the same with full collections)."""
import gc
import os
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


def sort(until):
    data = list(range(100000, 0, -1)) + list(range(100000))
    while now() < until:
        sorted(data)
        data.reverse()


def collect(until):
    kept = [{} for _ in range(200000)]
    while now() < until:
        gc.collect()
    del kept


KINDS = {"cpu4": [compute] * 4, "hold": [sort, read, wake, wake], "gc": [collect, wake, wake]}


def main():
    kind, seconds = sys.argv[1], float(sys.argv[2])
    if not warm_up():
        return
    begin = now()
    until = begin + int(seconds * 1e9)
    before = run_delay_ns()

    def run(function):
        function(until)
        thread_ends()

    threads = [threading.Thread(target=run, args=(f,)) for f in KINDS[kind]]
    for thread in threads:
        thread.start()
    tids = [thread.native_id for thread in threads]
    for thread in threads:
        thread.join()
    tell(begin=begin, end=now(), tids=tids, run_delay_ns=run_delay_ns() - before)
    listen()
    os._exit(0)


main()
