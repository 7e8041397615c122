#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""OVERHEAD: what an operation of each workload costs with all trackers, in BPF and in the agent, with the ratio of the workload's
CPU time without and with the agent (A B A B); the same of each tracker alone; programs that do a tracker's job on the same load;
and the share of the host's CPU that is left after half a minute with the governor. BPF time is from the kernel's statistics,
less their own price, the least of some rounds. Columns that hardly depend on other work come first. `make bench` runs this.

overhead.py [--workloads=WORD,...] [--parts=table,each,peers,governor] [--rounds=N] [--short]
"""

import argparse
import contextlib
import datetime
import os
import re
import subprocess
import sys
import threading
import time

from bench import Agent, all_trackers
from bench_bpf import empty_run_ns, measure
from bench_switches import programs_of
from load_cpu import Load, threads_ns
from measure import beside, counting, shown
from peers import PEERS, print_peers, started
from workloads import workloads

LIMIT, GOVERNED_SECONDS, LAST_SECONDS, FIRST_SECONDS = 1.0, 30, 8, 3  # % of the host's CPU; seconds
RATIO = 0.97  # wanted of each workload
PARTS = {"sched": "sched_", "request": "request_", "handoff": "handoff_", "gc": "gc_pause", "tcp": "tcp_", "loop": "loop_"}  # by name
ALL_PARTS = "table", "each", "peers", "governor"
EACH = "gunicorn", "gil", "connect", "idle", "redis", "nginx", "postgres"


class Measured(contextlib.suppress):
    """A workload that cannot be measured is said, and the others are measured."""
    failed = 0

    def __init__(self, title):
        super().__init__(RuntimeError, subprocess.CalledProcessError, OSError)
        self.title = title

    def __exit__(self, kind, what, where):
        if what:
            Measured.failed += 1
            print(f"{self.title:56} not measured: {what}", flush=True)
        return super().__exit__(kind, what, where)


# ---- all trackers ----

def print_table(load, every, wanted, empty, rounds):
    print(f"\n{'ns an operation, all trackers':56} {'BPF':>8} {'budget':>8} {'runs':>7} {'agent':>8} {'CPU':>6}  "
          + "".join(f"{part:>9}" for part in PARTS) + f"{'other':>9}")
    for word in wanted:
        w = every[word]
        with Measured(w.title), w.start as run:
            found = beside(lambda: started(load, ["--trackers=" + ",".join(all_trackers())]), load, run, empty, rounds)
            found.programs = {name: figure for name, figure in found.programs.items() if name.startswith(w.programs)}
            ratio = None if w.waits else found.ratio
            over = w.budget is not None and found.ns() > w.budget and found.runs() >= 0.01 or ratio is not None and round(ratio, 2) < RATIO
            parts = [found.ns(prefix) for prefix in PARTS.values()]
            print(f"{w.title:56} {found.ns():8,.0f} {shown(w.budget, ','):>8} {found.runs():7.2f} {found.own_ns:8,.0f} {shown(ratio, '6.2f'):>6}"
                  f"{' !' if over else '  '}" + "".join(f"{ns:9,.0f}" for ns in parts) + f"{found.ns() - sum(parts):9,.0f}", flush=True)
    print(f"runs: of BPF programs; CPU: of the workload, without / with the agent, wanted {RATIO}; !: over budget; less than 0.01 runs are of other processes")


# ---- each tracker ----

def print_each(load, every, wanted, empty):
    """All workloads run idle beside the one that is measured."""
    trackers, found = all_trackers(), {}
    with contextlib.ExitStack() as stack:
        runs = {word: stack.enter_context(every[word].start) for word in wanted}
        for tracker in trackers:
            with started(load, [f"--trackers={tracker}"]) as agent, counting("1"):
                for word, run in runs.items():
                    programs = measure(agent, run, empty, 2, False)
                    found[word, tracker] = sum(ns for name, (_, ns) in programs.items() if name.startswith(every[word].programs))
    print(f"\n{'BPF ns an operation, one tracker alone':56}" + "".join(f"{tracker:>13}" for tracker in trackers))
    for word in wanted:
        print(f"{every[word].title:56}" + "".join(f"{found[word, tracker]:13,.0f}" for tracker in trackers), flush=True)


# ---- the governor ----

class Governed(Agent):
    """With the default limit, unlike the other agents of the bench."""

    def __enter__(self):
        self.options = (f"--governor.cpu_percent={LIMIT}", *self.options)
        return super().__enter__()


def shares(pid, empty, seconds):
    """Percent of the host's CPU: in the kernel, and the agent's own."""
    before, own, begin = programs_of(pid), threads_ns(pid), time.monotonic()
    time.sleep(seconds)
    after, own = programs_of(pid), threads_ns(pid) - own
    host = (time.monotonic() - begin) * 1e9 * os.cpu_count() / 100
    return sum(ns - before[n][0] - empty * (runs - before[n][1]) for n, (ns, runs) in after.items() if n in before) / host, own / host


def taken_out(said):
    out = []
    for name, word in re.findall(r"governor: (\S+) is (taken out|put back)", said):
        out = [n for n in out if n != name] + [name] * (word == "taken out")
    return out


def governed(load, run, empty):
    """Shares in the first seconds, and of the last; what is out at the end."""
    over, failed = threading.Event(), []

    def loop():
        try:
            while not over.is_set():
                run()
        except Exception as e:  # without load the share would be a lie
            failed.append(e)
    loader = threading.Thread(target=loop)
    loader.start()
    try:
        with load.outside():
            agent = Governed().__enter__()
        try:
            with counting("1"):
                first = shares(agent.process.pid, empty, FIRST_SECONDS)
                time.sleep(GOVERNED_SECONDS - FIRST_SECONDS - LAST_SECONDS / 2)
                return first, shares(agent.process.pid, empty, LAST_SECONDS), taken_out(agent.said())
        finally:
            agent.__exit__()
    finally:
        over.set()
        loader.join()
        if failed:
            raise RuntimeError(f"the load ended: {failed[0]}")


def print_governor(load, every, wanted, empty):
    print(f"\n{f'% of {os.cpu_count()} CPUs, governor at {LIMIT:g} %: first {FIRST_SECONDS} s, after {GOVERNED_SECONDS} s':56}"
          f" {'kernel':>7} {'agent':>7} {'kernel':>9} {'agent':>7}  out at the end")
    for word in wanted:
        w = every[word]
        with Measured(w.title), w.start as run:
            first, last, out = governed(load, run, empty)
            print(f"{w.title:56} {first[0]:7.2f} {first[1]:7.2f} {last[0]:9.2f} {last[1]:7.2f}  {', '.join(out) or 'nothing'}"
                  f"{'' if last[0] <= 1.2 * LIMIT else '  !'}", flush=True)
    print(f"!: more than {1.2 * LIMIT:g} % in the kernel")


# ---- all ----

def parsed(every):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="")
    parser.add_argument("--parts", default="")
    parser.add_argument("--rounds", type=int, help="of the parts table and peers: 3, 2")
    parser.add_argument("--short", action="store_true", help="one round, without the part each, the governor with one workload")
    args = parser.parse_args()
    args.workloads = [w for w in args.workloads.split(",") if w]
    args.parts = [p for p in args.parts.split(",") if p] or [p for p in ALL_PARTS if p != "each" or not args.short]
    if unknown := set(args.workloads) - set(every):
        parser.error(f"there is no workload {', '.join(unknown)}; there are {', '.join(every)}")
    if unknown := set(args.parts) - set(ALL_PARTS):
        parser.error(f"there is no part {', '.join(unknown)}")
    return args


def stolen():
    """Ticks that the hypervisor took, and all ticks."""
    with open("/proc/stat") as f:
        ticks = [int(word) for word in f.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def main():
    args = parsed(workloads(True))
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    load, (taken, ticks) = Load(), stolen()
    try:
        with counting("1"):
            empty = min(empty_run_ns() for _ in range(5))
        uname = os.uname()
        print(f"OVERHEAD, {datetime.date.today()}, Linux {uname.release}, {uname.machine}, {os.cpu_count()} CPUs, load "
              f"{os.getloadavg()[0]:.1f} at the beginning; {empty:.0f} ns a run are the statistics' own and left out")
        for part in args.parts:
            every = workloads(True)  # new ones for each part; more rounds say more than longer ones

            def measurable(usual):
                chosen = [w for w in args.workloads or usual if w in usual or part in ("table", "governor")]
                for w in chosen:
                    if lacking := every[w].lacks():
                        print(f"{every[w].title}: not measured, there is no {lacking} here")
                return [w for w in chosen if not every[w].lacks()]
            if part == "table":
                print_table(load, every, measurable(every), empty, args.rounds or (1 if args.short else 3))
            elif part == "each":
                print_each(load, every, measurable(EACH), empty)
            elif part == "peers":
                print_peers(load, every, measurable(["gunicorn", "connect"] if args.short else PEERS), empty, args.rounds or (1 if args.short else 2))
            else:
                print_governor(load, every, measurable(["gunicorn"] if args.short else every), empty)
        taken, ticks = (now - then for now, then in zip(stolen(), (taken, ticks)))
        print(f"\nThe hypervisor took {100 * taken / ticks:.0f} % of the time: BPF and CPU times contain it.")
    finally:
        load.remove()
    sys.exit(f"{Measured.failed} not measured" if Measured.failed else 0)


if __name__ == "__main__":
    main()
