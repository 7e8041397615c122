# SPDX-License-Identifier: Apache-2.0
"""The outcome of each test at each try; run.sh prints the summary last, where readers look.
    outcomes.py again TRY             exit code 0: a test failed at this try and may be retried
    outcomes.py summary FIRST [TRY].. the last lines, with each failed test and its reason; exit code 1: a test failed
    outcomes.py costs TRY             each file's seconds, CPU seconds and seconds alone; `E2E_OUTCOMES=TRY run.sh` writes TRY
    outcomes.py spent TRY...          where the time went: seconds and CPU seconds by kind of test, the dearest units
    outcomes.py table TRY             each unit's seconds and share of a processor: costs.tsv for parallel.py"""
import json
import os
import re
import sys
import time

WORST = ["passed", "skipped", "failed"]  # of set-up, call and tear-down the worst counts


def clocks():
    """(seconds, seconds of CPU of the process and of all children that have ended)"""
    times = os.times()
    return time.monotonic(), sum(times[:4])


def cost_since(start, alone):
    """[seconds, seconds of CPU, seconds alone on the machine]"""
    seconds, cpu = (round(now - then, 3) for now, then in zip(clocks(), start))
    return [seconds, cpu, seconds if alone else 0]


def is_promise(item):
    return item.get_closest_marker("promise") is not None


REASON_CHARS = 200
FAILURE_CHARS = 2000
LINE_CHARS = 300  # an assertion about rows prints all rows in one line
WHOLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "failures")


def cut(text, chars):
    return text if len(text) <= chars else text[:chars - 4] + " ..."


def is_error(line):
    """Does the line of pytest's text of a failure belong to the assertion?"""
    return line.startswith("E   ")


def reason_of(text):
    """One line: the first line of the assertion, or the last line if no assertion failed."""
    lines = text.splitlines()
    said = [line[1:] for line in lines if is_error(line)] or lines[-1:]
    return cut(" ".join(said[0].split()).removeprefix("AssertionError: ") if said else "", REASON_CHARS)


def first_lines(lines, chars):
    kept = []
    for i, line in enumerate(lines):
        chars -= len(line) + 1
        if chars < 0:
            return [*kept, f"... and {len(lines) - i} lines"]
        kept.append(line)
    return kept


