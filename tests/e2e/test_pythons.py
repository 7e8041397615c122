# SPDX-License-Identifier: Apache-2.0
"""One program on every available CPython, as a static program and as a library, unchanged and stripped of all symbols
in a PID namespace, all at once: collections, hand-offs, waits for the GIL, names and stacks equal the program's
reports."""
import os
import time

import host
import pytest

from conftest import ALL_PYTHONS, PYTHONS
from test_gc_pause import strip

COLLECTIONS = 23  # rounds, each with several collections, in each of three threads
HANDOFFS = 53
WAITS = 43
SLEEP_NS = 3_000_000
CLOCK_NS = 50_000
# take_gil() is entered a little after the sleep's end, and time.sleep() returns a little after taking the GIL
SLACK_NS = 1_500_000
GC, HANDOFF, GIL = "ebpf_gc_pause", "ebpf_handoff", "ebpf_gil_wait"
IN_PID_NAMESPACE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
MOUNT_PROC = ["sh", "-c", 'mount -t proc proc /proc && exec "$@"', "sh"]


def texts(stack):
    return [f"{function} ({file}:{line})" for function, file, line in stack]


def between(rows, begin, end):
    return sorted((r for r in rows if begin - CLOCK_NS <= host.monotonic_ns(r["start_time"]) <= end + CLOCK_NS),
                  key=lambda r: r["start_time"])


def check_stack(stack, wanted):
    """The agent reads a bounded number of new places per second: omitted places are marked, and the leaf is
    never omitted."""
    assert len(stack) == len(wanted) and stack[0] == wanted[0], (stack, wanted)
    wrong = [(s, w) for s, w in zip(stack, wanted) if s not in (w, "<unread>")]
    assert not wrong, (stack, wanted)
    return stack != wanted


def check_collections(rows, truth):
    """Every collection, with values, thread's name and stack."""
    records = sorted(truth["collections"], key=lambda t: t["begin"])
    rows = between(rows, truth["begin"], truth["middle"])
    assert len(rows) == len(records), f"{len(rows)} rows for {len(records)} collections"
    unread = 0
    for row, record in zip(rows, records):
        begin, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
        assert begin < record["end"] + CLOCK_NS and end > record["begin"] - CLOCK_NS, (row, record)
        for column in ("tid", "generation", "collected", "uncollectable"):
            assert row[column] == record[column], (column, row, record)
        assert row["thread_name"] == record["name"], (row, record)
        unread += check_stack(row["py_stack"], texts(record["stack"]))
    assert unread <= len(rows) // 100, f"{unread} of {len(rows)} stacks are not whole"
    return len(rows)


def check_handoffs(rows, truth):
    """Each hand-off, with both threads' names and the reading worker's stack."""
    records = {t["port"]: t for t in truth["handoffs"]}
    rows = [r for r in rows if r["peer_port"] in records]
    assert len(rows) == len(records) == HANDOFFS, f"{len(rows)} rows for {len(records)} of {HANDOFFS} hand-offs"
    unread = 0
    for row in rows:
        record = records[row["peer_port"]]
        found = row["tid"], row["thread_name"], row["main_thread_name"]
        assert found == (record["tid"], record["name"], "MainThread"), row
        assert row["handoff_ns"] > 3_000_000, row
        unread += check_stack(row["py_stack"], texts(record["stack"]))
    assert unread <= len(rows) // 20, f"{unread} of {len(rows)} stacks are not whole"
    return len(rows)


def place(function, text):
    """The place of the text in the workload, in the form of stacks."""
    path = os.path.join(host.WORKLOADS, "every_python.py")
    with open(path) as f:
        return f"{function} ({path}:{next(n for n, line in enumerate(f, 1) if text in line)})"


def check_wait_stacks(row):
    """The waiter wakes from a sleep, the holder sorts, or has just done so; true when a stack could not be
    read."""
    waiter, holder = row["py_stack"][:1], row["holder_py_stack"][:1]
    assert waiter in ([], ["<unread>"], [place("wait", "time.sleep(SLEEP)")]), row
    assert holder in ([], ["<unread>"], *([place("hold", text)] for text in (
        "begin = now()", "sorted(data)", "calls.append", "time.sleep(0.004)"))), row
    return {"", "<unread>"} & {"".join(waiter), "".join(holder)} != set()


