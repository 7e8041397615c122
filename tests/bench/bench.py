#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of underspan: each workload alternates between without and with the agent (A B A B ...); the table has the
median of the ratios of neighbours, with the least and the most, and the ratio of the best, least affected by a busy
machine. A rate is per CPU time of the workload, which depends little on further work of the machine; the agent's CPU is
listed apart. `make bench` runs this, with all trackers.

bench.py [--rounds=N] [--trackers=A,B|all|each] [--workloads=WORD,...] [--degrade=FEATURE,...]
"""

import argparse
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

AGENT = os.environ.get("UNDERSPAN", "build/underspan")
PYTHON = "/usr/bin/python3"
HERE = os.path.dirname(os.path.abspath(__file__))
TICKS = os.sysconf("SC_CLK_TCK")


def all_trackers():
    listed = subprocess.run([AGENT, "run", "--list"], capture_output=True, text=True, check=True)
    return [json.loads(line)["tracker"] for line in listed.stdout.splitlines()]


class Agent:
    """Rows are thrown away as late as possible: encoded and written to /dev/null. The governor, which would make a busy
    agent cheaper, is off."""

    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([AGENT, "run", "--stdout", "--governor.cpu_percent=0", *self.options],
                                        stdout=subprocess.DEVNULL, stderr=self.log)
        while "ready" not in self.said():
            if self.process.poll() is not None:
                sys.exit("the agent ended: " + self.said())
            time.sleep(0.05)
        time.sleep(0.3)
        return self

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mib(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(f.read().split("VmRSS:")[1].split()[0]) / 1024

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


# ---- workloads: each returns operations per second of CPU time ----

SECONDS = 0.6


def python_loop(setup, operation, times=1000):
    source = f"""
import os, threading, time
{setup}
n, begin = 0, time.process_time()
while time.process_time() < begin + {SECONDS}:
    for _ in range({times}):
        {operation}
    n += {times}
print(n / (time.process_time() - begin), flush=True)
os._exit(0)
"""
    return lambda: float(subprocess.check_output([PYTHON, "-c", source]))


PING_PONG = """
here, there = threading.Lock(), threading.Lock()
here.acquire(), there.acquire()
def answer():
    while True:
        there.acquire()
        here.release()
threading.Thread(target=answer, daemon=True).start()
"""
COMPUTE = """
def compute():
    while True:
        sum(range(100))
threading.Thread(target=compute, daemon=True).start()
"""


def dd():
    """A program without Python: two system calls per byte."""
    n = 400_000
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={n}"], check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 2 * n / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Gunicorn:
    """One gthread worker with four threads."""

    SMALLEST = 'def app(env, start):\n    start("200 OK", [("Content-Length", "2")])\n    return [b"ok"]\n'

    def __init__(self, module):
        self.dir = tempfile.TemporaryDirectory()
        with open(f"{self.dir.name}/smallest_app.py", "w") as f:
            f.write(self.SMALLEST)
        self.port = free_port()
        self.process = subprocess.Popen(
            [PYTHON, "-m", "gunicorn", "-k", "gthread", "--threads", "4", "--keep-alive", "5", "-b",
             f"127.0.0.1:{self.port}", "--pythonpath", f"{self.dir.name},{HERE}", f"{module}:app"],
            stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=10).read()
                break
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"gunicorn does not run with {module}")
                time.sleep(0.05)
        self.requests_per_second()

    def worker(self):
        """The master's child."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            (pid,) = f.read().split()
        return int(pid)

    def cpu_seconds(self):
        """Of the worker, in nanoseconds' precision."""
        worker, total = self.worker(), 0
        for tid in os.listdir(f"/proc/{worker}/task"):
            with open(f"/proc/{worker}/task/{tid}/schedstat") as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def requests_per_second(self):
        before = self.cpu_seconds()
        out = subprocess.check_output(["wrk", "-t1", "-c8", "-d1", f"http://127.0.0.1:{self.port}/"], text=True)
        assert "Non-2xx" not in out, out
        requests = int(next(line for line in out.splitlines() if "requests in" in line).split()[0])
        return requests / (self.cpu_seconds() - before)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.dir.cleanup()


class Workload:
    def __init__(self, word, name, unit, measure, goal=""):
        self.word, self.name, self.unit, self.measure, self.goal = word, name, unit, measure, goal


ZERO = 'fd = os.open("/dev/zero", os.O_RDONLY)'


