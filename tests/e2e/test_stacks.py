# SPDX-License-Identifier: Apache-2.0
"""The Python stack of a collection equals the process's report: every function, file and line."""
import bisect
import collections

import pytest

import bpf_maps
import counts
import host
from conftest import ALL_PYTHONS, PYTHONS

TABLE = "ebpf_gc_pause"
GIL = "ebpf_gil_wait"
OFF_CPU = "ebpf_off_cpu"
OTHER_PYTHONS = [p for p in ALL_PYTHONS[len(PYTHONS):] if "shared" not in str(p)]
MAX_FRAMES = 128
UNREAD = 0.1  # of the rows: places that a reader without a CPU could not read in two seconds, marked in the row
CLOCK_NS = 50_000
WAYS_BACK = {"switch": (), "rseq": ("--degrade=sched_exit_tp",), "syscalls": ("--degrade=sched_exit_tp,rseq_update",)}
FIRST_NS = 300_000_000  # during which a new thread may have no name
CLOCKS_NS = 20_000  # a row's clock is slewed: maximal distance to the clock of the noted places


def texts(stack):
    return [f"{function} ({file}:{line})" if line is not None else f"{function} ({file})"
            for function, file, line in stack]


def pair(agent, workload):
    """Rows and truths in the order of time, about the same collections."""
    truth = workload.truth
    rows = sorted(agent.select(TABLE, lambda r: r["host_pid"] == workload.pid), key=lambda r: r["start_time"])
    rows = [r for r in rows if truth["begin"] - CLOCK_NS <= host.monotonic_ns(r["start_time"]) <= truth["end"]]
    assert [r["tid"] for r in rows] == [t["tid"] for t in truth["truth"]]
    return zip(rows, sorted(truth["truth"], key=lambda t: t["begin"]))


def test_stacks_are_those_of_the_process(start_agent, start_on_all, capsys):
    # only these: the agent can read so many new places in the code at once, but not the host's in addition
    workloads = start_on_all("stacks.py")
    agent = start_agent("--gc_pause.stack_min_us=0", *(f"--pid={w.pid}" for w in workloads), trackers=["gc_pause"])
    host.run_together(agent, workloads)
    agent.stop()
    lines = []

    def check(workload):
        scenes, reasons, n, n_frames, cut, gone = collections.Counter(), {}, 0, 0, 0, collections.Counter()
        for row, truth in pair(agent, workload):
            stack, wanted = row["py_stack"], texts(truth["stack"])
            scenes[truth["scene"]] += 1
            if truth["scene"] in ("automatic", "deep"):
                reasons.setdefault(truth["scene"], set()).add(row["reason"])
            n += 1
            n_frames += len(stack)
            if len(wanted) > MAX_FRAMES:
                assert stack[-1] == "<cut>" and MAX_FRAMES - 8 <= len(stack) - 1 <= MAX_FRAMES
                cut += 1
                stack.pop()
                wanted = wanted[:len(stack)]
            assert len(stack) == len(wanted), f"{truth['scene']}\n{stack}\n{wanted}"
            for i, text in enumerate(stack):
                if text == "<gone>":
                    gone[wanted[i]] += 1
                else:
                    assert text == wanted[i], f"{truth['scene']}, frame {i}\n{stack}\n{wanted}"
        assert cut == 2 and len(scenes) == 15
        # only code made for a single run may have died before the read
        assert all("größe.py" in text or "made_" in text for text in gone), gone
        assert reasons == ({"automatic": {"heap"}, "deep": {"manual"}} if workload.python.tells_reason else
                           {"automatic": {""}, "deep": {""}})
        lines.append(f"{workload.python}: {n} stacks, {n_frames} frames, {sum(gone.values())} gone")

    try:
        host.check_each(workloads, check)
    finally:
        with capsys.disabled():
            print("", *lines, sep="\n  ", end=" ")


def test_stacks_are_taken_of_long_collections_only(start_agent, start_workload, debian_python):
    agent = start_agent("--gc_pause.stack_min_us=300", trackers=["gc_pause"])
    workload = start_workload(debian_python, "gc_truth.py", 1, 200, 7)
    host.run_together(agent, [workload])
    agent.stop()
    rows = agent.select(TABLE, lambda r: r["host_pid"] == workload.pid)
    assert {r["duration_ns"] >= 300_000 for r in rows} == {True, False}
    for row in rows:
        assert bool(row["py_stack"]) == (row["duration_ns"] >= 300_000)


