# SPDX-License-Identifier: Apache-2.0
"""Functions that collect, made of the same source except for the name, at the address of the freed predecessor: a
long-lived function and a successor, then many short-lived functions. replaced_code.py SECONDS"""
import gc
import sys
import time

from workload import listen, now, tell, warm_up

SOURCE = "def {}():\n    gc.collect(0)\n"
NAMES = "alpha", "gamma", "delta", "omega"
truth = []


def make(name):
    names = {"gc": gc}
    exec(compile(SOURCE.format(name), "made.py", "exec"), names)
    return names.pop(name)


def collect(function, times, pause):
    code = id(function.__code__)
    for _ in range(times):
        begin = now()
        function()
        truth.append([begin, function.__name__, code])
        time.sleep(pause)


def main():
    seconds = int(sys.argv[1])
    if not warm_up():
        return
    gc.disable()
    gc.freeze()
    begin = now()
    for name in NAMES[:2]:
        collect(make(name), 100 * seconds if name == NAMES[0] else 60, 0.01)
    time.sleep(0.5)
    for i in range(100 * seconds):
        collect(make(NAMES[i * i // 3 % 4]), 2, 0.002)
    end = now()
    tell(begin=begin, end=end, truth=truth)
    listen()


main()
