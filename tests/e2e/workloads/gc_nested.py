# SPDX-License-Identifier: Apache-2.0
"""Calls of gc.collect() without effect, made during a collection, between effective calls."""
import gc
import os

from workload import Collections, listen, warm_up

nested_calls = 0


def collect_inside(phase, info):
    global nested_calls
    if phase == "start":
        nested_calls += 1
        assert gc.collect() == 0


class CollectsWhenItDies:
    def __del__(self):
        global nested_calls
        nested_calls += 1
        assert gc.collect() == 0


def main():
    truth = Collections()
    if not warm_up():
        return
    truth.start()
    gc.disable()
    gc.callbacks.append(collect_inside)
    for i in range(100):
        gc.collect(i % 3)
    gc.callbacks.remove(collect_inside)
    for i in range(100):
        cycle = CollectsWhenItDies()
        cycle.own = cycle
        del cycle
        gc.collect()
    kept = [[] for _ in range(100_000)]  # above any threshold, but no collection follows
    gc.freeze()
    gc.collect()
    gc.unfreeze()
    del kept
    truth.stop()
    truth.report(nested_calls=nested_calls)
    listen()
    os._exit(0)


main()
