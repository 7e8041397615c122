# SPDX-License-Identifier: Apache-2.0
"""`--workers=N`: N worker processes run the tests, as most of a test is waiting. Workers are forks of the process that
collected the tests; a worker takes the next unit when the last unit is done. A unit is a test, or the tests of a file that
share a fixture. Reports come back over a pipe, so output and counts are those of a single pytest.

A test's marker decides how many tests run at a time. Tests marked `light` compare no times: N run at a time. Tests without
a marker: half of N, three on two processors (N is three times the number of processors, see run.sh). A test marked `alone`
counts, times or hinders the whole host: nothing runs at the same time."""
import multiprocessing.connection as connection
import os
import signal
import sys
import traceback

from _pytest.reports import TestReport

import outcomes


def weight_of(item, n):
    """The share of n workers that the test uses."""
    return n if item.get_closest_marker("alone") else 1 if item.get_closest_marker("light") else min(n, 2)


def shares_fixture(item):
    definitions = item._fixtureinfo.name2fixturedefs.values()
    # fixtures of pytest hold nothing
    return any(d[-1].scope != "function" and "_pytest" not in d[-1].func.__module__ for d in definitions)


class Unit:
    def __init__(self, weight):
        self.weight = weight
        self.items = []


def units_of(items, n):
    """Light units first; of equal weight the longest first, so that the last unit is short."""
    found = {}
    for item in items:
        weight = weight_of(item, n)
        unit = found.setdefault((item.path if shares_fixture(item) else item.nodeid, weight), Unit(weight))
        unit.items.append(item)
    return sorted(found.values(), key=lambda unit: (unit.weight, -len(unit.items)))


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

    def hand_out(self):
        while self.idle:
            over = self.next == len(self.units) or self.session.shouldfail
            if not over and self.units[self.next].weight > self.free:
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
