# SPDX-License-Identifier: Apache-2.0
"""Threads of a native library (native_threads.c) that wait for work until the library ends, after the interpreter.
off_cpu_native_end.py SECONDS LIBRARY"""
import ctypes
import sys
import time

from workload import listen, tell, warm_up

if not warm_up():
    sys.exit()
library = ctypes.CDLL(sys.argv[2])
library.native_start()
time.sleep(float(sys.argv[1]))
tell(tids={name: library.native_tid(i) for i, name in enumerate(["idle condition", "idle semaphore"])})
listen()
