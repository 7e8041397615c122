# SPDX-License-Identifier: Apache-2.0
"""Code that collects; right after, the hash of its file's name is computed for the first time, as by the first traceback of a file.
hashed_later.py N"""
import gc
import sys
import time

from workload import listen, now, tell, warm_up


def main():
    n = int(sys.argv[1])
    if not warm_up():
        return
    gc.disable()
    kept = []
    begin = now()
    for i in range(n):
        code = compile("gc.collect(0)", f"later/{i:04}.py", "exec")
        exec(code, {"gc": gc})
        hash(code.co_filename)
        kept.append(code)
        time.sleep(0.02)
    tell(begin=begin, end=now())
    listen()


main()
