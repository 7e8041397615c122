# SPDX-License-Identifier: Apache-2.0
"""`--workers=N`: N worker processes run the tests, as most of a test is waiting. Workers are forks of the process that
collected the tests; a worker takes the next unit when the last unit is done. A unit is a test, or the tests of a file that
share a fixture. Reports come back over a pipe, so output and counts are those of a single pytest.

A test's marker decides how many tests run at a time. Tests marked `light` compare no times: N run at a time (four times the
number of processors, see run.sh). Tests without a marker: N at most, and so many that all together used no more than the processors in
an earlier run.
Tests marked `pair` need a quiet machine: two of these at a time. A test marked `alone` counts, times or hinders the whole host: one
at a time. Tests marked `engine` ask a database: no agent, no times. They run beside `pair` and `alone`, which mostly sleep, with
processors that no other task wants (idle_class.py), and after these as `light`. A test marked `sole` has no neighbour of any kind.

The seconds and the processor time of each unit in an earlier run are in costs.tsv (`outcomes.py table`): the longest unit starts
first, so that no long unit is left at the end."""
import multiprocessing.connection as connection
import os
import signal
import sys
import time
import traceback

from _pytest.reports import TestReport

import idle_class
import outcomes


COSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "costs.tsv")
UNKNOWN_SECONDS, UNKNOWN_SHARE = 2.0, 0.5  # a test with less is not in the table


def read_costs(path=COSTS):
    """{unit: (seconds, share of a processor)} of an earlier run."""
    with open(path) as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    return {name: (float(seconds), float(share)) for seconds, share, name in rows}


KINDS = "alone", "pair", "engine", "light", "", "sole"  # in the order of the run
QUIET = {"sole", "alone", "pair"}


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
        self.seconds, share = costs.get(self.name, (UNKNOWN_SECONDS * len(self.items), UNKNOWN_SHARE))
        busy = min(n, max(1, share * n / os.cpu_count()))  # all together use the processors at most
        self.weight = {"light": 1, "": busy if n > 2 else min(n, 2), "engine": 1, "pair": (n + 1) // 2, "alone": n, "sole": n}[self.kind]


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

def lanes_of(n):
    """So many units of `engine` run beside quiet ones: none in a retry, or where others' work leaves no processor."""
    if n <= 2:
        return 0
    if "E2E_LANES" in os.environ:
        return int(os.environ["E2E_LANES"])
    use = idle_class.Use()
    time.sleep(1)
    return n // 4 if use.unused() > 0.5 else 0


class Crew:
    def __init__(self, session, n):
        self.session = session
        self.config = session.config
        self.units = units_of(session.items, n)
        self.waiting = list(range(len(self.units)))  # numbers of units, in the order of the run
        self.n = n
        self.lanes = lanes_of(n)
        self.idle = []  # pipes of workers without a unit
        self.taken = {}  # pipe: the worker's unit, and the unit's tests that have not ended
        self.patience = idle_class.Patience()
        self.behind, self.changed = set(), 0  # pids of workers whose processes have the processors that no other task wants
        self.pids = {}
        self.config._tmp_path_factory.getbasetemp()  # shared by all workers
        for number in range(n):
            pipe, pid = start_worker(session, self.units, number, list(self.pids))
            self.pids[pipe] = pid

    def run(self):
        try:
            while self.pids:
                # a process of a new session may have a priority of its own
                for pipe in connection.wait(list(self.pids), idle_class.SECONDS if self.lanes and self.taken else None):
                    self.read(pipe)
                self.hand_out()
                self.yield_processors()
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
        return self.taken.pop(pipe, (None, []))[1]

    def has_room(self, unit):
        beside = [other for other, _ in self.taken.values()]
        kinds = {other.kind for other in beside}
        if unit.kind == "sole" or "sole" in kinds:
            return not beside
        if unit.kind == "engine" and self.lanes and kinds & QUIET:
            return sum(other.kind == "engine" for other in beside) < self.lanes
        if unit.kind in QUIET and self.lanes:
            beside = [other for other in beside if other.kind != "engine"]
        if any((unit.kind == "pair") != (other.kind == "pair") for other in beside if "pair" in (unit.kind, other.kind)):
            return False
        return unit.weight + sum(other.weight for other in beside) <= self.n

    def choose(self):
        """The next unit in the order of the run that has room, or one of `engine` beside a quiet one: its number, or None."""
        if not self.waiting:
            return None
        first = self.waiting[0]
        if self.has_room(self.units[first]):
            return first
        kind = self.units[first].kind
        beside = "engine" if kind in QUIET and self.lanes else kind  # a smaller one of the kind does not have to wait
        return next((i for i in self.waiting if self.units[i].kind == beside and self.has_room(self.units[i])), None)

    def hand_out(self):
        while self.idle:
            over = not self.waiting or self.session.shouldfail
            chosen = None if over else self.choose()
            if chosen is None and not over:
                return
            pipe = self.idle.pop()
            try:
                pipe.send(chosen)
            except ConnectionError:
                continue  # the next read of the pipe finds the end
            if not over:
                unit = self.units[chosen]
                self.taken[pipe] = unit, list(unit.items)
                self.waiting.remove(chosen)

    def yield_processors(self):
        """Beside quiet units, units of `engine` get the processors that no other task wants."""
        quiet = self.lanes and any(unit.kind in QUIET for unit, _ in self.taken.values())
        behind = {self.pids[pipe] for pipe, (unit, _) in self.taken.items() if quiet and unit.kind == "engine"}
        if self.patience.is_over(behind):
            behind = set()
        if behind != self.behind or behind and time.monotonic() - self.changed > idle_class.SECONDS:
            idle_class.change(behind, self.behind - behind)
            self.behind, self.changed = behind, time.monotonic()

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
            lost += [item for i in self.waiting for item in self.units[i].items]
        for item in lost:
            self.config.hook.pytest_runtest_logreport(report=TestReport(
                item.nodeid, item.location, {}, "failed", f"the process that was to run it ended with status {status}", "call",
                promise=outcomes.is_promise(item)))


def run(session, n):
    Crew(session, n).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
