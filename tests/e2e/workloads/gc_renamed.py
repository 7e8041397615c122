# SPDX-License-Identifier: Apache-2.0
"""Collects all the time, and renames its thread every SECONDS. gc_renamed.py SECONDS NAME..."""
import gc
import os
import sys
import time

from workload import listen, now, tell, warm_up


def main():
    if not warm_up():
        return
    renames = []
    for name in sys.argv[2:]:
        with open("/proc/self/comm", "w") as f:
            f.write(name)
        renames.append((now(), name))
        while now() < renames[-1][0] + float(sys.argv[1]) * 1e9:
            gc.collect(0)
            time.sleep(0.02)
    tell(renames=renames, end=now())
    listen()
    os._exit(0)


main()
