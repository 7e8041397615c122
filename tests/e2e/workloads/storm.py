# SPDX-License-Identifier: Apache-2.0
"""storm.py THREADS SECONDS: threads with many short sleeps, and a thread with many connects.
Counts both."""
import os
import socket
import sys
import threading
import time

from workload import listen, now, tell, warm_up


def main():
    if not warm_up():
        return
    n_threads = int(sys.argv[1])
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    address = listener.getsockname()
    slept, slept_ns, connected = [0] * n_threads, [0] * n_threads, [0]

    def accept():
        while True:
            listener.accept()[0].close()

    def sleep(i, until):
        before = now()
        while before < until:
            time.sleep(0.002)
            after = now()
            slept[i] += 1
            slept_ns[i] += after - before
            before = after

    def connect(until):
        while now() < until:
            socket.create_connection(address).close()
            connected[0] += 1

    threading.Thread(target=accept, daemon=True).start()
    begin = now()
    until = begin + int(float(sys.argv[2]) * 1e9)
    threads = [threading.Thread(target=sleep, args=[i, until]) for i in range(n_threads)]
    threads.append(threading.Thread(target=connect, args=[until]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(begin=begin, end=now(), slept=sum(slept), slept_ns=sum(slept_ns), connected=connected[0])
    listen()
    os._exit(0)


main()
