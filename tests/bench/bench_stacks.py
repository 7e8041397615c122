#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python stacks of waits for the GIL cost: microseconds in BPF for each row with the stack of the waiter and
that of the holder, by Python and by the depth of both stacks, as the programs themselves add it up (the map
gil_stack_cost). Each frame is another function, four to a file; half of them are both threads', as a server's are. The
least of some rounds and their median: what else runs on the processor's other half doubles it. `make bench` runs this.

bench_stacks.py [DEPTH...]"""

import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import bpf_maps  # noqa: E402
import host  # noqa: E402
from agent import Agent  # noqa: E402

DEPTHS = 10, 20, 40, 128
ROUNDS = 5

# three of its frames are threading's own
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
HELD, ended = range(1000000), []
def hold():
    for _ in range(40):
        sum(HELD)
        time.sleep(0.001)
    ended.append(True)
def rest():
    while not ended:
        time.sleep(0.001)
own = depth - 4
both = make("server")[:own // 2]
input()
threads = []
for last in hold, rest:
    steps = both + make(last.__name__)[:own - len(both)]
    threads.append(threading.Thread(target=steps[0], args=(steps, 1, last)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done", flush=True)
input()
"""


def measure(python, depth):
    """Microseconds for each row that has both stacks in this depth."""
    with tempfile.TemporaryDirectory() as folder:
        workload = subprocess.Popen([*python.start, python.path, "-c", WORKLOAD, folder, str(depth)],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        agent = Agent(f"--pid={workload.pid}", trackers=["gil_wait"]).wait_ready()
        try:
            agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == workload.pid)
            before = bpf_maps.per_cpu_sums(agent.pid, "gil_stack_cost")
            workload.stdin.write("\n"), workload.stdin.flush()
            workload.stdout.readline()
            after = bpf_maps.per_cpu_sums(agent.pid, "gil_stack_cost")
            agent.stop()
        finally:
            agent.kill()
            workload.kill()
            workload.wait()
    rows = agent.select("ebpf_gil_wait", lambda r: r["host_pid"] == workload.pid)
    both = [r for r in rows if len(r["py_stack"]) >= depth and len(r["holder_py_stack"]) >= depth]
    if len(both) < 10 or len(both) < len(rows) // 2:
        sys.exit(f"{python}: of {len(rows)} waits {len(both)} have both stacks; the agent said:\n{agent.stderr}")
    return (after["ns"] - before["ns"]) / len(both) / 1000


def main():
    depths = [int(arg) for arg in sys.argv[1:]] or DEPTHS
    print(f"{'both Python stacks of a wait for the GIL, in BPF':48}" + "".join(f"{f'{d} frames each':>22}" for d in depths))
    for python in host.find_pythons() + host.find_rooted_pythons():
        figures = [[measure(python, depth) for _ in range(ROUNDS)] for depth in depths]
        print(f"  {str(python):46}" + "".join(f"{min(us):11.1f} ({statistics.median(us):5.1f}) us" for us in figures),
              flush=True)


if __name__ == "__main__":
    main()