def check_waits(rows, truth):
    """The row's duration equals the excess of a sleep, apart from the lack of a CPU, and the row's holder is the
    thread that had the GIL in the time."""
    holder, waiter = truth["tids"]
    rows = [r for r in rows if r["tid"] == waiter]
    compared = blamed = unread = lacked_cpu = 0
    off = []
    for before, after, delay in truth["waits"]:
        waited = after - before - SLEEP_NS
        held = sum(min(after, end) - max(before + SLEEP_NS, begin) for begin, end in truth["calls"]
                   if end > before + SLEEP_NS and begin < after)
        # only where the second thread was in a call for long: otherwise the delay may have any cause
        if held < 4_000_000 or delay > held // 2:
            lacked_cpu += held >= 4_000_000
            continue
        inside = [r for r in rows if host.monotonic_ns(r["end_time"]) > before + SLEEP_NS
                  and host.monotonic_ns(r["start_time"]) < after]
        compared += 1
        total = sum(r["duration_ns"] for r in inside)
        if not waited - delay - SLACK_NS <= total <= waited + SLACK_NS:
            off.append((total, waited, delay, held))
        for row in inside:
            if row["duration_ns"] > 3_000_000:
                blamed += 1
                assert row["holder_tid"] == holder, row
                assert (row["thread_name"], row["holder_thread_name"]) == ("waiter", "holder ✓"), row
                unread += check_wait_stacks(row)
    assert compared + lacked_cpu >= WAITS // 4, f"only {compared} waits to compare, {lacked_cpu} times it lacked a CPU"
    assert blamed >= compared * 0.9 and len(off) <= max(2, compared // 10), (compared, blamed, off)
    assert unread <= blamed // 10, f"{unread} of {blamed} waits are without a stack"
    return compared


def check(agent, workload, host_pid, method):
    rows = agent.select(GC, lambda r: r["host_pid"] == host_pid)
    assert {(r["pid"], r["method"]) for r in rows} == {(workload.hello["pid"], method)}
    n = check_collections(rows, workload.truth)
    return (n, check_handoffs(agent.select(HANDOFF, lambda r: r["host_pid"] == host_pid), workload.truth),
            check_waits(agent.select(GIL, lambda r: r["host_pid"] == host_pid), workload.truth))


def run(agent, workloads, pids):
    for workload, pid in zip(workloads, pids):
        agent.wait_rows(GC, lambda r: r["host_pid"] == pid, timeout=30)
    for workload in workloads:
        workload.say()
        time.sleep(0.1)  # so that the programs do not all reach new places in the code at the same moment
    for workload in workloads:
        workload.truth = workload.read()
    for workload in workloads:
        workload.process.stdin.close()
        workload.process.wait(20)


def child_of(pid):
    return host.wait_until(lambda: host.children_of(pid), 10, f"{pid} has a child")[0]


GROUPS = {"of this machine": PYTHONS, "of other releases": ALL_PYTHONS[len(PYTHONS):]}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("variant", ["as they come", "stripped, in PID namespaces"])
def test_everything_on_every_python(variant, group, start_agent, start_workload, tmp_path, capsys):
    agent = start_agent("--gc_pause.stack_min_us=0", "--gil_wait.min_duration_us=1000",
                        trackers=["gc_pause", "handoff", "gil_wait"])
    workloads = []
    for python in GROUPS[group]:
        if variant == "as they come":
            workloads.append(start_workload(python, "every_python.py", COLLECTIONS, HANDOFFS, WAITS))
        else:
            copy, env = strip(python, tmp_path / python.name)
            workloads.append(start_workload(copy, "every_python.py", COLLECTIONS, HANDOFFS, WAITS, env=env,
                                            prefix=IN_PID_NAMESPACE + (copy.enter or MOUNT_PROC)))
    for workload in workloads:
        workload.hello = workload.read()
    pids = [w.pid if variant == "as they come" else child_of(w.pid) for w in workloads]
    if variant != "as they come":  # all with the same ids, but each with separate rows
        assert {w.hello["pid"] for w in workloads} == {1}
    run(agent, workloads, pids)
    agent.stop()
    lines, failures = [], []
    for workload, pid in zip(workloads, pids):
        method = workload.python.gc_method if variant == "as they come" else "scan"
        try:
            found = check(agent, workload, pid, method)
            lines.append("%s: %d collections, %d hand-offs, %d waits" % (workload.python, *found))
        except AssertionError as e:
            failures.append(f"{workload.python}: {str(e)[:1500]}")
    with capsys.disabled():
        print("", *lines, sep="\n  ", end=" ")
    assert not failures, "\n\n".join(failures)