def bounded(text, chars=FAILURE_CHARS):
    """The first lines before the assertion, and the first lines of the assertion: `chars` characters and two lines at most."""
    lines = [cut(line, LINE_CHARS) for line in text.splitlines()]
    at = next((i for i, line in enumerate(lines) if is_error(line)), 0)
    before = first_lines(lines[:at], chars // 2)
    return "\n".join(before + first_lines(lines[at:], chars - sum(len(line) + 1 for line in before)))


def bound(report):
    """The printed text of a failed test is short; the whole text is a file, which the printed text names."""
    text = report.longreprtext
    shown = bounded(text)
    if shown != text.rstrip("\n"):
        os.makedirs(WHOLE, exist_ok=True)
        path = os.path.relpath(os.path.join(WHOLE, re.sub(r"[^\w.-]+", "_", short(report.nodeid))[:120] + ".txt"))
        with open(path, "w") as f:
            f.write("\n".join([text, *(f"{name}\n{content}" for name, content in report.sections)]))
        shown += f"\nthe whole text: {path}"
    report.longrepr = shown
    report.sections = [(name, bounded(content, FAILURE_CHARS // 4)) for name, content in report.sections]


class Writer:
    """Writes pytest's reports to a file for read()."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        with open(self.path, "a") as f:
            json.dump({"test": report.nodeid, "outcome": report.outcome, "promise": getattr(report, "promise", False),
                       **({"reason": reason_of(report.longreprtext)} if report.failed else {}),
                       **({"cost": report.cost, "kind": report.kind, "ended": time.time(), "unit": getattr(report, "unit", "")}
                          if hasattr(report, "cost") else {})}, f)
            f.write("\n")


def read(path):
    """{test: {"outcome", "promise", "reason"}}: the reason is that of the first failure."""
    found = {}
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            test = found.setdefault(row["test"], {"outcome": "passed", "promise": False, "reason": ""})
            test["outcome"] = max(test["outcome"], row["outcome"], key=WORST.index)
            if row["outcome"] == "failed":
                test["promise"] = test["promise"] or row["promise"]
                test["reason"] = test["reason"] or row.get("reason", "")
    return found


def costs(path):
    """{file: [tests, seconds, seconds of CPU, seconds alone]} of a try, the most CPU first. The CPU of a store
    that several tests share counts for the last test, where the store ends."""
    found = {}
    with open(path) as f:
        for row in map(json.loads, f):
            if "cost" in row:
                of_file = found.setdefault(os.path.basename(row["test"].split("::")[0]), [0, 0, 0, 0])
                of_file[:] = [before + more for before, more in zip(of_file, (1, *row["cost"]))]
    return dict(sorted(found.items(), key=lambda item: -item[1][2]))


def print_costs(path):
    found = costs(path)
    print(f"{'tests':>6}{'s':>8}{'CPU s':>8}{'alone s':>8}")
    for name, (n, seconds, cpu, alone) in [*found.items(), ("all", map(sum, zip(*found.values())))]:
        print(f"{n:6}{seconds:8.1f}{cpu:8.1f}{alone:8.1f}  {name}")


DEAREST = 20


def length(spans):
    """Seconds covered by the spans, which may overlap."""
    covered, until = 0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, until))
        until = max(until, end)
    return covered


def spent(paths):
    """({kind or try: [tests, wall seconds, CPU seconds]}, {unit: [tests, seconds, CPU seconds]}); units of the first try. Kinds run
    beside each other, so their wall seconds may be more than the run's."""
    kinds, spans, units = {}, {}, {}
    for i, path in enumerate(paths):
        with open(path) as f:
            for row in map(json.loads, f):
                if "cost" not in row:
                    continue
                seconds, cpu, _ = row["cost"]
                kind = (row["kind"] or "other") if i == 0 else f"try {i + 1}"
                spans.setdefault(kind, []).append((row["ended"] - seconds, row["ended"]))
                for found, name in [(kinds, kind), (units, row["unit"] or row["test"])][:2 if i == 0 else 1]:
                    found[name] = [before + more for before, more in zip(found.get(name, (0, 0, 0)), (1, seconds, cpu))]
    for kind, found in kinds.items():
        found[1] = length(spans[kind])
    return kinds, units


def print_spent(paths):
    kinds, units = spent(paths)
    print(f"e2e: where the time went\n{'tests':>6}{'wall s':>8}{'CPU s':>8}")
    everything = [sum(column) for column in zip(*kinds.values())]
    for name, (n, seconds, cpu) in [*kinds.items(), ("all", everything)]:
        print(f"{n:6}{seconds:8.0f}{cpu:8.0f}  {name}")
    print(f"{'tests':>6}{'s':>8}{'CPU s':>8}")
    for name, (n, seconds, cpu) in sorted(units.items(), key=lambda item: -item[1][2])[:DEAREST]:
        print(f"{n:6}{seconds:8.1f}{cpu:8.1f}  {name}")


TABLE_SECONDS = 2  # shorter units are as long as any


def print_table(path):
    """The longest unit first. The order of equal lines is fixed, so that two tables can be compared."""
    found = {}
    with open(path) as f:
        for row in map(json.loads, f):
            if row.get("unit"):
                unit = found.setdefault(row["unit"], [0, 0])
                unit[:] = [unit[0] + row["cost"][0], unit[1] + row["cost"][1]]
    for name, (seconds, cpu) in sorted(found.items(), key=lambda item: (-round(item[1][0]), item[0])):
        if seconds >= TABLE_SECONDS:
            print(f"{seconds:.0f}\t{cpu / seconds:.2f}\t{name}")


def failed(outcomes):
    return [test for test, found in outcomes.items() if found["outcome"] == "failed"]


def other_chances(tried):
    """Tests to retry: shared machines delay a test that compares times. A broken promise is not retried."""
    return {test for test in failed(tried) if not tried[test]["promise"]}


def short(test):
    return test.split("::", 1)[-1]


def late_at(first, later):
    """For each later try: the tests that passed, of those that had failed at all earlier tries."""
    left, found = other_chances(first), []
    for tried in later:
        passed = {test for test in left if tried.get(test, {}).get("outcome") == "passed"}
        found.append([test for test in first if test in passed])  # in the order of the run
        left = (left & other_chances(tried)) - passed
    return found


def summary(first, later):
    """(lines, all is well). Each failed test has a line with the reason, also if a later try passed. The last line names tests
    that only a later try passed; the line before, with plain counts, is for programs."""
    late = late_at(first, later)
    passed_late = {test for tests in late for test in tests}
    bad = [test for test in failed(first) if test not in passed_late]
    skipped = sum(found["outcome"] == "skipped" for found in first.values())
    passed = len(first) - len(bad) - skipped
    broken = {test for tried in (first, *later) for test in failed(tried) if tried[test]["promise"]}

    def line(word, test, reason):
        return f"e2e: {word}: {short(test)}: {reason}" + (" (a promise: no other try)" if test in broken else "")

    lines = [line("passed late", test, first[test]["reason"]) for tests in late for test in tests]
    for test in bad:
        last = [tried for tried in (first, *later) if tried.get(test, {}).get("outcome") == "failed"][-1]
        lines.append(line("failed", test, last[test]["reason"]))
    lines.append(f"e2e: {passed} passed, {len(bad)} failed, {skipped} skipped")
    if passed_late:
        names = [f"{len(tests)} of them only at the {ordinal} try: {', '.join(map(short, tests))}"
                 for ordinal, tests in zip(("second", "third"), late) if tests]
        lines.append(f"e2e: {passed} passed, {'; '.join(names)}" + (f"; {len(bad)} failed" if bad else ""))
    return lines, not bad


def main(what, first, *later):
    if what == "costs":
        return print_costs(first)
    if what == "table":
        return print_table(first)
    if what == "spent":
        return print_spent([first, *later])
    if what == "again":
        return 0 if other_chances(read(first)) else 1
    lines, well = summary(read(first), [read(tried) for tried in later])
    print("\n".join(lines), flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
