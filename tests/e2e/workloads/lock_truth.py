# SPDX-License-Identifier: Apache-2.0
"""Two locks, each with a holder and waiters that wait for it in turn: lock_truth.py KIND ROUNDS SECONDS. The truth of each wait is
the waiter's clock around it; the addresses are read from the objects."""
import ctypes
import sys
import threading
import time

from workload import now, tell, warm_up

KIND, ROUNDS, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
WAITERS = {"a": 3, "b": 2}


def addresses(lock):
    """Where the state may be: behind a pointer in the object (a semaphore), or in the object itself (PyMutex)."""
    member = id(lock) + 16
    return [ctypes.c_uint64.from_address(member).value, member]


class Contended:
    def __init__(self, name, n):
        self.name = name
        self.lock = threading.Lock() if KIND == "lock" else threading.RLock()
        self.meet = threading.Barrier(n + 1)
        self.waits, self.holds = [], []
        self.threads = [threading.Thread(target=self.hold, name="holder-" + name)]
        self.threads += [threading.Thread(target=self.wait, name="waiter-%s-%d" % (name, i)) for i in range(n)]

    def hold(self):
        tid = threading.get_native_id()
        for _ in range(ROUNDS):
            with self.lock:
                start = now()
                self.meet.wait()
                time.sleep(SECONDS)
                stop = now()
            self.holds.append([tid, start, stop])
            self.meet.wait()

    def wait(self):
        tid = threading.get_native_id()
        for _ in range(ROUNDS):
            self.meet.wait()
            self.acquire(tid)
            self.meet.wait()

    def acquire(self, tid):
        start = now()
        with self.lock:
            stop = now()
        self.waits.append([tid, start, stop])


contended = [Contended(name, n) for name, n in WAITERS.items()]
warm_up()
begin = now()
for c in contended:
    for thread in c.threads:
        thread.start()
for c in contended:
    for thread in c.threads:
        thread.join()
line = Contended.acquire.__code__.co_firstlineno + 2
tell(begin=begin, end=now(), line=line,
     locks={c.name: {"addresses": addresses(c.lock), "waits": c.waits, "holds": c.holds} for c in contended})
