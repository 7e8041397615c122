# SPDX-License-Identifier: Apache-2.0
"""Full collections over OBJECTS while SPINNING threads want the GIL and SLEEPING ones do not.
gc_frozen.py SPINNING SLEEPING OBJECTS TIMES."""
import gc
import os
import sys
import threading
import time

from workload import Collections, listen, warm_up


def spin(stop, started):
    started.release()
    while not stop:
        pass


def main():
    n_spinning, n_sleeping, n_objects, times = map(int, sys.argv[1:])
    stop, forever, started = [], threading.Event(), threading.Semaphore(0)
    truth = Collections()
    old = [[] for _ in range(n_objects)]
    gc.disable()  # the spinning threads allocate nothing, and nothing else shall collect
    if not warm_up():
        return
    for _ in range(n_spinning):
        threading.Thread(target=spin, args=(stop, started), daemon=True).start()
    for _ in range(n_sleeping):
        threading.Thread(target=lambda: (started.release(), forever.wait()), daemon=True).start()
    for _ in range(n_spinning + n_sleeping):
        started.acquire()
    time.sleep(0.05)
    truth.start()
    for _ in range(times):
        gc.collect()
    truth.stop()
    stop.append(True)
    del old
    truth.report()
    listen()
    os._exit(0)


main()
