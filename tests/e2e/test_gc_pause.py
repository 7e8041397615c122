# SPDX-License-Identifier: Apache-2.0
"""Every collection of every Python is a row with right values, and no row is invented. The truth comes
from gc.callbacks in the same run (workloads/workload.py)."""
import collections
import glob
import os
import shutil
import statistics
import subprocess

import pytest

import host
from agent import plain_build
from conftest import ALL_PYTHONS, PYTHONS

FORCED = 10007
TABLE = "ebpf_gc_pause"
CLOCK_NS = 50_000  # microsecond columns, and two readings of the offset between the clocks


def rows_of(agent, hello, begin, end):
    """The rows of a process that began between two stamps."""
    return [r for r in agent.select(TABLE, lambda r: r["host_pid"] == hello["pid"])
            if begin - CLOCK_NS <= host.monotonic_ns(r["start_time"]) <= end + CLOCK_NS]


def outer_stamps(records):
    """For each record the thread's nearest stamps outside: (stop of the previous record, start of the next
    record), with the involuntary switches counted there."""
    by_tid = collections.defaultdict(list)
    for record in records:
        by_tid[record["tid"]].append(record)
    for own in by_tid.values():
        for i, record in enumerate(own):
            before = own[i - 1]["stop_switches"] if i else None
            after = own[i + 1]["start_switches"] if i + 1 < len(own) else None
            record["undisturbed"] = before is not None and before == after
    return records


