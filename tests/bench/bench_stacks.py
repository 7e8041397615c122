#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of the Python stacks of waits for the GIL: microseconds in BPF for each row with the stacks of waiter and
holder, by Python and by the depth of both stacks, as summed by the programs (map gil_stack_cost). Each frame is a
separate function, four per file; half are common to both threads, as in a server. The least of some seconds and the
median: work on the processor's second half doubles the cost. A service has run for some seconds before the measurement
(bpf/python/code_cache.bpf.h). `make bench` runs this.

bench_stacks.py [DEPTH...]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import bpf_maps  # noqa: E402
import host  # noqa: E402
from bench import Gunicorn  # noqa: E402
from agent import Agent  # noqa: E402

DEPTHS = 10, 20, 40, 128
WARM_UP, ROUNDS = 7, 5  # seconds

# three frames belong to threading
WORKLOAD = """
import importlib, sys, threading, time
folder, depth = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, folder)
def make(word):
    for i in range((depth + 3) // 4):
        with open(f"{folder}/{word}_{i}.py", "w") as f:
            for k in range(4):
                f.write(f"def {word}_{k}(steps, i, last):\\n"
                        "    return steps[i](steps, i + 1, last) if i < len(steps) else last()\\n\\n\\n")
    return [getattr(importlib.import_module(f"{word}_{i // 4}"), f"{word}_{i % 4}") for i in range(depth)]
HELD = range(1000000)
def hold():
    while True:
        sum(HELD)
        time.sleep(0.001)
def rest():
    while True:
        time.sleep(0.001)
own = depth - 4
both = make("server")[:own // 2]
for last in hold, rest:
    steps = both + make(last.__name__)[:own - len(both)]
    threading.Thread(target=steps[0], args=(steps, 1, last)).start()
"""


def seconds_of(pid):
    """Microseconds for each row with both stacks of the process, of each of some seconds, and the rows."""
    agent = Agent(f"--pid={pid}", trackers=["gil_wait"]).wait_ready()
    try:
        time.sleep(WARM_UP)
        costs = []
        for _ in range(ROUNDS + 1):
            costs.append(bpf_maps.per_cpu_sums(agent.pid, "gil_stack_cost"))
            time.sleep(1)
        agent.stop()
    finally:
        agent.kill()
    found = []
    for before, after in zip(costs, costs[1:]):
        rows = after["rows"] - before["rows"]
        if rows < 10:
            sys.exit(f"{rows} waits in a second have both stacks; the agent said:\n{agent.stderr}")
        found.append((after["ns"] - before["ns"]) / rows / 1000)
    return found, agent.select("ebpf_gil_wait", lambda r: r["py_stack"] and r["holder_py_stack"])


def measure(python, depth):
    """The microseconds of waits that have both stacks in the given depth."""
    with tempfile.TemporaryDirectory() as folder:
        workload = subprocess.Popen([*python.start, python.path, "-c", WORKLOAD, folder, str(depth)])
        try:
            found, rows = seconds_of(workload.pid)
        finally:
            workload.kill()
            workload.wait()
    if any(min(len(r["py_stack"]), len(r["holder_py_stack"])) < depth for r in rows[len(rows) // 2:]):
        sys.exit(f"{python}: not all stacks have {depth} frames")
    return found


def measure_django():
    """As measure(), of a server under load, and the mean depths of the stacks."""
    server = Gunicorn("django_app")
    load = subprocess.Popen(["wrk", "-t1", "-c8", "-d60", f"http://127.0.0.1:{server.port}/"], stdout=subprocess.DEVNULL)
    try:
        found, rows = seconds_of(server.worker())
    finally:
        load.terminate()
        load.wait()
        server.stop()
    return found, [statistics.mean(len(r[stack]) for r in rows) for stack in ("py_stack", "holder_py_stack")]


def shown(us):
    return f"{min(us):11.1f} ({statistics.median(us):5.1f}) us"


def main():
    depths = [int(arg) for arg in sys.argv[1:]] or DEPTHS
    print(f"{'both Python stacks of a wait for the GIL, in BPF':48}" + "".join(f"{f'{d} frames each':>22}" for d in depths))
    for python in host.find_pythons() + host.find_rooted_pythons():
        print(f"  {str(python):46}" + "".join(shown(measure(python, depth)) for depth in depths), flush=True)
    found, frames = measure_django()
    print(f"  {'gunicorn gthread, Django, Debian 3.11':46}{shown(found)}, {frames[0]:.0f} and {frames[1]:.0f} frames")


if __name__ == "__main__":
    main()
