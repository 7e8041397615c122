# SPDX-License-Identifier: Apache-2.0
"""run.sh itself: what fails first and passes alone is named in the last line, a broken promise has no other try, and the
counts are in a line of their own. Tests run beside each other, those that may not run by themselves."""
import os
import pathlib
import subprocess
import time

import pytest

import idle_class
import outcomes
import parallel
from agent import ROOT

pytestmark = pytest.mark.light

HOOKS = """
import importlib.util, sys
sys.path.insert(0, {e2e!r})
spec = importlib.util.spec_from_file_location("e2e_conftest", {e2e!r} + "/conftest.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name in dir(module):
    if name.startswith("pytest_") and name != "pytest_report_header":
        globals()[name] = getattr(module, name)
"""
GOOD = "def test_good(): pass\n\n@pytest.mark.skip(reason='x')\ndef test_skipped(): pass\n"
ONCE = """
def test_{name}():
    seen = os.path.exists({path!r})
    open({path!r}, "w").close()
    assert seen
"""
TWICE = """
def test_last():
    with open({path!r}, "a") as f:
        f.write("x")
    assert os.path.getsize({path!r}) == 3
"""
BREAKS_LATER = """
def test_breaks():
    seen = os.path.exists({path!r})
    open({path!r}, "w").close()
    promise(not seen, "late")
    assert seen
"""
BAD = "def test_bad(): assert False\n"


