# SPDX-License-Identifier: Apache-2.0
"""Becomes the Python at PATH, which then collects for two seconds. gc_exec.py PATH | gc_exec.py collect."""
import gc
import os
import sys
import time

from workload import Collections, listen, now, warm_up


def main():
    if sys.argv[1] != "collect":
        if warm_up():
            os.execv(sys.argv[1], [sys.argv[1], __file__, "collect"])
        return
    truth = Collections()
    truth.start()
    while now() - truth.begin < 2_000_000_000:
        gc.collect(0)
        time.sleep(0.02)
    truth.stop()
    truth.report(pid=os.getpid())
    listen()
    os._exit(0)


main()
