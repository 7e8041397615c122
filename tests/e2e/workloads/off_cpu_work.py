# SPDX-License-Identifier: Apache-2.0
"""Waits of unpredictable duration. off_cpu_work.py KIND: compute (two processes on one CPU), disk (written and
synced, read past the cache), fault (a mapped file absent from memory), pingpong (two threads, one lock each).
Reports the kernel's counters of the main thread."""
import mmap
import os
import resource
import sys
import tempfile
import threading
import time

from workload import listen, now, tell, warm_up

DIRECTORY = "/var/tmp"  # /tmp may have no disk below


def schedstat():
    with open("/proc/thread-self/schedstat") as f:
        _, run_delay, switches = map(int, f.read().split())
    # the first number is as old as the last tick of the clock for a running thread
    return time.thread_time_ns(), run_delay, switches


def compute():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    child = os.fork()
    if child == 0:
        while os.getppid() != 1:
            sum(range(10000))
        os._exit(0)
    until = now() + 2 * 10**9
    while now() < until:
        sum(range(10000))
    os.kill(child, 9)
    os.waitpid(child, 0)


def disk():
    with tempfile.NamedTemporaryFile(dir=DIRECTORY) as f:
        for _ in range(53):
            f.write(b"x" * 100000)
            f.flush()
            os.fsync(f.fileno())


def fault():
    with tempfile.NamedTemporaryFile(dir=DIRECTORY) as f:
        f.write(os.urandom(1 << 20) * 32)
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            if hasattr(mapped, "madvise"):
                mapped.madvise(mmap.MADV_RANDOM)
            sum(mapped[i] for i in range(0, len(mapped), 65536))


def pingpong():
    here, there = threading.Lock(), threading.Lock()
    here.acquire()
    there.acquire()
    rounds = 5003

    def other():
        for _ in range(rounds):
            there.acquire()
            here.release()

    thread = threading.Thread(target=other)
    thread.start()
    for _ in range(rounds):
        there.release()
        here.acquire()
    thread.join()
    return {"other": thread.native_id}


def main():
    if not warm_up():
        return
    before, faults = schedstat(), resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    begin = now()
    more = globals()[sys.argv[1]]() or {}
    end = now()
    after = schedstat()
    tell(begin=begin, end=end, run_delay_ns=after[1] - before[1], on_cpu_ns=after[0] - before[0],
         switches=after[2] - before[2], major_faults=resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - faults,
         **more)
    listen()
    os._exit(0)


main()
