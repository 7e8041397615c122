# SPDX-License-Identifier: Apache-2.0
"""What became of each test, at the first try and at the second: run.sh prints it last, where it is seen.
    outcomes.py again FIRST            exit code 0: something failed that may have a second chance
    outcomes.py summary FIRST [SECOND] the last lines; exit code 1: something failed"""
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


def second_chances(first):
    """A test that compares times may have met a moment in which the machine keeps none; a broken promise is one."""
    return {test for test in failed(first) if not first[test]["promise"]}


def short(test):
    return test.split("::", 1)[-1]


def summary(first, second):
    """(lines, all is well). The last line has what only the second try passed; the one with the plain counts is for
    programs."""
    late = [test for test in second_chances(first) if second.get(test, {}).get("outcome") == "passed"]
    late = [test for test in first if test in late]  # in their order
    bad = [test for test in failed(first) if test not in late]
    skipped = sum(found["outcome"] == "skipped" for found in first.values())
    passed = len(first) - len(bad) - skipped
    lines = [f"e2e: failed: {short(test)}" + (" (a promise: no second try)" if first[test]["promise"] else "") for test in bad]
    lines.append(f"e2e: {passed} passed, {len(bad)} failed, {skipped} skipped")
    if late:
        lines.append(f"e2e: {passed} passed, {len(late)} of them only at the second try: {', '.join(map(short, late))}"
                     + (f"; {len(bad)} failed" if bad else ""))
    return lines, not bad


def main(what, first, second=None):
    first = read(first)
    if what == "again":
        return 0 if second_chances(first) else 1
    lines, well = summary(first, read(second) if second else {})
    print("\n".join(lines), flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
