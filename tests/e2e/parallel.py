# SPDX-License-Identifier: Apache-2.0
"""`--workers=N`: N worker processes run the tests, as most of a test is waiting. Workers are forks of the process that
collected the tests; a worker takes the next unit when the last unit is done. A unit is a test, or the tests of a file that
share a fixture. Reports come back over a pipe, so output and counts are those of a single pytest.

A test's marker decides how many tests run at a time. Tests marked `light` compare no times: N run at a time. Tests without
a marker: half of N, three on two processors (N is three times the number of processors, see run.sh); N if they mostly wait.
Tests marked `pair` need a quiet machine: two of these at a time, and nothing else. A test marked `alone` counts, times or hinders
the whole host: nothing runs at the same time.

The seconds and the processor time of each unit in an earlier run are in costs.tsv (`outcomes.py table`): the longest unit starts
first, so that no long unit is left at the end."""
import multiprocessing.connection as connection
import os
import signal
import sys
import traceback

from _pytest.reports import TestReport

import outcomes


COSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "costs.tsv")
UNKNOWN_SECONDS = 2.0  # a test with less is not in the table
WAITS = 0.25  # of a processor: a unit that used less mostly waited


def read_costs(path=COSTS):
    """{unit: (seconds, share of a processor)} of an earlier run."""
    with open(path) as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    return {name: (float(seconds), float(share)) for seconds, share, name in rows}


KINDS = "light", "", "pair", "alone"  # in the order of the run


def kind_of(item):
    return next((kind for kind in KINDS if kind and item.get_closest_marker(kind)), "")


def shares_fixture(item):
    definitions = item._fixtureinfo.name2fixturedefs.values()
    # fixtures of pytest hold nothing
    return any(d[-1].scope != "function" and "_pytest" not in d[-1].func.__module__ for d in definitions)


class Unit:
    """Tests that one worker runs in sequence."""

    def __init__(self, name, kind):
        self.name, self.kind = name, kind
        self.items = []

    def plan(self, n, costs):
        """weight: the share of n workers that the unit uses."""
        self.seconds, share = costs.get(self.name, (UNKNOWN_SECONDS * len(self.items), 1))
        waits = n > 2 and share < WAITS
        self.weight = {"light": 1, "": 1 if waits else min(n, 2), "pair": (n + 1) // 2, "alone": n}[self.kind]


def name_of(item):
    """`FILE::TEST`, or `FILE KIND` for the tests of a file that share a fixture."""
    name = item.path.name
    return f"{name} {kind_of(item)}".strip() if shares_fixture(item) else f"{name}::{item.nodeid.split('::', 1)[1]}"


def order(unit):
    """One kind after the other; of a kind the longest first."""
    return KINDS.index(unit.kind), -unit.seconds


def units_of(items, n):
    found, costs = {}, read_costs()
    for item in items:
        name = name_of(item)
        found.setdefault(name, Unit(name, kind_of(item))).items.append(item)
    for unit in found.values():
        unit.plan(n, costs)
    return sorted(found.values(), key=order)


def run_each(session, items):
    for item, following in zip(items, [*items[1:], None]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)


# ---- a worker ----

class Reporter:
    """Sends a worker's reports to the parent, instead of printing and counting."""

    def __init__(self, config, pipe):
        self.config = config
        self.pipe = pipe

    def pytest_runtest_logreport(self, report):
        self.pipe.send(("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report)))


def prepare_worker(config, number, pipe):
    for name in "terminalreporter", "outcomes":
        plugin = config.pluginmanager.get_plugin(name)
        if plugin:
            config.pluginmanager.unregister(plugin)
    config.pluginmanager.register(Reporter(config, pipe), "reporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # the output file is the parent's
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = config._tmp_path_factory
    factory._basetemp = factory.getbasetemp() / f"pytest-{number}"
    factory._basetemp.mkdir(mode=0o700)


def work(session, units, number, pipe):
    prepare_worker(session.config, number, pipe)
    while True:
        pipe.send(("next", None))
        unit = pipe.recv()
        if unit is None:
            return
        run_each(session, units[unit].items)


def start_worker(session, units, number, others):
    here, there = connection.Pipe()
    pid = os.fork()
    if pid:
        there.close()
        return here, pid
    status = 1
    try:
        here.close()
        for pipe in others:
            pipe.close()
        work(session, units, number, there)
        status = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the parent has ended
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        try:
            session._setupstate.teardown_exact(None)  # fixtures of an interrupted test
        finally:
            os._exit(status)


# ---- the parent ----

class Crew:
    def __init__(self, session, n):
        self.session = session
        self.config = session.config
        self.units = units_of(session.items, n)
        self.next = 0
        self.free = n
        self.idle = []  # pipes of workers without a unit
        self.taken = {}  # pipe: the worker's unit, and the unit's tests that have not ended
        self.pids = {}
        self.config._tmp_path_factory.getbasetemp()  # shared by all workers
        for number in range(n):
            pipe, pid = start_worker(session, self.units, number, list(self.pids))
            self.pids[pipe] = pid

    def run(self):
        try:
            while self.pids:
                for pipe in connection.wait(list(self.pids)):
                    self.read(pipe)
                self.hand_out()
        finally:
            for pid in self.pids.values():  # only where something went wrong here
                os.kill(pid, signal.SIGINT)
                os.waitpid(pid, 0)

    def read(self, pipe):
        try:
            kind, value = pipe.recv()
        except (EOFError, ConnectionError):
            return self.ended(pipe)
        if kind == "next":
            self.give_back(pipe)
            self.idle.append(pipe)
        else:
            self.report(pipe, self.config.hook.pytest_report_from_serializable(config=self.config, data=value))

    def give_back(self, pipe):
        """Returns the tests that have not ended."""
        unit, left = self.taken.pop(pipe, (None, []))
        self.free += unit.weight if unit else 0
        return left

    def has_room(self, unit):
        beside = {other.kind for other, _ in self.taken.values()}
        return unit.weight <= self.free and (unit.kind != "pair" or beside <= {"pair"})

    def hand_out(self):
        while self.idle:
            over = self.next == len(self.units) or self.session.shouldfail
            if not over and not self.has_room(self.units[self.next]):
                return
            pipe = self.idle.pop()
            try:
                pipe.send(None if over else self.next)
            except ConnectionError:
                continue  # the next read of the pipe finds the end
            if not over:
                unit = self.units[self.next]
                self.taken[pipe] = unit, list(unit.items)
                self.free -= unit.weight
                self.next += 1

    def report(self, pipe, report):
        report.unit = self.taken[pipe][0].name
        if report.when == "teardown":
            self.taken[pipe][1][:] = [item for item in self.taken[pipe][1] if item.nodeid != report.nodeid]
        self.config.hook.pytest_runtest_logreport(report=report)

    def ended(self, pipe):
        """A worker ended, perhaps killed by a test: the remaining tests of the unit have failed."""
        _, status = os.waitpid(self.pids.pop(pipe), 0)
        pipe.close()
        lost = self.give_back(pipe)
        if not self.pids and not self.session.shouldfail:
            lost += [item for unit in self.units[self.next:] for item in unit.items]
        for item in lost:
            self.config.hook.pytest_runtest_logreport(report=TestReport(
                item.nodeid, item.location, {}, "failed", f"the process that was to run it ended with status {status}", "call",
                promise=outcomes.is_promise(item)))


def run(session, n):
    Crew(session, n).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
