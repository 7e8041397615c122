# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the agent, programs under watch, the interpreters of this machine."""
import os
import resource
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import host  # noqa: E402
import outcomes  # noqa: E402
import parallel  # noqa: E402
from agent import Agent, BrokenPromise, PATIENCE, UNDERSPAN  # noqa: E402
from netns import Netns  # noqa: E402

PYTHONS = host.find_pythons()
# with Pythons of further releases, for tests that run a program on all Pythons at once
ALL_PYTHONS = PYTHONS + host.find_rooted_pythons()
GUNICORNS = host.find_gunicorns()


def pytest_addoption(parser):
    parser.addoption("--outcomes", metavar="FILE", help="write what becomes of each test, as JSON lines: see outcomes.py")
    parser.addoption("--again", metavar="FILE", help="run only what failed there and may have a second chance")
    parser.addoption("--workers", metavar="N", type=int, default=1, help="so many tests at a time: see parallel.py")


def pytest_configure(config):
    config.addinivalue_line("markers", "promise: what fails here is not tried a second time (see README.md)")
    config.addinivalue_line("markers", "light: compares no times, may have many neighbours (see parallel.py)")
    config.addinivalue_line("markers", "pair: only one other pair may run beside it, and tests of the engine (see parallel.py)")
    config.addinivalue_line("markers", "alone: no other test but those of the engine may run beside it (see parallel.py)")
    config.addinivalue_line("markers", "sole: no other test may run beside it (see parallel.py)")
    config.addinivalue_line("markers", "engine: asks a database, has no agent, compares no times (see parallel.py)")
    if config.getoption("--outcomes"):
        config.pluginmanager.register(outcomes.Writer(config.getoption("--outcomes")), "outcomes")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    # background jobs of a shell ignore SIGINT, and programs under test would inherit this
    signal.signal(signal.SIGINT, signal.default_int_handler)


TEST_SECONDS = round(300 * min(PATIENCE, 2))
STARTED = pytest.StashKey()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """A test that waits forever fails, and the next tests run."""
    def give_up(*_):
        raise TimeoutError(f"not done in {TEST_SECONDS} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TEST_SECONDS)
    yield
    signal.alarm(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[STARTED] = outcomes.clocks()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "teardown" and STARTED in item.stash:
        report.kind = parallel.kind_of(item)
        report.cost = outcomes.cost_since(item.stash[STARTED], report.kind in ("alone", "sole"))
    broken = call.excinfo is not None and call.excinfo.errisinstance(BrokenPromise)
    report.promise = broken or outcomes.is_promise(item)
    if report.failed:
        outcomes.bound(report)


def pytest_collection_modifyitems(config, items):
    assert os.access(UNDERSPAN, os.X_OK), f"{UNDERSPAN} is not built: run make"
    if config.getoption("--again"):
        wanted = outcomes.other_chances(outcomes.read(config.getoption("--again")))
        others = [item for item in items if item.nodeid not in wanted]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.nodeid in wanted]


def pytest_runtestloop(session):
    if session.config.getoption("--workers") > 1 and not session.config.option.collectonly and not session.testsfailed:
        parallel.run(session, session.config.getoption("--workers"))
        return True


def pytest_report_header(config):
    return ["pythons: " + ", ".join(f"{p} ({'.'.join(map(str, p.version))}, {p.gc_method})" for p in ALL_PYTHONS),
            "gunicorns: " + ", ".join(map(str, GUNICORNS))]


@pytest.fixture
def cleanup():
    """Objects appended here are killed when the test is over, the last first."""
    things = []
    yield things
    for thing in reversed(things):
        thing.kill()


@pytest.fixture
def netns(cleanup):
    made = Netns()
    cleanup.append(made)
    return made


@pytest.fixture
def start_agent(cleanup):
    """start_agent(*options, trackers=[...]): a running agent that is ready."""
    def start(*options, **kwargs):
        agent = Agent(*options, **kwargs)
        cleanup.append(agent)
        return agent.wait_ready()
    return start


@pytest.fixture
def start_workload(cleanup):
    """start_workload(python, script, *args): see host.Workload."""
    def start(*args, **kwargs):
        workload = host.Workload(*args, **kwargs)
        cleanup.append(workload)
        return workload
    return start


@pytest.fixture
def start_on_all(start_workload):
    """start_on_all(script, *args): the same program on every Python of this machine."""
    def start(*args, pythons=PYTHONS, **kwargs):
        return [start_workload(python, *args, **kwargs) for python in pythons]
    return start


@pytest.fixture(scope="module")
def browser():
    from browser import Browser  # half a second that few tests need
    browser = Browser()
    yield browser
    browser.quit()


@pytest.fixture
def native(tmp_path):
    """The library of on_cpu_truth.py."""
    library = tmp_path / "native_compute.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-o", library, os.path.join(host.WORKLOADS, "native_compute.c")], check=True)
    return library


@pytest.fixture
def debian_python():
    return PYTHONS[0]
