#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of the Python stacks of off_cpu's sums: the time of all of off_cpu's BPF programs per switch of two processes 30 frames
deep that pass a byte to and fro, by the kernel's statistics of programs. `make bench` runs this."""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROUNDS, SECONDS = 5, 1.0
AGENT = os.environ.get("UNDERSPAN", "build/underspan")

SLEEPS = f"""
import os, sys, time
def deep(n):
    return deep(n - 1) if n else sleep_often()
def sleep_often():
    end = time.perf_counter() + {SECONDS}
    while time.perf_counter() < end:
        os.write(to, b"x")
        os.read(of, 1)
a, b = os.pipe(), os.pipe()
child = os.fork()
of, to = (a[0], b[1]) if child else (b[0], a[1])
os.close(b[0] if child else a[0])
os.close(a[1] if child else b[1])
time.sleep(1.5)  # a service has run for a while
print(flush=True)
try:
    deep(25)
except BrokenPipeError:
    pass
os._exit(0)
"""
BPFTOOL = shutil.which("bpftool", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
STATISTICS = "/proc/sys/kernel/bpf_stats_enabled"


def programs_of(pid):
    """Time and runs of each of the agent's programs, so far."""
    ids = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/fdinfo/{fd}", errors="replace") as f:  # the agent opens and closes files
            ids.update(int(line.split()[1]) for line in f if line.startswith("prog_id:"))
    every = json.loads(subprocess.check_output([BPFTOOL, "-j", "prog", "show"]))
    sums = {}
    for p in every:
        if p["id"] in ids:  # a name may be that of several programs
            ns, runs = sums.get(p["name"], (0, 0))
            sums[p["name"]] = ns + p.get("run_time_ns", 0), runs + p.get("run_cnt", 0)
    return sums


def bpf_ns_per_switch(argv):
    tool = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while b"ready" not in tool.stderr.readline():
            if tool.poll() is not None:
                sys.exit(f"{argv[0]} ended")
        workload = subprocess.Popen(["/usr/bin/python3", "-c", SLEEPS], stdout=subprocess.PIPE)
        workload.stdout.readline()
        before = programs_of(tool.pid)
        workload.wait()
        after = programs_of(tool.pid)
        spent, runs = ({name: after[name][i] - before[name][i] for name in after} for i in (0, 1))
        return sum(spent.values()) / runs["sched_switch"]
    finally:
        tool.terminate()
        tool.wait()


def set_statistics(value):
    with open(STATISTICS, "r+") as f:
        before = f.read()
        f.seek(0)
        f.write(value)
    return before


def compare_stacks(agent):
    before = set_statistics("1")
    ways = {"with Python stacks": [], "without": []}
    try:
        for _ in range(ROUNDS):
            ways["with Python stacks"].append(bpf_ns_per_switch(agent))
            ways["without"].append(bpf_ns_per_switch([*agent, "--off_cpu.py_stacks=false"]))
    finally:
        set_statistics(before)
    print(f"{'off_cpu in BPF, two Pythons that hand over a byte':48} {'ns a switch':>12} {'median':>12}")
    for name, figures in ways.items():
        print(f"  {name:46} {min(figures):12,.0f} {statistics.median(figures):12,.0f}")


def main():
    compare_stacks([AGENT, "run", "--stdout", "--trackers=off_cpu", "--governor.cpu_percent=0", "--governor.tracker_cpu_percent=0"])


if __name__ == "__main__":
    main()
