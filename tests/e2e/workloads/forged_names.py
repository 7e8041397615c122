# SPDX-License-Identifier: Apache-2.0
"""forged_names.py N HEX...: a thread for each name, which sets the kernel's name, byte for byte, collects N times and
ends."""
import gc
import os
import sys
import threading

from workload import listen, now, tell, warm_up


def collect(name, n):
    with open("/proc/thread-self/comm", "wb", buffering=0) as f:
        f.write(name)
    for _ in range(n):
        gc.collect()


def main():
    gc.disable()
    names = [bytes.fromhex(word) for word in sys.argv[2:]]
    if not warm_up():
        return
    begin = now()
    for name in names:
        thread = threading.Thread(target=collect, args=[name, int(sys.argv[1])])
        thread.start()
        thread.join()
    tell(begin=begin, end=now())
    listen()
    os._exit(0)


main()
