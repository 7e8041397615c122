# SPDX-License-Identifier: Apache-2.0
"""Collections, hand-offs and waits for the GIL of named threads, at known places in the code, and the program's
knowledge of each: generation, values, name, stack, holder of the GIL. every_python.py COLLECTIONS HANDOFFS WAITS."""
import gc
import os
import queue
import socket
import sys
import threading
import time

from workload import frames, listen, now, tell, warm_up

GC_NAMES = ["gc-größe", "名前-2"]
WORKER_NAMES = ["worker-größe", "作業-2"]
SLEEP = 0.003
collections = []
begun = {}


def callback(phase, info):
    tid = threading.get_native_id()
    if phase == "start":
        begun[tid] = now()
        return
    collections.append({"begin": begun[tid], "end": now(), "tid": tid, "name": threading.current_thread().name,
                        "stack": frames(sys._getframe(1)), **info})


class Node:
    def again(self, n, generation):
        if n:
            return self.again(n - 1, generation)
        self.me = self
        del self
        return [gc.collect(generation) for _ in (1,)]


def collect(n, pause=1.2):
    time.sleep(pause)  # a thread's name is read some milliseconds after the start, on a busy machine later
    for i in range(n):
        Node().again(i % 5, i % 3)
        for x in (lambda: list(map(gc.collect, [0])), lambda: sorted([2, 1], key=lambda v: gc.collect(1) or v)):
            x()
        time.sleep(0)


class Worker:
    """Picks connections up, the first bytes of which came milliseconds ago, from all kinds of calls."""

    def __init__(self, tasks, handoffs):
        self.tasks, self.handoffs = tasks, handoffs

    def take(self, connection):
        return (self.note(sys._getframe()), connection.recv(100))[1]

    def note(self, frame):
        self.handoffs.append({"port": self.port, "tid": threading.get_native_id(),
                              "name": threading.current_thread().name, "stack": frames(frame)})

    def deeper(self, n, connection):
        return self.deeper(n - 1, connection) if n else self.take(connection)

    def run(self):
        for i, (connection, self.port) in enumerate(iter(self.tasks.get, None)):
            time.sleep(0.003)
            [lambda: self.deeper(i % 31, connection),
             lambda: sorted([2, 1], key=lambda v: v == 2 and self.take(connection) and v or v),
             lambda: [self.take(c) for c in (connection,)],
             lambda: sum(len(self.take(c)) for c in [connection])][i % 4]()
            connection.close()


def hand_over(n, tasks):
    """The main thread accepts and also connects, so that no byte is late. Returns the clients' ends."""
    clients = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(n)
        for _ in range(n):
            client = socket.create_connection(listener.getsockname())
            client.sendall(b"what?")
            clients.append(client)
            tasks.put((listener.accept()[0], client.getsockname()[1]))
    return clients


def hold(n, calls, done):
    """Holds the GIL for milliseconds: sorting does not release the GIL."""
    data = [float(i * 7919 % 300007) for i in range(300007)]
    for _ in range(n):
        begin = now()
        sorted(data)
        calls.append((begin, now()))
        time.sleep(0.004)
    done.append(True)


def wait(waits, done):
    """Wakes periodically; a late wake-up means that the second thread had the GIL."""
    delay = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    while not done:
        delay_before = int(os.pread(delay, 100, 0).split()[1])
        before = now()
        time.sleep(SLEEP)
        after = now()
        waits.append((before, after, int(os.pread(delay, 100, 0).split()[1]) - delay_before))


def main():
    n_collections, n_handoffs, n_waits = map(int, sys.argv[1:])
    gc.freeze()
    if not warm_up():
        return
    tasks, handoffs = queue.Queue(), []
    workers = [threading.Thread(target=Worker(tasks, handoffs).run, name=name) for name in WORKER_NAMES]
    for worker in workers:
        worker.start()  # early, so that the names are known in the counted part
    begin = now()
    gc.disable()
    gc.callbacks.append(callback)
    threads = [threading.Thread(target=collect, args=(n_collections,), name=name) for name in GC_NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    collect(n_collections, 0)
    gc.callbacks.remove(callback)
    middle = now()
    clients = hand_over(n_handoffs, tasks)
    for worker in workers:
        tasks.put(None)
    for worker in workers:
        worker.join()
    del clients
    calls, waits, done = [], [], []
    holder = threading.Thread(target=hold, args=(n_waits, calls, done), name="holder ✓")
    waiter = threading.Thread(target=wait, args=(waits, done), name="waiter")
    for thread in holder, waiter:
        thread.start()
    tids = [holder.native_id, waiter.native_id]
    for thread in holder, waiter:
        thread.join()
    tell(begin=begin, middle=middle, end=now(), collections=collections, handoffs=handoffs, calls=calls, waits=waits,
         tids=tids)
    listen()
    os._exit(0)


main()
