# SPDX-License-Identifier: Apache-2.0
"""Every collection of every Python is a row, right in its figures, and no row is invented. The truth is what
gc.callbacks saw in the same run (workloads/workload.py)."""
import collections
import os
import shutil
import subprocess

import pytest

import host
from conftest import PYTHONS

FORCED = 10007
TABLE = "ebpf_gc_pause"
CLOCK_NS = 50_000  # microsecond columns, and two readings of the offset between the clocks


def rows_of(agent, hello, begin, end):
    """The rows of a process that began between two of its stamps."""
    return [r for r in agent.select(TABLE, lambda r: r["host_pid"] == hello["pid"])
            if begin - CLOCK_NS <= host.monotonic_ns(r["start_time"]) <= end + CLOCK_NS]


def outer_stamps(records):
    """For each record the thread's nearest stamps outside of it: (stop of the one before, start of the one after),
    with the involuntary switches counted there."""
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
    """Each duration within 100 us or 1 % of the truth. The truth is the wall time between the callbacks; where the
    thread was preempted, perhaps between a stamp and the collection, it can only be bounded by the CPU time from below."""
    undisturbed = worst = 0
    for row, record in zip(rows, outer_stamps(records)):
        wall = record["stop"] - record["start"]
        cpu = record["stop_cpu"] - record["start_cpu"]
        allowed = max(100_000, wall // 100)
        difference = row["duration_ns"] - wall
        if record["undisturbed"]:
            undisturbed += 1
            worst = max(worst, abs(difference))
            assert abs(difference) <= allowed, (row, record)
        else:
            assert row["duration_ns"] >= cpu - allowed, (row, record)
            # from 3.13 on the callbacks run inside the collection, before that outside
            assert version >= (3, 13) or difference <= allowed, (row, record)
    return undisturbed, worst


def match(rows, records):
    """Pairs rows with records in the order of time and checks what must be equal."""
    rows.sort(key=lambda r: r["start_time"])
    assert len(rows) == len(records), f"{len(rows)} rows for {len(records)} collections"
    for row, record in zip(rows, records):
        begin, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
        assert begin < record["stop"] + CLOCK_NS and end > record["start"] - CLOCK_NS, (row, record)
        for column in ("tid", "generation", "collected", "uncollectable"):
            assert row[column] == record[column], (column, row, record)


def test_10007_forced_and_all_automatic_collections_of_all_pythons_at_once(start_agent, start_workload, capsys):
    agent = start_agent(trackers=["gc_pause"])
    pythons = (PYTHONS * 4)[:max(4, len(PYTHONS))]
    shares = [FORCED // len(pythons) + (i < FORCED % len(pythons)) for i in range(len(pythons))]
    workloads = [start_workload(python, "gc_truth.py", 4, share, i)
                 for i, (python, share) in enumerate(zip(pythons, shares))]
    for workload in workloads:
        workload.wait_covered(agent)
    for workload in workloads:
        workload.say()
    truths = [workload.read() for workload in workloads]
    for workload in workloads:
        workload.finish()
    agent.stop()

    assert sum(truth["forced"] for truth in truths) == FORCED
    lines = []
    for workload, truth in zip(workloads, truths):
        records = truth["collections"]
        rows = rows_of(agent, workload.hello, truth["begin"], truth["end"])
        automatic = len(records) - truth["forced"]
        assert automatic > 0 and {r["generation"] for r in records} == {0, 1, 2}
        assert sum(r["uncollectable"] for r in records) > 0 or not truth["can_be_uncollectable"]
        match(rows, records)
        assert {r["method"] for r in rows} == {workload.python.gc_method}
        assert {r["pid"] for r in rows} == {workload.hello["pid"]}
        undisturbed, worst = check_durations(rows, records, workload.python.version)
        assert undisturbed > len(records) / 2, "the host is too busy for this test to say much"
        lines.append(f"{workload.python}: {truth['forced']} forced, {automatic} automatic, {undisturbed} undisturbed, "
                     f"the worst {worst / 1000:.0f} us off")
    with capsys.disabled():
        print("", *lines, sep="\n  ", end=" ")


def test_frozen_threads_are_those_that_wait_for_the_gil(python, start_agent, start_workload):
    agent = start_agent(trackers=["gc_pause"])
    spinning, sleeping = 3, 2
    workload = start_workload(python, "gc_frozen.py", spinning, sleeping, 1_000_000, 3).wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    rows = [r for r in rows_of(agent, workload.hello, truth["begin"], truth["end"]) if r["generation"] == 2]
    match(rows, truth["collections"])
    for row in rows:
        assert (row["frozen_threads"], row["sibling_threads"]) == (spinning, spinning + sleeping), row


def test_collections_that_return_at_once_are_no_rows(python, start_agent, start_workload):
    """gc.collect() inside a gc callback and inside __del__ during a collection; gc.disable() and gc.freeze()."""
    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(python, "gc_nested.py").wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    assert truth["nested_calls"] == 200
    match(rows_of(agent, workload.hello, truth["begin"], truth["end"]), truth["collections"])


@pytest.mark.parametrize("how", ["fork", "multiprocessing-fork", "multiprocessing-spawn", "multiprocessing-forkserver"])
def test_children_have_rows_under_their_own_pids(how, python, start_agent, start_workload):
    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(python, "gc_children.py", how, 4, 25).wait_covered(agent)
    workload.say()
    truth = workload.read()["children"]
    workload.finish()
    agent.stop()
    assert len(truth) == 4
    for child in truth:
        rows = rows_of(agent, child, child["begin"], child["end"])
        match(rows, child["collections"])
        assert {(r["pid"], r["tid"]) for r in rows} == {(child["pid"], child["pid"])}


@pytest.mark.parametrize("other", PYTHONS, ids=str)
def test_exec_of_another_python_is_followed(other, debian_python, start_agent, start_workload):
    """The same pid becomes another interpreter, of which the agent has not heard before."""
    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(debian_python, "gc_exec.py", other.path).wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    assert truth["pid"] == workload.hello["pid"]
    rows = rows_of(agent, truth, truth["begin"], truth["end"])
    late = [r for r in truth["collections"] if r["start"] - truth["begin"] > 1_000_000_000]
    assert len(late) >= 20
    found = [r for r in rows if host.monotonic_ns(r["start_time"]) - truth["begin"] > 1_000_000_000 - CLOCK_NS]
    match(found[-len(late):], late)
    assert {r["method"] for r in rows} == {other.gc_method}


@pytest.mark.parametrize("python", [p for p in PYTHONS if p.version >= (3, 12)], ids=str)
def test_collections_in_subinterpreters_are_rows(python, start_agent, start_workload):
    """Each has a GIL and a collector of its own; legacy ones share them."""
    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(python, "gc_subinterpreter.py").wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    rows = rows_of(agent, workload.hello, truth["begin"], truth["end"])
    assert [r["generation"] for r in sorted(rows, key=lambda r: r["start_time"])] == truth["generations"]
    assert [r["collected"] for r in sorted(rows, key=lambda r: r["start_time"])] == truth["collected"]


def copy_python(python, directory):
    """A Python of its own files, at paths the agent has never seen. Returns the executable and where its image is."""
    prefix = os.path.dirname(os.path.dirname(python.path))
    exe = directory / "bin" / os.path.basename(os.path.realpath(python.path))
    (directory / "bin").mkdir()
    (directory / "lib").mkdir()
    shutil.copy(os.path.realpath(python.path), exe)
    image = exe
    if python.image != os.path.realpath(python.path):
        image = directory / "lib" / os.path.basename(python.image)
        shutil.copy(python.image, image)
    return exe, image, {"PYTHONHOME": prefix, "LD_LIBRARY_PATH": str(directory / "lib")}


@pytest.mark.skipif(not shutil.which("strip"), reason="no strip here")
def test_stripped_python_is_found_by_scanning(python, tmp_path, start_agent, start_workload):
    """No symbols, and where there were USDT notes their provider is renamed: only the content is left."""
    exe, image, env = copy_python(python, tmp_path)
    subprocess.run(["strip", str(image)], check=True)
    image.write_bytes(image.read_bytes().replace(b"python\0gc__", b"pythom\0gc__"))
    copied = host.Python.__new__(host.Python)
    copied.__dict__.update(python.__dict__, path=str(exe), image=str(image), name=f"{python}-stripped")
    assert copied.gc_method == "scan"

    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(copied, "gc_truth.py", 3, 500, 1, env=env).wait_covered(agent)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    rows = rows_of(agent, workload.hello, truth["begin"], truth["end"])
    match(rows, truth["collections"])
    check_durations(rows, truth["collections"], copied.version)
    assert {r["method"] for r in rows} == {"scan"}
