#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of a context switch while off_cpu follows both threads, beside libbpf-tools' offcputime (Debian's package,
unpacked into build/cache) with the same work: user and kernel stacks, time per stack. Without a tool, with each tool, in
turns, on processes that only yield. Then the cost of the Python stacks of off_cpu's sums: the time of all of off_cpu's BPF
programs per switch of two processes 30 frames deep that pass a byte to and fro, by the kernel's statistics of programs.
`make bench` runs this."""

import contextlib
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS, SECONDS = 5, 1.0
AGENT = os.environ.get("UNDERSPAN", "build/underspan")
CACHE = "build/cache/libbpf-tools"
OFFCPUTIME = f"{CACHE}/usr/sbin/offcputime"

YIELDS = f"""
import os, sys, time
os.sched_setaffinity(0, {{int(sys.argv[1])}})
give_way, n, end = os.sched_yield, 0, time.perf_counter() + {SECONDS}
while time.perf_counter() < end:
    for _ in range(1000):
        give_way()
with open("/proc/self/status") as f:
    print(time.process_time_ns(), sum(int(line.split()[1]) for line in f if "ctxt_switches" in line))
"""


def ns_per_switch():
    """CPU time of two processes on each CPU per switch, by the kernel's counters: without further work of the
    machine."""
    cpus = sorted(os.sched_getaffinity(0))
    processes = [subprocess.Popen(["/usr/bin/python3", "-c", YIELDS, str(cpu)], stdout=subprocess.PIPE)
                 for cpu in cpus for _ in range(2)]
    figures = [list(map(int, p.communicate()[0].split())) for p in processes]
    return sum(f[0] for f in figures) / sum(f[1] for f in figures)


def with_tool(argv, ready):
    """The measurement beside a tool, after the tool reports ready."""
    with tempfile.TemporaryFile("w+") as log:
        tool = subprocess.Popen(argv, stdout=subprocess.DEVNULL if ready else log, stderr=log)
        try:
            for _ in range(100):
                time.sleep(0.1)
                log.seek(0)
                if ready and ready in log.read() or not ready and _ > 15:
                    break
            if tool.poll() is not None:
                log.seek(0)
                sys.exit(f"{argv[0]} ended: {log.read()}")
            return ns_per_switch()
        finally:
            tool.send_signal(signal.SIGTERM if ready else signal.SIGKILL)
            tool.wait()


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
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/fdinfo/{fd}") as f:  # the agent opens and closes files
            ids.update(int(line.split()[1]) for line in f if line.startswith("prog_id:"))
    every = json.loads(subprocess.check_output([BPFTOOL, "-j", "prog", "show"]))
    return {p["name"]: (p.get("run_time_ns", 0), p.get("run_cnt", 0)) for p in every if p["id"] in ids}


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


def fetch_offcputime():
    if not os.path.exists(OFFCPUTIME):
        os.makedirs(CACHE, exist_ok=True)
        subprocess.run(["apt-get", "-qq", "download", "libbpf-tools"], cwd=CACHE, stderr=subprocess.DEVNULL)
        for package in glob.glob(f"{CACHE}/*.deb"):
            subprocess.run(["dpkg", "-x", package, CACHE], check=True)
    return os.path.exists(OFFCPUTIME)


def main():
    agent = [AGENT, "run", "--stdout", "--trackers=off_cpu", "--governor.cpu_percent=0",
             "--governor.tracker_cpu_percent=0"]
    ways = {"nothing": ns_per_switch,
            "underspan off_cpu": lambda: with_tool(agent, "ready"),
            "underspan off_cpu, no user stacks":
                lambda: with_tool([*agent, "--off_cpu.user_stacks=false"], "ready")}
    if fetch_offcputime():
        ways["libbpf-tools offcputime -u"] = lambda: with_tool([OFFCPUTIME, "-u", "1000"], None)
    else:
        print("offcputime is not compared with: there is no package libbpf-tools here")
    figures = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, measure in ways.items():
            figures[name].append(measure())
    base = statistics.median(figures["nothing"])
    print(f"{'context switches of two Python processes a CPU':48} {'ns each':>12} {'more':>12}")
    for name, measured in figures.items():
        ns = statistics.median(measured)
        print(f"  {name:46} {ns:12,.0f} {ns - base:12,.0f}")
    compare_stacks(agent)


if __name__ == "__main__":
    main()
