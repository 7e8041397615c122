# SPDX-License-Identifier: Apache-2.0
"""Threads with all kinds of names, each with a few collections; reports threading's names. names.py SHORT:
number of threads that live for 50 ms only."""
import _thread
import gc
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from workload import listen, now, tell, warm_up

NAMES = ["worker", "", "größe", "名前-スレッド", "mixed é✓", "snake 🐍 and 𝔘𝔫𝔦", "tab\tquote\"back\\slash", "nul\0inside",
         "lone\ud800surrogate", "x" * 300, "é" * 250, "y" * 5000]
LIVES_ON = 1.5
truth = []


def note(kind, begin, name=None):
    if name is None:
        name = threading.current_thread().name
    truth.append({"kind": kind, "tid": threading.get_native_id(), "name": name, "begin": begin, "end": now()})


def collect(kind, times=3, pause=0.05):
    begin = now()
    for _ in range(times):
        time.sleep(pause)
        gc.collect(0)
    note(kind, begin)
    if kind != "pool":
        # a name is read when needed by a row: a busy machine may take a second, and the name of an ended thread is unreadable
        time.sleep(LIVES_ON)


def rename():
    collect("before", 2)
    threading.current_thread().name = "renamed " + threading.current_thread().name
    time.sleep(1.5)  # names are read once a second
    collect("renamed", 2)


def live_shortly():
    begin = now()
    time.sleep(0.025)
    gc.collect(0)
    time.sleep(0.025)
    note("short", begin)


def without_threading(done):
    begin = now()
    time.sleep(0.1)
    gc.collect(0)
    note("foreign", begin, name="")  # asking threading for the name would create a name
    done.release()


class Subclass(threading.Thread):
    """The instances have more attributes, and an ordinary dict on some versions."""

    def __init__(self, name):
        for i in range(40):
            setattr(self, f"attribute_{i}", i)
        super().__init__(name=name)
        self.__dict__["more"] = 1

    def run(self):
        collect("subclass")


def fork_children():
    """In a child the thread that forked is the main thread, with the old ident and the parent's native id."""
    read_end, write_end = os.pipe()
    begin = now()
    pid = os.fork()
    if pid == 0:
        time.sleep(0.3)  # found by then
        gc.collect(0)
        time.sleep(LIVES_ON)  # read by then
        os.write(write_end, threading.current_thread().name.encode())
        os._exit(0)
    os.close(write_end)
    name = os.read(read_end, 1000).decode()
    os.waitpid(pid, 0)
    truth.append({"kind": "forked", "tid": pid, "name": name, "begin": begin, "end": now()})


def main():
    gc.freeze()
    if not warm_up():
        return
    threads = [threading.Thread(target=collect, args=("named",), name=name) for name in NAMES]
    threads.append(threading.Thread(target=collect, args=("named",)))
    threads.append(threading.Thread(target=rename))
    threads.append(Subclass("of a class of its own"))
    for thread in threads:
        thread.start()
    with ThreadPoolExecutor(3) as pool, ThreadPoolExecutor(2, thread_name_prefix="pool é") as other:
        for _ in range(6):
            pool.submit(collect, "pool")
            other.submit(collect, "pool")
        time.sleep(LIVES_ON)
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(without_threading, (done,))
    done.acquire()
    for thread in threads:
        thread.join()
    fork_children()
    forker = threading.Thread(target=fork_children, name="forks ü")
    forker.start()
    forker.join()
    collect("main")
    shorts = [threading.Thread(target=live_shortly, name=f"short-{i}") for i in range(int(sys.argv[1]))]
    for thread in shorts:
        thread.start()
        time.sleep(0.01)
    for thread in shorts:
        thread.join()
    tell(truth=truth)
    listen()


main()
