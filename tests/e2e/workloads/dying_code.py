# SPDX-License-Identifier: Apache-2.0
"""Code that collects and is freed right after; the memory is reused for the next code. dying_code.py N"""
import gc
import sys

from workload import listen, now, tell, warm_up


def main():
    n = int(sys.argv[1])
    if not warm_up():
        return
    gc.disable()
    begin = now()
    for i in range(n):
        exec(compile("gc.collect(0)", f"dies/{i:04}.py", "exec"), {"gc": gc})
    tell(begin=begin, end=now())
    listen()


main()
