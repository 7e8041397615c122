# SPDX-License-Identifier: Apache-2.0
"""many_threads.py N COLLECTIONS: N threads that sleep, take the GIL and sleep again, until a word ends all at once;
before the word, collections among all threads."""
import gc
import os
import sys
import threading
import time

from workload import Collections, listen, tell, warm_up


def main():
    n, forced = map(int, sys.argv[1:])
    if not warm_up():
        return
    threading.stack_size(64 << 10)
    started = threading.Semaphore(0)

    def live():
        started.release()
        while True:
            time.sleep(5)

    for i in range(n):
        threading.Thread(target=live, name=f"of-many-{i}", daemon=True).start()
    for _ in range(n):
        started.acquire()
    truth = Collections()
    truth.start()
    for _ in range(forced):
        gc.collect()
    truth.stop()
    truth.report(threads=len(os.listdir("/proc/self/task")))
    listen()
    os._exit(0)


main()