def make_workloads(wanted, servers):
    def served_by(module):
        def measure():
            if module not in servers:
                servers[module] = Gunicorn(module)
            return servers[module].requests_per_second()
        return measure

    workloads = [
        Workload("django", "gunicorn gthread, Django: ORM, template, JSON", "requests/s", served_by("django_app"), ">= 0.99"),
        Workload("smallest", "gunicorn gthread, smallest application", "requests/s", served_by("smallest_app")),
        Workload("read", "uncontended GIL: os.read(fd, 1)", "calls/s", python_loop(ZERO, "os.read(fd, 1)"), ">= 0.97"),
        Workload("getppid", "system calls nobody looks at: os.getppid()", "calls/s", python_loop("", "os.getppid()")),
        Workload("dd", "a program that is no Python: dd bs=1", "calls/s", dd),
        Workload("contended", "contended GIL: os.read(fd, 1), a thread computes", "calls/s",
                 python_loop(ZERO + COMPUTE, "os.read(fd, 1)", 10)),
        Workload("ping-pong", "two threads wake each other by locks", "rounds/s",
                 python_loop(PING_PONG, "there.release(); here.acquire()", 100)),
        Workload("gc", "allocations, collections of generation 0", "lists/s",
                 python_loop("keep = []", "keep = [[] for _ in range(1000)]", 10)),
    ]
    unknown = set(wanted) - {w.word for w in workloads}
    if unknown:
        sys.exit(f"there is no workload {', '.join(unknown)}; there are {', '.join(w.word for w in workloads)}")
    return [w for w in workloads if not wanted or w.word in wanted]


# ---- the tables ----

def measure_all(workloads, found):
    for w in workloads:
        found.setdefault(w.word, []).append(w.measure())


def compare(workloads, rounds, options):
    """Each round: without, with. Returns both, by workload, and the agent's resident memory and share of a core."""
    without, with_agent, resident, shares = {}, {}, [], []
    for _ in range(rounds):
        measure_all(workloads, without)
        with Agent(*options) as agent:
            begin, cpu = time.monotonic(), agent.cpu_seconds()
            measure_all(workloads, with_agent)
            shares.append((agent.cpu_seconds() - cpu) / (time.monotonic() - begin))
            resident.append(agent.resident_mib())
    return without, with_agent, max(resident), statistics.median(shares)


def print_table(title, workloads, rounds, options):
    without, with_agent, resident, share = compare(workloads, rounds, options)
    print(f"\n{title:50} {'without':>11} {'':10} with/without  (least .. most)   best/best  goal")
    for w in workloads:
        ratios = [b / a for a, b in zip(without[w.word], with_agent[w.word])]
        print(f"{w.name:50} {statistics.median(without[w.word]):11,.0f} {w.unit:10} {statistics.median(ratios):12.3f}"
              f"  ({min(ratios):.3f} .. {max(ratios):.3f})  {max(with_agent[w.word]) / max(without[w.word]):9.3f}  {w.goal}")
    print(f"{'the agent meanwhile':50} {resident:11.1f} MiB        {100 * share:11.1f} % of a core", flush=True)


def print_pipeline():
    if os.path.exists("build/tests/bench/bench_rows"):
        rate = float(subprocess.check_output(["build/tests/bench/bench_rows"]))
        print(f"\n{'ring-buffer record to HTTP body, one core':50} {rate:11,.0f} rows/s                          >= 1,000,000")


def print_rest():
    with Agent() as agent:
        cpu = agent.cpu_seconds()
        time.sleep(5)
        share = (agent.cpu_seconds() - cpu) / 5
        print(f"{'the agent, all trackers, on this host as it is':50} {agent.resident_mib():11.1f} MiB        "
              f"{100 * share:11.1f} % of a core        <= 32 MiB, <= 1 %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trackers", help="a list, all, or each: of each alone")
    parser.add_argument("--workloads", default="")
    parser.add_argument("--degrade")
    args = parser.parse_args()
    more = [f"--degrade={args.degrade}"] if args.degrade else []
    servers = {}
    workloads = make_workloads([w for w in args.workloads.split(",") if w], servers)
    try:
        if not args.trackers or args.trackers == "all":
            print_table("all trackers", workloads, args.rounds, more)
        elif args.trackers != "each":
            print_table(args.trackers, workloads, args.rounds, [f"--trackers={args.trackers}", *more])
        if args.trackers == "each":
            for tracker in all_trackers():
                print_table(f"{tracker} alone", workloads, max(3, args.rounds - 2), [f"--trackers={tracker}", *more])
    finally:
        for server in servers.values():
            server.stop()
    if not args.trackers:
        print_pipeline()
        print_rest()


if __name__ == "__main__":
    main()
