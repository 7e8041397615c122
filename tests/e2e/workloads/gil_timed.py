# SPDX-License-Identifier: Apache-2.0
"""A thread that releases the GIL in otherwise empty calls, and notes the duration of each: the wait for the GIL,
except for time on a CPU, and time after an involuntary preemption. gil_timed.py SECONDS"""
import functools
import operator
import os
import resource
import sys
import threading
import time

from workload import listen, now, tell, warm_up

LONG_NS = 1_000_000


def compute(until):
    while now() < until:
        sum(range(1000))


def timed(until, calls):
    # all in C: the GIL cannot be released except in the call
    zero = os.open("/dev/zero", os.O_RDONLY)
    usage = functools.partial(resource.getrusage, resource.RUSAGE_THREAD)
    steps = (usage, now, time.thread_time_ns, functools.partial(os.read, zero, 1), time.thread_time_ns, now, usage)
    while now() < until:
        before, begin, cpu, _, cpu_after, end, after = map(operator.methodcaller("__call__"), steps)
        slept = end - begin - (cpu_after - cpu)
        if slept >= LONG_NS and after.ru_nvcsw > before.ru_nvcsw and after.ru_nivcsw == before.ru_nivcsw:
            calls.append((begin, end, slept))


def main():
    seconds = float(sys.argv[1])
    if not warm_up():
        return
    # no process of the machine takes the CPU, and no thread waits for a holder without a CPU
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    until = now() + int(seconds * 1e9)
    calls = []
    threads = [threading.Thread(target=compute, args=(until,)) for _ in range(2)]
    threads.append(threading.Thread(target=timed, args=(until, calls)))
    for thread in threads:
        thread.start()
    tid = threads[-1].native_id
    for thread in threads:
        thread.join()
    tell(timed=tid, calls=calls)
    listen()
    os._exit(0)


main()
