# SPDX-License-Identifier: Apache-2.0
"""gc_short.py SPINNING SLEEPING: collections of a microsecond, among threads that want the GIL and threads that do
not. Reports the duration of a collection without running threads, the best of many."""
import gc
import sys
import threading
import time

from workload import listen, now, tell, warm_up

SPINNING, SLEEPING = map(int, sys.argv[1:])
TIMES, ROUNDS = 1000, 10


def spin(stop):
    while not stop:
        pass


def collect():
    begin = now()
    for _ in range(TIMES):
        gc.collect(0)
    return (now() - begin) / TIMES


forever, stop = threading.Event(), []
for _ in range(SLEEPING):
    threading.Thread(target=forever.wait, daemon=True).start()
gc.collect()
gc.freeze()
gc.disable()
warm_up()
best = min(collect() for _ in range(ROUNDS))
time.sleep(0.1)
for _ in range(SPINNING):
    threading.Thread(target=spin, args=(stop,), daemon=True).start()
time.sleep(0.1)
begin, until = now(), time.monotonic() + (1 if SPINNING else 0)
while time.monotonic() < until:
    gc.collect(0)
end = now()
stop.append(True)
tell(best_ns=best, begin=begin, end=end)
listen()