@pytest.fixture
def run_sh(tmp_path):
    def run(*tests, workers=4):
        text = "import os\nimport time\nimport pytest\nfrom agent import promise\n" + "\n".join(tests)
        (tmp_path / "test_x.py").write_text(text)
        (tmp_path / "conftest.py").write_text(HOOKS.format(e2e=f"{ROOT}/tests/e2e"))
        # a pytest takes the rights to its temporary directory from all others, those of a test beside it too
        env = {**os.environ, "E2E_TESTS": str(tmp_path), "E2E_WORKERS": str(workers), "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
        env |= {"E2E_OUTCOMES": str(tmp_path / "kept"), "E2E_LANES": "2", "E2E_SUMMARY": ""}
        result = subprocess.run([f"{ROOT}/tests/e2e/run.sh", "-p", "no:cacheprovider"], stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, env=env, timeout=150)
        return result.returncode, result.stdout.splitlines()
    return run


def test_all_pass(run_sh):
    code, lines = run_sh(GOOD)
    assert (code, lines[-1]) == (0, "e2e: 1 passed, 0 failed, 1 skipped")


def test_what_the_second_try_passes_is_named_last(run_sh, tmp_path):
    code, lines = run_sh(GOOD, ONCE.format(name="late", path=f"{tmp_path}/late"), ONCE.format(name="later", path=f"{tmp_path}/b"))
    assert (code, lines[-2]) == (0, "e2e: 3 passed, 0 failed, 1 skipped")
    told, names = lines[-1].rsplit(": ", 1)
    assert told == "e2e: 3 passed, 2 of them only at the second try" and sorted(names.split(", ")) == ["test_late", "test_later"]


def test_what_fails_at_each_try_is_broken(run_sh, tmp_path):
    code, lines = run_sh(GOOD, BAD, ONCE.format(name="late", path=f"{tmp_path}/late"), TWICE.format(path=f"{tmp_path}/last"))
    assert code == 1 and lines[-5:] == [
        "e2e: passed late: test_late: assert False", "e2e: passed late: test_last: assert 1 == 3", "e2e: failed: test_bad: assert False",
        "e2e: 3 passed, 1 failed, 1 skipped",
        "e2e: 3 passed, 1 of them only at the second try: test_late; 1 of them only at the third try: test_last; 1 failed"]
    assert sum("test_bad FAILED" in line for line in lines) == 3


def test_a_promise_that_is_broken_at_the_second_try_has_no_third(run_sh, tmp_path):
    code, lines = run_sh(GOOD, BREAKS_LATER.format(path=f"{tmp_path}/seen"))
    assert code == 1
    assert lines[-2:] == ["e2e: failed: test_breaks: agent.BrokenPromise: late (a promise: no other try)", "e2e: 1 passed, 1 failed, 1 skipped"]


@pytest.mark.parametrize("how", ["@pytest.mark.promise", "raises"])
def test_a_promise_has_no_other_try(how, run_sh, tmp_path):
    once = ONCE.format(name="kept", path=f"{tmp_path}/kept")
    once = once.replace("assert seen", "promise(seen, 'late')") if how == "raises" else f"{how}\n{once.lstrip()}"
    code, lines = run_sh(GOOD, once)
    assert code == 1
    reason = "agent.BrokenPromise: late" if how == "raises" else "assert False"
    assert lines[-2:] == [f"e2e: failed: test_kept: {reason} (a promise: no other try)", "e2e: 1 passed, 1 failed, 1 skipped"]


LONG = """
def test_long():
    rows = ["row %d" % i for i in range(20_000)]
    print("\\n".join(rows))
    assert not rows, "\\n".join(["first of " + " ".join(rows), *rows])
"""


def test_the_text_of_a_failure_is_short(run_sh, tmp_path):
    """A failure that has all rows in its message is 200 lines of a log otherwise; the whole text is a file."""
    code, lines = run_sh(GOOD, LONG, "@pytest.mark.promise\n" + BAD.replace("False", "[0] == ['x' * 1000] * 1000"))
    begin, end = (next(i for i, line in enumerate(lines) if word in line) for word in ("= FAILURES", "short test summary"))
    assert code == 1 and sum(map(len, lines[begin:end])) < 7000, lines[begin:end]
    [path] = [line.split(": ")[1] for line in lines[begin:end] if "the whole text" in line and "test_long" in line]
    text = (pathlib.Path(ROOT) / path).read_text()
    assert "E   AssertionError: first of row 0 row 1 " in text and text.count("row 19999") >= 3
    [reason] = [line for line in lines if line.startswith("e2e: failed: test_long: ")]
    assert "test_long: first of row 0 row 1 row 2" in reason and 190 < len(reason) < 240


BUSY = """
@pytest.mark.alone
def test_busy(): os.system("/usr/bin/python3 -c 'import time; [0 for _ in iter(lambda: time.process_time() < 0.7, False)]'")
"""


def test_costs_of_a_file(run_sh, tmp_path):
    """CPU of a test's children counts."""
    run_sh(GOOD, BUSY)
    [(name, (n, seconds, cpu, alone))] = outcomes.costs(tmp_path / "kept").items()
    assert (name, n) == ("test_x.py", 3) and 0.65 <= cpu < 3 and 0.65 <= alone <= seconds


def test_where_the_time_went(run_sh, tmp_path):
    """By kind of test and by try; then the dearest."""
    _, lines = run_sh(GOOD, BUSY, ONCE.format(name="late", path=f"{tmp_path}/late"))
    begin = lines.index("e2e: where the time went")
    kinds, units = {}, {}
    for line in lines[begin + 2:]:
        fields = line.split(maxsplit=3)
        if fields[0] == "tests":
            kinds, units = units, kinds
        elif fields[0] == "e2e:":
            break
        else:
            units[fields[3]] = int(fields[0]), float(fields[1]), float(fields[2])
    assert {name: n for name, (n, _, _) in kinds.items()} == {"alone": 1, "other": 3, "try 2": 1, "all": 5}
    assert next(iter(units)) == "test_x.py::test_busy" and 0.65 <= units["test_x.py::test_busy"][2] < 3


# each waits for the word of the other, so neither can pass before the other has begun
PAIR = """
@pytest.mark.parametrize("own, other", ["ab", "ba"])
def test_pair(own, other):
    open({path!r} + own, "w").close()
    deadline = time.monotonic() + 10
    while not os.path.exists({path!r} + other):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.5)
    os.unlink({path!r} + own)
"""
ALONE = """
@pytest.mark.alone
def test_alone():
    assert not os.path.exists({path!r} + "a") and not os.path.exists({path!r} + "b")
"""
QUIET = """
@pytest.mark.pair
@pytest.mark.parametrize("own, other", ["cd", "dc"])
def test_quiet(own, other):
    test_pair(own, other)
    assert not os.path.exists({path!r} + "a") and not os.path.exists({path!r} + "b")
"""
DEADLY = """
@pytest.mark.promise
def test_deadly(): os.kill(os.getpid(), 9)
"""


def test_two_at_a_time_and_one_alone(run_sh, tmp_path):
    code, lines = run_sh(ALONE.format(path=f"{tmp_path}/"), PAIR.format(path=f"{tmp_path}/"))
    assert (code, lines[-1]) == (0, "e2e: 3 passed, 0 failed, 0 skipped")


def test_a_pair_has_no_other_neighbours(run_sh, tmp_path):
    code, lines = run_sh(PAIR.format(path=f"{tmp_path}/"), QUIET.format(path=f"{tmp_path}/"))
    assert (code, lines[-1]) == (0, "e2e: 4 passed, 0 failed, 0 skipped")


# beside each other, and the tests of the engine have only what the other leaves, also in a session of their own; then what all have
BESIDE = """
import subprocess

def until(holds):
    deadline = time.monotonic() + 50
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)

@pytest.mark.alone
def test_alone():
    until(lambda: os.path.exists({path!r} + "engine"))
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    open({path!r} + "alone", "w").close()
    until(lambda: os.path.exists({path!r} + "was idle"))

@pytest.mark.engine
def test_engine():
    child = subprocess.Popen(["sleep", "20"], start_new_session=True)
    group = f"/proc/{{child.pid}}/autogroup"
    open({path!r} + "engine", "w").close()
    until(lambda: os.path.exists({path!r} + "alone"))
    for policy, weight in (os.SCHED_IDLE, "nice 19"), (os.SCHED_OTHER, "nice 0"):
        until(lambda: {{os.sched_getscheduler(pid) for pid in (0, child.pid)}} == {{policy}})
        until(lambda: not os.path.exists(group) or open(group).read().rstrip().endswith(weight))
        open({path!r} + "was idle", "w").close()
    child.kill()
    child.wait()
"""
SOLE = """
@pytest.mark.sole
def test_sole():
    open({path!r} + "sole", "w").close()
    time.sleep(0.5)
    os.unlink({path!r} + "sole")

@pytest.mark.{mark}
def test_no_neighbour(): assert not os.path.exists({path!r} + "sole")
"""


def test_the_engine_beside_a_test_alone(run_sh, tmp_path):
    code, lines = run_sh(BESIDE.format(path=f"{tmp_path}/"))
    assert (code, lines[-1]) == (0, "e2e: 2 passed, 0 failed, 0 skipped")


def test_questions_do_not_wait_for_ever(monkeypatch):
    """Where a thread is ready and gets nothing for five seconds, the next five are shared."""
    seen = [(True, 0), (True, 5), (True, 6), (True, 7), (True, 900), (True, 1500), (False, 1500), (True, 1501), (True, 1502)]
    patience = idle_class.Patience()
    monkeypatch.setattr(idle_class, "threads_of", lambda pids: {"1": seen.pop(0)})
    monkeypatch.setattr(time, "monotonic", lambda: patience.at + patience.WINDOW)
    assert [patience.is_over({os.getpid()}) for _ in range(9)] == [False, True, False, True, False, False, False, False, True]


@pytest.mark.parametrize("mark", ["engine", "alone", "pair", "light"])
def test_beside_a_sole_test_is_nothing(mark, run_sh, tmp_path):
    code, lines = run_sh(SOLE.format(path=f"{tmp_path}/", mark=mark))
    assert (code, lines[-1]) == (0, "e2e: 2 passed, 0 failed, 0 skipped")


def test_the_longest_starts_first(monkeypatch):
    """By an earlier run; tests that mostly waited have more neighbours, and those that computed have fewer."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    made = [parallel.Unit(name, kind) for name, kind in (("a", ""), ("b", ""), ("c", "alone"), ("d light", "light"), ("e", "engine"), ("f", ""))]
    for unit in made:
        unit.items.append(None)
        unit.plan(6, {"b": (30.0, 0.1), "d light": (5.0, 0.9), "f": (20.0, 1.5)})
    assert [(unit.name, unit.weight) for unit in sorted(made, key=parallel.order)] == [
        ("c", 6), ("e", 1), ("d light", 1), ("b", 1), ("f", 4.5), ("a", 1.5)]


def test_the_table_is_that_of_the_run(run_sh, tmp_path, capsys):
    run_sh("def test_long(): time.sleep(2.1)\n\ndef test_short(): pass\n")
    outcomes.print_table(tmp_path / "kept")
    seconds, share, name = capsys.readouterr().out.rstrip("\n").split("\t")
    assert (seconds, name) == ("2", "test_x.py::test_long") and float(share) < 0.5


def test_a_test_that_ends_its_process_has_failed(run_sh):
    """The others are run by another process."""
    code, lines = run_sh(GOOD, "".join(GOOD.replace("good", f"good_{i}").split("@")[0] for i in range(20)), DEADLY)
    assert (code, lines[-1]) == (1, "e2e: 21 passed, 1 failed, 1 skipped"), lines
