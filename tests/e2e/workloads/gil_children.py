# SPDX-License-Identifier: Apache-2.0
"""Children by fork, each with two threads that compute for a second. gil_children.py N; reports the life of
each."""
import json
import os
import sys
import threading

from workload import listen, now, run_delay_ns, tell, thread_ends, warm_up


def compute(until):
    while now() < until:
        sum(range(1000))
    thread_ends()


def child(pipe):
    begin = now()
    threads = [threading.Thread(target=compute, args=(begin + 10**9,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    tids = [thread.native_id for thread in threads] + [threading.get_native_id()]
    for thread in threads:
        thread.join()
    os.write(pipe, json.dumps({"pid": os.getpid(), "wall_ns": now() - begin, "tids": tids,
                               "run_delay_ns": run_delay_ns()}).encode() + b"\n")
    os._exit(0)


def main():
    if not warm_up():
        return
    children = []
    for _ in range(int(sys.argv[1])):  # in sequence: no more threads than CPUs
        read, write = os.pipe()
        if os.fork() == 0:
            child(write)
        os.close(write)
        children.append(json.loads(os.read(read, 65536)))
        os.wait()
    tell(children=children)
    listen()
    os._exit(0)


main()
