# SPDX-License-Identifier: Apache-2.0
"""What became of each test, at each of its tries: run.sh prints it last, where it is seen.
    outcomes.py again TRY             exit code 0: something failed at this try that may have another one
    outcomes.py summary FIRST [TRY].. the last lines; exit code 1: something failed"""
import json
import sys

WORST = ["passed", "skipped", "failed"]  # of set-up, call and tear-down the worst counts


def is_promise(item):
    return item.get_closest_marker("promise") is not None


class Writer:
    """What pytest reports, to be read here."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        with open(self.path, "a") as f:
            json.dump({"test": report.nodeid, "outcome": report.outcome, "promise": getattr(report, "promise", False)}, f)
            f.write("\n")


def read(path):
    """{test: {"outcome", "promise"}}"""
    found = {}
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            test = found.setdefault(row["test"], {"outcome": "passed", "promise": False})
            test["outcome"] = max(test["outcome"], row["outcome"], key=WORST.index)
            if row["outcome"] == "failed":
                test["promise"] = test["promise"] or row["promise"]
    return found


def failed(outcomes):
    return [test for test, found in outcomes.items() if found["outcome"] == "failed"]


def other_chances(tried):
    """A test that compares times may have met a moment in which the machine keeps none; a broken promise is one."""
    return {test for test in failed(tried) if not tried[test]["promise"]}


def short(test):
    return test.split("::", 1)[-1]


def late_at(first, later):
    """[the tests that passed at this try, of those that had failed at all tries before it], for each later try."""
    left, found = other_chances(first), []
    for tried in later:
        passed = {test for test in left if tried.get(test, {}).get("outcome") == "passed"}
        found.append([test for test in first if test in passed])  # in their order
        left = (left & other_chances(tried)) - passed
    return found


def summary(first, later):
    """(lines, all is well). The last line has what only a later try passed; the one with the plain counts is for
    programs."""
    late = late_at(first, later)
    passed_late = {test for tests in late for test in tests}
    bad = [test for test in failed(first) if test not in passed_late]
    skipped = sum(found["outcome"] == "skipped" for found in first.values())
    passed = len(first) - len(bad) - skipped
    broken = {test for tried in (first, *later) for test in failed(tried) if tried[test]["promise"]}
    lines = [f"e2e: failed: {short(test)}" + (" (a promise: no other try)" if test in broken else "") for test in bad]
    lines.append(f"e2e: {passed} passed, {len(bad)} failed, {skipped} skipped")
    if passed_late:
        names = [f"{len(tests)} of them only at the {ordinal} try: {', '.join(map(short, tests))}"
                 for ordinal, tests in zip(("second", "third"), late) if tests]
        lines.append(f"e2e: {passed} passed, {'; '.join(names)}" + (f"; {len(bad)} failed" if bad else ""))
    return lines, not bad


def main(what, first, *later):
    if what == "again":
        return 0 if other_chances(read(first)) else 1
    lines, well = summary(read(first), [read(tried) for tried in later])
    print("\n".join(lines), flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
