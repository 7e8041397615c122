# SPDX-License-Identifier: Apache-2.0
"""A process with thousands of threads, all waiting for the GIL: each row's stacks and names are right, or the lack is
counted with the cause."""
import collections

import pytest

import host
from agent import SANITIZER
from conftest import ALL_PYTHONS, PYTHONS

GIL = "ebpf_gil_wait"
THREADS = 3001
ROUNDS = 4
SETTLED_NS = 1_200_000_000  # names of thousands of threads are asked for when the first rows come
CAUSES = "stack_late", "stack_state", "stack_moved", "stack_room"


def texts(stack):
    return [f"{function} ({file}:{line})" for function, file, line in stack]


def outer(stack):
    """The frames below the sleeping function: constant."""
    at = next((i for i, text in enumerate(stack) if text.startswith("stay ")), None)
    return stack[at + 1:] if at is not None else None


@pytest.mark.sole  # thousands of threads leave nothing to a neighbour, and rows that are read late are memory
@pytest.mark.parametrize("python", [PYTHONS[0], *[p for p in ALL_PYTHONS if p.version >= (3, 15)][:1]], ids=str)
def test_thousands_of_threads_wait_for_the_gil(python, start_agent, start_workload, capsys):
    workload = start_workload(python, "many_waiters.py", THREADS, ROUNDS)
    # without the short waits of thousands of starting threads
    agent = start_agent("--gil_wait.min_duration_us=100000", f"--pid={workload.pid}", trackers=["gil_wait", "gc_pause"])
    workload.wait_covered(agent, timeout=30)
    workload.say()
    truth = workload.read()
    early = len(agent.select(GIL))
    resident = int(host.status_field(agent.pid, "VmHWM")[0])
    agent.wait_quiet(GIL)
    agent.stop()
    rows = agent.select(GIL)
    names = {int(tid): (name, str(k)) for tid, (name, k) in truth["names"].items()}
    outers = {k: outer(texts(stack)) for k, stack in truth["places"].items()}
    assert len(set(map(str, outers.values()))) == len(outers) > 80
    counts = collections.Counter()
    for row in rows:
        begin, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
        if row["tid"] not in names or begin < truth["begin"] + SETTLED_NS or end > truth["end"]:
            continue
        name, k = names[row["tid"]]
        counts["rows"] += 1
        counts["named"] += row["thread_name"] == name
        assert row["thread_name"] in (name, ""), row
        stack = outer(row["py_stack"])
        counts["without"] += not row["py_stack"]
        if stack is not None and "<unread>" not in stack:
            counts["compared"] += 1
            assert stack == outers[k], row
    own = [r for r in agent.select("ebpf_agent") if r["tracker"] == "gil_wait"]
    missing = {cause: sum(r[cause] for r in own) for cause in CAUSES}
    with capsys.disabled():
        print("", dict(counts), f"{len(rows)} rows in all, {early} while it ran; missing {missing}; {resident} kB", end=" ")
    assert counts["rows"] > 200 and counts["compared"] >= 0.9 * counts["rows"], counts
    assert counts["without"] <= 0.01 * counts["rows"] and counts["named"] >= 0.9 * counts["rows"], counts
    # each missing stack is counted, and no more
    lost = sum(r["lost_ring"] for r in own)
    without = sum((not r["py_stack"]) + (not r["holder_py_stack"]) for r in rows)
    assert without <= sum(missing.values()) <= without + 2 * lost, (without, missing, lost)
    assert sum(r["seen"] - r["filtered"] - r["lost_ring"] - r["lost_state"] - r["rows"] for r in own) == 0, own
    assert early > len(rows) // 2, "rows came late"
    assert SANITIZER or resident < 64 << 10, resident  # a busy machine reads rows late: queued rows are memory
