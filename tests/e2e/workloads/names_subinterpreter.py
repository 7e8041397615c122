# SPDX-License-Identifier: Apache-2.0
"""Threads started by an isolated and a legacy interpreter collect; reports threading's names there."""
import json
import os

from subinterpreters import create, interpreters
from workload import listen, now, tell, warm_up

CODE = """
import gc, json, os, threading, time
def collect():
    begin = time.perf_counter_ns()
    for _ in range(20):
        time.sleep(0.05)
        gc.collect(0)
    truth.append({"tid": threading.get_native_id(), "name": threading.current_thread().name, "begin": begin,
                  "end": time.perf_counter_ns()})
truth = []
threads = [threading.Thread(target=collect, name=name) for name in ("größe %d", "worker %d")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
os.write(%d, json.dumps(truth).encode() + b"\\n")
"""


def main():
    if not warm_up():
        return
    begin, truth = now(), []
    read_end, write_end = os.pipe()
    lines = os.fdopen(read_end)
    for i, interpreter in enumerate([create(True), create(False)]):
        interpreters.run_string(interpreter, CODE % (i, i, write_end))
        truth += json.loads(lines.readline())
    tell(begin=begin, truth=truth)
    listen()
    os._exit(0)


main()
