# SPDX-License-Identifier: Apache-2.0
"""Two threads that compute in an isolated subinterpreter. gil_subinterpreter.py SECONDS; reports the ids."""
import os
import sys
import threading
import time

from subinterpreters import interpreters
from workload import listen, now, run_delay_ns, tell, warm_up

INSIDE = """
import json, os, threading, time
until = time.perf_counter_ns() + {ns}
def compute():
    while time.perf_counter_ns() < until:
        sum(range(1000))
other = threading.Thread(target=compute)
other.start()
compute()
with open("/proc/thread-self/schedstat") as f:
    delay = int(f.read().split()[1])
os.write({pipe}, json.dumps([threading.get_native_id(), other.native_id, delay]).encode())
other.join()
"""


def create():
    try:
        return interpreters.create("isolated")  # 3.13
    except TypeError:
        return interpreters.create(isolated=True)


def main():
    import json
    if not warm_up():
        return
    interpreter = create()
    time.sleep(1.5)  # the agent looks for new interpreters every second
    read, write = os.pipe()
    ns = int(float(sys.argv[1]) * 1e9)
    before = run_delay_ns()
    begin = now()
    thread = threading.Thread(target=interpreters.run_string,
                              args=(interpreter, INSIDE.format(ns=ns, pipe=write)))
    thread.start()
    thread.join()
    a, b, delay = json.loads(os.read(read, 1000))
    tell(begin=begin, wall_ns=ns, inside=[a, b], run_delay_ns=2 * delay + run_delay_ns() - before)
    listen()
    os._exit(0)


main()
