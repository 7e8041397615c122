#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a context switch costs while off_cpu follows both threads, beside libbpf-tools' offcputime (Debian's package,
unpacked into build/cache) doing the same: user and kernel stacks, time per stack. Nothing, one, the other, in turns, with
processes that do nothing but give way to each other. `make bench` runs this."""

import glob
import os
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
    """CPU time of two processes on each CPU by the number of their switches, as the kernel counts both: what the machine
    does beside them is not in it."""
    cpus = sorted(os.sched_getaffinity(0))
    processes = [subprocess.Popen(["/usr/bin/python3", "-c", YIELDS, str(cpu)], stdout=subprocess.PIPE)
                 for cpu in cpus for _ in range(2)]
    figures = [list(map(int, p.communicate()[0].split())) for p in processes]
    return sum(f[0] for f in figures) / sum(f[1] for f in figures)


def with_tool(argv, ready):
    """The measurement beside a tool that says that it is ready."""
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


if __name__ == "__main__":
    main()
