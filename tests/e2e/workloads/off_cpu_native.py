# SPDX-License-Identifier: Apache-2.0
"""Threads of a native library (native_threads.c), without Python: some wait for work, one is kept waiting by a mutex; and a Python
thread that is kept waiting in the same way as the idle ones. off_cpu_native.py N LIBRARY; each waits some N times for 20 ms."""
import ctypes
import os
import sys
import threading
import time

from workload import listen, tell, warm_up

N, SECONDS = int(sys.argv[1]), 0.02

if not warm_up():
    sys.exit()
library = ctypes.CDLL(sys.argv[2])
library.native_start()
tids = {name: library.native_tid(i) for i, name in enumerate(["idle condition", "idle semaphore", "busy mutex"])}
given = threading.Semaphore(0)


def ask():
    tids["busy Python"] = threading.get_native_id()
    for _ in range(N):
        given.acquire()


python = threading.Thread(target=ask)
python.start()
for _ in range(2 * N):
    time.sleep(SECONDS)
    library.native_give()
    given.release()
python.join()
tell(tids=tids)
listen()
os._exit(0)