def check_durations(rows, records, version):
    """Each duration is within 100 us or 1 % of the truth, the wall time between the callbacks, and contained in the
    truth (from 3.13 on, where the callbacks run inside the collection: the reverse). Time between a stamp and the probe
    (a preemption, an interrupt, stolen CPU) only looks like an error of the row: preempted threads are recognised and
    left out, the hypervisor's share is not, so 5 % may be off. An error of the rows would move the median."""
    differences, off = [], []
    for row, record in zip(rows, outer_stamps(records)):
        wall = record["stop"] - record["start"]
        difference = row["duration_ns"] - wall
        outside = [host.monotonic_ns(row["start_time"]) - record["start"],
                   record["stop"] - host.monotonic_ns(row["end_time"])]
        if version >= (3, 13):
            outside = [-d for d in outside]
        assert min(outside) > -CLOCK_NS, (row, record)
        if record["undisturbed"]:
            differences.append(difference)
            if abs(difference) > max(100_000, wall // 100):
                off.append(difference)
    assert len(differences) > len(records) / 2, "the host is too busy for this test to say much"
    assert abs(statistics.median(differences)) < 60_000, statistics.median(differences)
    assert len(off) <= len(differences) / 20, off
    return len(differences), len(off)


def match(rows, records):
    """Pairs rows with records in the order of time and compares the equal columns."""
    rows.sort(key=lambda r: r["start_time"])
    assert len(rows) == len(records), f"{len(rows)} rows for {len(records)} collections"
    for row, record in zip(rows, records):
        begin, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
        assert begin < record["stop"] + CLOCK_NS and end > record["start"] - CLOCK_NS, (row, record)
        for column in ("tid", "generation", "collected", "uncollectable"):
            assert row[column] == record[column], (column, row, record)


def check_rows(agent, workload):
    """The rows of this process equal the truth for the time of the truth. Returns the rows."""
    truth = workload.truth
    rows = rows_of(agent, workload.hello, truth["begin"], truth["end"])
    match(rows, truth["collections"])
    return rows


def test_10007_forced_and_all_automatic_collections_of_all_pythons_at_once(start_agent, start_workload, capsys):
    agent = start_agent(trackers=["gc_pause"])
    pythons = (PYTHONS * 4)[:max(4, len(PYTHONS))]
    shares = [FORCED // len(pythons) + (i < FORCED % len(pythons)) for i in range(len(pythons))]
    workloads = [start_workload(python, "gc_truth.py", 4, share, i)
                 for i, (python, share) in enumerate(zip(pythons, shares))]
    host.run_together(agent, workloads)
    agent.stop()
    assert sum(workload.truth["forced"] for workload in workloads) == FORCED
    lines = []

    def check(workload):
        records = workload.truth["collections"]
        automatic = len(records) - workload.truth["forced"]
        assert automatic > 0 and {r["generation"] for r in records} == {0, 1, 2}
        assert sum(r["uncollectable"] for r in records) > 0 or not workload.truth["can_be_uncollectable"]
        rows = check_rows(agent, workload)
        assert {(r["method"], r["pid"]) for r in rows} == {(workload.python.gc_method, workload.pid)}
        undisturbed, off = check_durations(rows, records, workload.python.version)
        lines.append(f"{workload.python}: {workload.truth['forced']} forced, {automatic} automatic, {undisturbed} "
                     f"undisturbed, of which {off} not within 100 us or 1 %")

    host.check_each(workloads, check)
    with capsys.disabled():
        print("", *lines, sep="\n  ", end=" ")


def test_every_python_where_uprobes_carry_no_cookie(start_agent, start_workload):
    """Before 5.15: a copy of the program for each probe."""
    agent = start_agent("--degrade=attach_cookie", trackers=["gc_pause"])
    workloads = [start_workload(python, "gc_truth.py", 2, 100, 1) for python in PYTHONS]
    host.run_together(agent, workloads)
    agent.stop()
    host.check_each(workloads, lambda workload: check_rows(agent, workload))


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_frozen_threads_are_those_that_wait_for_the_gil(python, start_agent, start_workload):
    agent = start_agent(trackers=["gc_pause"])
    spinning, sleeping = 3, 2
    workload = start_workload(python, "gc_frozen.py", spinning, sleeping, 1_000_000, 5)
    host.run_together(agent, [workload])
    agent.stop()
    rows = check_rows(agent, workload)
    assert {row["sibling_threads"] for row in rows} == {spinning + sleeping}
    # every 5 ms a waiting thread wakes up, and may lose the CPU just then
    frozen = sorted(row["frozen_threads"] for row in rows)
    assert frozen[len(frozen) // 2] == frozen[-1] == spinning, rows


def test_long_collections_among_many_threads_tell_who_waits(debian_python, start_agent, start_workload):
    """Beyond 40 siblings, collections of at least 1 ms have the count; shorter collections have no number."""
    agent = start_agent(trackers=["gc_pause"])
    spinning, sleeping = 3, 97
    workload = start_workload(debian_python, "gc_frozen.py", spinning, sleeping, 1_000_000, 5)
    host.run_together(agent, [workload])
    agent.stop()
    rows = check_rows(agent, workload)
    assert {row["sibling_threads"] for row in rows} == {spinning + sleeping} and min(row["duration_ns"] for row in rows) > 1e6
    frozen = sorted(row["frozen_threads"] for row in rows)
    assert frozen[len(frozen) // 2] == frozen[-1] == spinning, rows


def test_long_lived_is_what_a_full_collection_walks(start_agent, start_on_all):
    """The truth is the number of objects that the collector knows after each full collection. Frozen ones are none."""
    agent = start_agent(trackers=["gc_pause"])
    workloads = start_on_all("gc_long_lived.py", pythons=ALL_PYTHONS)
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        truth = workload.truth
        rows = rows_of(agent, workload.hello, truth["begin"], truth["end"])
        rows.sort(key=lambda r: r["start_time"])
        full = [r for r in rows if r["generation"] == 2]
        match(full, truth["collections"])
        for row, record in zip(full, truth["collections"]):
            assert abs(row["long_lived"] - record["objects"]) < 50, (str(workload.python), row, record)
        assert {r["long_lived"] for r in rows if r["generation"] != 2} == {None}

    host.check_each(workloads, check)


def test_collections_that_return_at_once_are_no_rows(start_agent, start_on_all):
    """gc.collect() inside a gc callback and inside __del__ during a collection; gc.disable() and gc.freeze()."""
    agent = start_agent(trackers=["gc_pause"])
    workloads = start_on_all("gc_nested.py")
    host.run_together(agent, workloads)
    agent.stop()
    assert {workload.truth["nested_calls"] for workload in workloads} == {200}
    host.check_each(workloads, lambda workload: check_rows(agent, workload))


@pytest.mark.parametrize("how", ["fork", "multiprocessing-fork", "multiprocessing-spawn", "multiprocessing-forkserver"])
def test_children_have_rows_under_their_own_pids(how, start_agent, start_on_all):
    agent = start_agent(trackers=["gc_pause"])
    workloads = start_on_all("gc_children.py", how, 4, 25)
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        assert len(workload.truth["children"]) == 4
        for child in workload.truth["children"]:
            rows = rows_of(agent, child, child["begin"], child["end"])
            match(rows, child["collections"])
            assert {(r["pid"], r["tid"]) for r in rows} == {(child["pid"], child["pid"])}

    host.check_each(workloads, check)


def check_after_a_second(agent, workload):
    """Of a process unknown to the agent: all collections after the first second are rows."""
    truth = workload.truth
    late = [r for r in truth["collections"] if r["start"] > truth["begin"] + 1_000_000_000]
    assert len(late) >= 20
    # 20 ms apart; from 3.13 on, a row begins before the callback
    rows = rows_of(agent, truth, late[0]["start"] - 5_000_000, truth["end"])
    match(rows, late)
    assert {r["method"] for r in rows} == {workload.python.gc_method}


def test_exec_of_another_python_is_followed(start_agent, start_workload, debian_python):
    """The same pid gets a new interpreter."""
    agent = start_agent(trackers=["gc_pause"])
    workloads = [start_workload(debian_python, "gc_exec.py", other.path) for other in PYTHONS]
    host.run_together(agent, workloads)
    agent.stop()
    for workload, other in zip(workloads, PYTHONS):
        assert workload.truth["pid"] == workload.pid
        workload.python = other
    host.check_each(workloads, lambda workload: check_after_a_second(agent, workload))


def test_a_thread_has_its_new_name_at_once(start_agent, start_workload, debian_python):
    """The identity of a thread is kept (bpf/lib/identity.bpf.h), its name is not."""
    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(debian_python, "gc_renamed.py", 0.8, "first", "second", "third")
    host.run_together(agent, [workload])
    agent.stop()
    renames, tick = workload.truth["renames"], 10_000_000
    rows = rows_of(agent, workload.hello, renames[0][0] + tick, workload.truth["end"])
    for row in rows:
        begin, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
        newer = [ns for ns, _ in renames[1:]] + [2 * end]
        allowed = {name for (since, name), until in zip(renames, newer) if since <= end + tick and begin < until + tick}
        assert row["comm"] in allowed, (row, renames)
    assert {r["comm"] for r in rows} == {"first", "second", "third"}


@pytest.mark.skipif(PYTHONS[-1].version < (3, 12), reason="no Python 3.12 or newer here")
def test_collections_in_subinterpreters_are_rows(start_agent, start_on_all):
    """Isolated subinterpreters have a separate GIL and collector, legacy subinterpreters share the GIL."""
    agent = start_agent(trackers=["gc_pause"])
    workloads = start_on_all("gc_subinterpreter.py", pythons=[p for p in PYTHONS if p.version >= (3, 12)])
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        rows = rows_of(agent, workload.hello, workload.truth["begin"], workload.truth["end"])
        rows.sort(key=lambda r: r["start_time"])
        assert [(r["generation"], r["collected"]) for r in rows] == [(0, 1), (1, 0), (2, 0)] * 2

    host.check_each(workloads, check)


def copy_python(python, directory):
    """A Python of copied files, at paths unknown to the agent, and the environment for the copy."""
    prefix = os.path.dirname(os.path.dirname(python.path))
    path = os.path.realpath((python.root or "") + python.path)
    exe = directory / "bin" / os.path.basename(path)
    (directory / "bin").mkdir(parents=True)
    (directory / "lib").mkdir()
    shutil.copy(path, exe)
    image = exe
    if python.image != path:
        image = directory / "lib" / os.path.basename(python.image)
        shutil.copy(python.image, image)
    copy = host.Python.__new__(host.Python)
    copy.__dict__.update(python.__dict__, path=str(exe), image=str(image), _facts={})
    return copy, {"PYTHONHOME": prefix, "LD_LIBRARY_PATH": str(directory / "lib")}


def strip(python, directory):
    """A copy without symbols; the provider of USDT notes is renamed: only the content remains."""
    copy, env = copy_python(python, directory)
    subprocess.run(["strip", copy.image], check=True)
    with open(copy.image, "rb+") as f:
        content = f.read().replace(b"python\0gc__", b"pythom\0gc__")
        f.seek(0)
        f.write(content)
    assert copy.gc_method == "scan"
    return copy, env


@pytest.mark.skipif(not shutil.which("strip"), reason="no strip here")
def test_stripped_pythons_are_found_by_scanning(start_agent, start_workload, tmp_path):
    agent = start_agent(trackers=["gc_pause"])
    workloads = []
    for python in PYTHONS:
        copy, env = strip(python, tmp_path / python.name)
        workloads.append(start_workload(copy, "gc_truth.py", 3, 500, 1, env=env))
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        rows = check_rows(agent, workload)
        assert {r["method"] for r in rows} == {"scan"}
        check_durations(rows, workload.truth["collections"], workload.python.version)

    host.check_each(workloads, check)


def test_a_python_started_through_the_dynamic_loader(start_agent, start_workload, debian_python, tmp_path):
    """`ld.so python3 ...`, as bundles do it: the loader is the executable, the Python a file that it maps and that no other process runs. Started
    before the agent, and after."""
    [loader] = glob.glob("/lib64/ld-linux-*.so.*") or glob.glob("/lib/ld-linux-*.so.*")
    copies = [copy_python(debian_python, tmp_path / name) for name in ("before", "after")]

    def start():
        copy, env = copies.pop(0)
        workload = start_workload(copy, "gc_truth.py", 3, 300, 1, prefix=[loader], env=env)
        assert os.path.realpath(f"/proc/{workload.pid}/exe") == os.path.realpath(loader)
        return workload
    workloads = [start()]
    agent = start_agent(trackers=["gc_pause"])
    workloads.append(start())
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        rows = check_rows(agent, workload)
        check_durations(rows, workload.truth["collections"], workload.python.version)

    host.check_each(workloads, check)


def short_collections(agent, start_workload, python, *args):
    workload = start_workload(python, "gc_short.py", *args).wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    return workload, truth


@plain_build("it takes longer")
def test_short_collections_do_not_pay_for_idle_threads(debian_python, start_agent, start_workload):
    agent = start_agent(trackers=["gc_pause"])
    best = {0: [], 400: []}
    for idle in 0, 400, 0, 400:  # in turn: a neighbour's load passes, and the least of each has none
        workload, truth = short_collections(agent, start_workload, debian_python, 0, idle)
        best[idle].append(truth["best_ns"])
    agent.stop()
    alone, among = min(best[0]), min(best[400])
    assert among - alone < 3000, f"{alone:.0f} ns alone, {among:.0f} ns with 400 idle threads"
    rows = agent.select(TABLE, lambda r: r["host_pid"] == workload.pid and r["sibling_threads"] == 400)
    known = [r for r in rows if r["frozen_threads"] is not None]
    assert rows and all(r["duration_ns"] >= 1e6 for r in known), known  # not counted is no number


@pytest.mark.alone
def test_short_collections_tell_who_waits(debian_python, start_agent, start_workload):
    """Twelve threads want the GIL all the time: nearly all collections with a duration between have the
    count."""
    agent = start_agent("--gc_pause.min_duration_us=0", trackers=["gc_pause"])
    workload, truth = short_collections(agent, start_workload, debian_python, 12, 20)
    agent.stop()
    frozen = sorted(r["frozen_threads"] for r in agent.select(TABLE, lambda r: r["host_pid"] == workload.pid)
                    if truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"])
    assert len(frozen) > 100 and frozen[-1] == 12 == frozen[len(frozen) // 2], collections.Counter(frozen)
