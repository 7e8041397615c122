# SPDX-License-Identifier: Apache-2.0
"""off_cpu_often.py N: a thread that leaves the CPU thousands of times a second, and between, N times, for 30 ms. Reports its number of
switches."""
import sys
import threading
import time

from workload import listen, switches, tell, warm_up

SHORT, LONG, SHORT_ONES = 0.00002, 0.03, 500


def sleep_long():
    time.sleep(LONG)


def sleep_often(n):
    for _ in range(n):
        for _ in range(SHORT_ONES):
            time.sleep(SHORT)
        sleep_long()
    tell(tid=threading.get_native_id(), switches=switches())


if warm_up():
    thread = threading.Thread(target=sleep_often, args=[int(sys.argv[1])])
    thread.start()
    thread.join()
    listen()
