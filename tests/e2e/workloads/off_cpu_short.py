# SPDX-License-Identifier: Apache-2.0
"""off_cpu_short.py SECONDS: threads with waits shorter than a row's: the first waits for work, the second is kept
waiting by a lock, the third sleeps. Reports the number of switches of each."""
import queue
import sys
import threading
import time

from workload import listen, now, switches, tell, warm_up

SHORT = 0.003
threads = {}


def note(name):
    threads[name] = [threading.get_native_id(), switches()]


def serve(work):
    while work.get():
        pass
    note("idle")


def contend(lock, until):
    while now() < until:
        with lock:
            pass
        time.sleep(0)
    note("locked")


def pause(until):
    while now() < until:
        time.sleep(SHORT)
    note("asleep")


def main():
    if not warm_up():
        return
    until = now() + int(float(sys.argv[1]) * 1e9)
    work, lock = queue.Queue(), threading.Lock()
    started = [threading.Thread(target=serve, args=[work]), threading.Thread(target=contend, args=[lock, until]),
               threading.Thread(target=pause, args=[until])]
    for thread in started:
        thread.start()
    while now() < until:
        with lock:
            time.sleep(SHORT)
        work.put(True)
    work.put(None)
    for thread in started:
        thread.join()
    tell(threads=threads)
    listen()


main()