def same_stack(stack, wanted):
    """The functions that note the place are called from the function, on the same line."""
    if stack and stack[0].split()[0] in ("mark", "done"):
        stack = stack[1:]
    if stack and stack[-1] == "<cut>":
        stack, wanted = stack[:-1], wanted[:len(stack) - 1]
        if len(wanted) < MAX_FRAMES - 10:
            return False
    return len(stack) == len(wanted) and all(mine in ("<unread>", theirs) for mine, theirs in zip(stack, wanted))


class Places:
    """Where threads were, by thread and time."""

    def __init__(self, truth):
        self.stacks = [texts(stack) for stack in truth["places"]]
        self.marks = collections.defaultdict(list)
        for tid, place, begin, end in sorted(truth["marks"], key=lambda m: m[2]):
            self.marks[tid].append((begin, end, place))

    def find(self, tid, begin, end):
        """The stack of a thread that stayed at one place from begin to end; None: moved."""
        marks = self.marks[tid]
        i = bisect.bisect_right(marks, (begin, float("inf"), 0)) - 1
        if i < 0 or marks[i][1] < end:
            return None
        return self.stacks[marks[i][2]]


@pytest.mark.parametrize("pythons", [PYTHONS, OTHER_PYTHONS], ids=["of this machine", "of other releases"])
def test_waits_for_the_gil_have_both_stacks(pythons, start_agent, start_on_all, capsys):
    """The waiter is at the place of the sleep before; the holder, if the same all the time, at the call
    that kept the GIL."""
    workloads = start_on_all("blame.py", 1.5, pythons=pythons)
    agent = start_agent(*(f"--pid={w.pid}" for w in workloads), trackers=["gil_wait", "gc_pause"])
    host.run_together(agent, workloads)
    agent.stop()
    lines = []

    def check(workload):
        truth, counts = workload.truth, collections.Counter()
        places, names = Places(truth), {int(tid): name for tid, name in truth["names"].items()}
        for row in agent.select(GIL, lambda r: r["host_pid"] == workload.pid):
            begin, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
            if begin < truth["begin"] or end > truth["end"]:
                continue
            counts["rows"] += 1
            for what in "", "holder_", "dropper_":
                tid = row[what + "tid"]
                if tid in names and begin > places.marks[tid][0][0] + FIRST_NS:
                    counts["names"] += 1
                    assert row[what + "thread_name"] == names[tid], row
            counts["without"] += not row["py_stack"]
            wanted = places.find(row["tid"], begin, end)
            if wanted and row["py_stack"]:
                counts["waiter"] += 1
                assert same_stack(row["py_stack"], wanted), f"waiter\n{row['py_stack']}\n{wanted}"
                counts["unread"] += "<unread>" in row["py_stack"]
            # a holder that released the GIL in the sleep after a place did so microseconds after leaving the place
            wanted = places.find(row["holder_tid"], begin, end + CLOCKS_NS)
            if wanted and row["holder_py_stack"]:
                counts["holder"] += 1
                assert same_stack(row["holder_py_stack"], wanted), f"holder\n{row['holder_py_stack']}\n{wanted}"
        lines.append(f"{workload.python}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        assert counts["waiter"] > 20 and counts["holder"] > 10 and counts["unread"] <= UNREAD * counts["rows"], counts
        assert counts["without"] <= 0.1 * counts["rows"], counts

    try:
        host.check_each(workloads, check)
    finally:
        with capsys.disabled():
            print("", *lines, sep="\n  ", end=" ")


def test_no_stack_is_looked_for_below_the_threshold(start_agent, start_workload, debian_python):
    """Not a single walk for thousands of waits, by the programs' counts."""
    takes = []
    for microseconds in 600_000_000, 0:
        workload = start_workload(debian_python, "blame.py", 1)
        agent = start_agent(f"--gil_wait.stack_min_us={microseconds}", "--gil_wait.min_duration_us=0",
                            f"--pid={workload.pid}", trackers=["gil_wait", "gc_pause"])
        host.run_together(agent, [workload])
        takes.append(bpf_maps.per_cpu_sums(agent.pid, "gil_stack_cost")["takes"])
        agent.stop()
        rows = agent.select(GIL)
        assert len(rows) > 100 and any(r["py_stack"] for r in rows) == (microseconds == 0)
    assert takes[0] == 0 < takes[1], takes


@pytest.mark.parametrize("degrade", WAYS_BACK.values(), ids=WAYS_BACK)
def test_stacks_are_not_taken_after_the_wait(degrade, start_agent, start_workload, debian_python):
    """A thread that has taken the GIL and loses the CPU before the report of the wait has moved on by then."""
    workload = start_workload(debian_python, "gil_contention.py", "convoy", 4)
    agent = start_agent("--gil_wait.min_duration_us=0", "--gil_wait.stack_min_us=1000", f"--pid={workload.pid}", *degrade,
                        trackers=["gc_pause", "gil_wait"])
    host.run_together(agent, [workload])
    agent.stop()
    short = [r for r in agent.rows[GIL] if r["duration_ns"] < 1_000_000]
    long = [r for r in agent.rows[GIL] if r["duration_ns"] >= 1_000_000]
    assert len(short) >= 3 and len(long) > 20
    assert not [r for r in short if r["py_stack"] or r["holder_py_stack"]]
    assert len([r for r in long if r["py_stack"]]) > 0.5 * len(long)


def start_blamed(start_agent, start_on_all, *options):
    workloads = start_on_all("blame.py", 3)
    agent = start_agent("--off_cpu.min_duration_us=800", *options, *(f"--pid={w.pid}" for w in workloads),
                        trackers=["off_cpu", "gc_pause"])
    host.run_together(agent, workloads)
    agent.stop()
    return agent, workloads


def test_stacks_of_waits_for_the_gil_have_a_share_of_the_time(start_agent, start_workload, debian_python):
    """A process with too many waits has stacks for some waits and for all long waits; each missing stack is counted."""
    workload = start_workload(debian_python, "gil_contention.py", "convoy", 4)
    agent = start_agent("--gil_wait.stack_cpu_percent=0.001", f"--pid={workload.pid}", trackers=["gc_pause", "gil_wait"])
    host.run_together(agent, [workload])
    agent.stop()
    rows = agent.rows[GIL]
    none = [r for r in rows if not r["py_stack"]]
    short = [r for r in rows if r["duration_ns"] < 9_900_000]
    assert len(short) > 10 and len(none) > len(short) / 2, (len(none), len(short), len(rows))
    assert len([r for r in none if r["duration_ns"] > 10_100_000]) <= len(rows) / 50
    seen = counts.check(agent)["gil_wait"]
    missing = {cause: n for cause, n in seen.items() if cause.startswith("stack_") and n}
    assert sum(missing.values()) == len(none) + sum(not r["holder_py_stack"] for r in rows), missing
    assert missing["stack_share"] >= len(none) / 2, missing


@pytest.mark.alone  # a row for every wait: the agent's output has to be read as fast
@pytest.mark.parametrize("degrade", WAYS_BACK.values(), ids=WAYS_BACK)
def test_threads_off_the_cpu_have_their_stack(degrade, start_agent, start_on_all, capsys):
    """Where the thread sleeps, waits for the GIL or has lost the CPU."""
    agent, workloads = start_blamed(start_agent, start_on_all, *degrade)
    sees_calls = degrade == WAYS_BACK["syscalls"]  # used when needed
    works_from = min((host.monotonic_ns(r["end_time"]) for r in agent.select(OFF_CPU, lambda r: r["py_stack"])))
    lines = []

    def check(workload):
        truth, counts = workload.truth, collections.Counter()
        places = Places(truth)
        for row in agent.select(OFF_CPU, lambda r: r["host_pid"] == workload.pid):
            begin, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
            wanted = places.find(row["tid"], begin, end)
            # the fallback observes the ends of system calls
            if not wanted or sees_calls and (begin < works_from + FIRST_NS or row["cause"] == "preempt"):
                continue
            counts["rows"] += 1
            counts[row["cause"]] += 1
            if row["py_stack"]:
                assert same_stack(row["py_stack"], wanted), f"{row['cause']}\n{row['py_stack']}\n{wanted}"
                counts["unread"] += "<unread>" in row["py_stack"]
            else:
                counts["without"] += 1
        lines.append(f"{workload.python}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        assert counts["rows"] > 50, counts
        assert counts["without"] <= 0.02 * counts["rows"] and counts["unread"] <= UNREAD * counts["rows"], counts

    try:
        host.check_each(workloads, check)
    finally:
        with capsys.disabled():
            print("", *lines, sep="\n  ", end=" ")
