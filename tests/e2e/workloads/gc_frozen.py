# SPDX-License-Identifier: Apache-2.0
"""Full collections over OBJECTS while SPINNING threads want the GIL and SLEEPING threads do not.
gc_frozen.py SPINNING SLEEPING OBJECTS TIMES."""
import gc
import os
import sys
import threading
import time

from workload import listen, now, tell, warm_up


def spin(stop, started):
    started.release()
    while not stop:
        pass


def main():
    n_spinning, n_sleeping, n_objects, times = map(int, sys.argv[1:])
    stop, forever, started = [], threading.Event(), threading.Semaphore(0)
    old = [[] for _ in range(n_objects)]
    gc.disable()  # the spinning threads allocate nothing; no automatic collections
    if not warm_up():
        return
    for _ in range(n_spinning):
        threading.Thread(target=spin, args=(stop, started), daemon=True).start()
    for _ in range(n_sleeping):
        threading.Thread(target=lambda: (started.release(), forever.wait()), daemon=True).start()
    for _ in range(n_spinning + n_sleeping):
        started.acquire()
    time.sleep(0.05)
    # no gc.callbacks: from 3.13 on, callbacks run inside the collection and release the GIL there
    collections, begin = [], now()
    for _ in range(times):
        start = now()
        collected = gc.collect()
        collections.append({"start": start, "stop": now(), "generation": 2, "collected": collected,
                            "uncollectable": 0, "tid": threading.get_native_id()})
    stop.append(True)
    del old
    tell(begin=begin, end=now(), collections=collections)
    listen()
    os._exit(0)


main()
