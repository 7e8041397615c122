# SPDX-License-Identifier: Apache-2.0
"""Full collections with a known number of objects: more and more, fewer, and all but a few frozen. Each collection has
the number of objects that the collector knows right afterwards."""
import gc
import os
import threading

from workload import listen, now, tell, warm_up


def collect():
    start = now()
    collected = gc.collect()
    return {"start": start, "stop": now(), "generation": 2, "collected": collected, "uncollectable": 0,
            "tid": threading.get_native_id(), "objects": len(gc.get_objects())}


def main():
    gc.disable()
    if not warm_up():
        return
    kept, collections, begin = [], [], now()
    for objects in (0, 1_000, 30_000, 200_000, 500):
        kept[:] = [[] for _ in range(objects)]
        gc.collect(0)  # a young collection has the number of before
        collections.append(collect())
    gc.freeze()
    collections.append(collect())
    gc.unfreeze()
    tell(begin=begin, end=now(), collections=collections)
    listen()
    os._exit(0)


main()
