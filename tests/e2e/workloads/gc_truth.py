# SPDX-License-Identifier: Apache-2.0
"""Collections of every kind in several threads: exactly FORCED by gc.collect(), of mixed generations, and
automatic collections caused by allocation. gc_truth.py THREADS FORCED SEED; reports the records of
gc.callbacks."""
import gc
import os
import random
import sys
import threading
import time

from workload import Collections, listen, warm_up

try:
    from _testcapi import with_tp_del  # the last remaining way to make uncollectable garbage
except ImportError:
    with_tp_del = None


class Node:
    pass


if with_tp_del:
    @with_tp_del
    class Stubborn:
        def __tp_del__(self):
            pass


def make_garbage(rng):
    for _ in range(rng.randrange(30)):
        a, b = Node(), Node()
        a.other, b.other = b, a


def collect_with_uncollectable(generation):
    if not with_tp_del:
        return gc.collect(generation)
    a, b = Stubborn(), Stubborn()
    a.other, b.other = b, a
    del a, b
    gc.collect(generation)
    while gc.garbage:  # opens the cycles so that the next collection does not find them again
        gc.garbage.pop().__dict__.clear()


def worker(forced, seed):
    rng = random.Random(seed)
    kept = []
    for i in range(forced):
        make_garbage(rng)
        # every tenth time enough for automatic collections, of which every tenth is of generation 1
        kept.append([[] for _ in range(rng.randrange(9000 if i % 10 == 0 else 300))])
        if len(kept) > 10:
            kept.clear()
        generation = rng.choices((0, 1, 2), (6, 3, 1))[0]
        if i % 50 == 7:
            collect_with_uncollectable(generation)
        else:
            gc.collect(generation)
        time.sleep(0)  # the only place where the GIL goes to a sibling, see below


def main():
    n_threads, forced, seed = map(int, sys.argv[1:])
    # a switch of threads inside the callback would add foreign time to the collection
    sys.setswitchinterval(1000)
    truth = Collections()
    old = [[] for _ in range(30000)]  # so that a full collection takes milliseconds
    if not warm_up():
        return
    shares = [forced // n_threads + (i < forced % n_threads) for i in range(n_threads)]
    threads = [threading.Thread(target=worker, args=(shares[i], seed + i)) for i in range(n_threads - 1)]
    truth.start()
    for thread in threads:
        thread.start()
    worker(shares[-1], seed - 1)
    for thread in threads:
        thread.join()
    truth.stop()
    del old
    truth.report(forced=sum(shares), can_be_uncollectable=bool(with_tp_del))
    listen()
    os._exit(0)  # no collections of the interpreter's end


main()
