# SPDX-License-Identifier: Apache-2.0
"""Computes in two functions, three times as long in one as in the other, then sleeps as long; beside it a thread computes in C
code without the GIL, and a native thread of the library LIBRARY computes a known time. on_cpu_truth.py LIBRARY SECONDS"""
import ctypes
import hashlib
import sys
import threading
import time

from workload import now, tell, warm_up

LIBRARY, SECONDS = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])


def spend(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def much(seconds):
    spend(seconds * 0.75)


def little(seconds):
    spend(seconds * 0.25)


def work():
    for _ in range(10 * SECONDS):
        much(0.1); little(0.1)


def hashes():
    threading.current_thread().used = 0
    while threading.current_thread().used < SECONDS:
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 20_000)
        threading.current_thread().used = time.thread_time()


warm_up()
hasher = threading.Thread(target=hashes)
LIBRARY.begin(SECONDS)
begin, used = now(), time.thread_time()
work()
used = time.thread_time() - used
hasher.start()
hasher.join()
native = LIBRARY.end()
time.sleep(SECONDS)
tell(begin=begin, end=now(), main=used, hasher=hasher.native_id, hashed=hasher.used, native=native, much=much.__code__.co_firstlineno + 1)
sys.stdin.read()
