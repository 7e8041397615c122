# SPDX-License-Identifier: Apache-2.0
"""Measures an operation beside a tool (an agent or a peer): BPF time by program, the tool's own CPU time, and the ratio of the
workload's CPU time without and with the tool, of rounds that alternate."""

import contextlib
import dataclasses
import statistics

from bench_bpf import measure
from bench_switches import set_statistics
from load_cpu import threads_ns


@dataclasses.dataclass
class Figures:
    programs: dict  # name: (runs, ns) an operation
    own_ns: float  # the tool's CPU time an operation
    ratio: float | None  # of the workload's CPU time, without / with

    def ns(self, prefix=""):
        return sum(ns for name, (_, ns) in self.programs.items() if name.startswith(prefix))

    def runs(self):
        return sum(runs for runs, _ in self.programs.values())


@contextlib.contextmanager
def counting(value):
    """The kernel's statistics of programs, which cost time, on or off."""
    before = set_statistics(value)
    try:
        yield
    finally:
        set_statistics(before)


def beside(tool, load, run, empty, rounds):
    """tool: starts it, as context; yields an object with a process."""
    run()
    found, ratios, own = {}, [], []
    for _ in range(rounds):
        with counting("0"):
            _, without = load.run(run)
            with tool() as started:
                run()
                before = threads_ns(started.process.pid)
                n, with_tool = load.run(run)
                own.append((threads_ns(started.process.pid) - before) / n)
                with counting("1"):
                    for name, figure in measure(started, run, empty, 1, False).items():
                        found[name] = min(found.get(name, figure), figure, key=lambda f: f[1])
        if without:
            ratios.append(without / with_tool)
    return Figures(found, min(own), statistics.median(ratios) if ratios else None)


def shown(value, form):
    """A cell; what was not measured is left out."""
    return "-" if value is None else format(value, form)
