# SPDX-License-Identifier: Apache-2.0
"""Collects for a minute; on request, forks a child that does the same. The whole program is in memory,
unless on a file system that STALLS_AFTER seconds (fuse.py), which drops the pages."""
import ctypes
import gc
import os
import select
import time

from workload import listen, tell


def collect():
    until = time.monotonic() + 60
    while time.monotonic() < until:
        gc.collect(0)
        time.sleep(0.02)


MCL_CURRENT = 1
assert "STALLS_AFTER" in os.environ or not ctypes.CDLL(None).mlockall(MCL_CURRENT)
tell(pid=os.getpid())
while not select.select([0], [], [], 0.02)[0]:
    gc.collect(0)
listen()
child = os.fork()
if child:
    tell(child=child)
collect()
