# SPDX-License-Identifier: Apache-2.0
"""Code objects at reused addresses: a stack has the name of the code that ran, or <gone>."""
import collections

import bpf_maps
import host
from conftest import PYTHONS

GC = "ebpf_gc_pause"
STACKS = "--gc_pause.stack_min_us=0"
SECONDS = 8
CODE_STABLE_READS = 32
HASHED = 40


def names_of(agent, workload, truth):
    """(name in the row, name reported by the program) of each collection."""
    rows = agent.select(GC, lambda r: r["host_pid"] == workload.pid
                        and truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"])
    rows.sort(key=lambda r: r["start_time"])
    assert len(rows) == len(truth["truth"])
    return [(row["py_stack"][0] if row["py_stack"] else "", f"{name} (made.py:2)")
            for row, (_, name, _) in zip(rows, truth["truth"])]


def test_a_successor_at_the_same_address_has_its_own_name(start_agent, start_on_all, capsys):
    agent = start_agent(STACKS, trackers=["gc_pause"])
    workloads = [w.wait_covered(agent) for w in start_on_all("replaced_code.py", SECONDS, pythons=PYTHONS)]
    for workload in workloads:
        workload.say()
    truths = [workload.read() for workload in workloads]
    stable = [entry for entry in bpf_maps.places(agent.pid, "python_code_cache") if entry["reads"] == CODE_STABLE_READS]
    agent.stop()
    for workload, truth in zip(workloads, truths):
        found = names_of(agent, workload, truth)
        wrong = [pair for pair in found if pair[0] != pair[1] and not pair[0].startswith("<")]
        assert not wrong, (workload.python, wrong[:5])
        long_life = found[:100 * SECONDS]
        assert sum(row == name for row, name in long_life) >= 0.98 * len(long_life), collections.Counter(long_life)
        places = [code for _, _, code in truth["truth"]][-200 * SECONDS:]
        again = sum(a == b for a, b in zip(places[1::2], places[2::2]))
        with capsys.disabled():
            print(f"\n  {workload.python}: {len(found)} collections, {sum(r.startswith('<') for r, _ in found)} gone or"
                  f" unread, {again} at the address of the one before", end=" ")
    if any(w.python.version < (3, 12) for w in workloads):
        assert stable
    for workload in workloads:
        workload.finish()


def test_a_name_hashed_after_the_stack_was_taken(start_agent, start_on_all):
    """The code lives on: the first traceback of a file, after a wait that failed, computes the hash of the file's name."""
    agent = start_agent(STACKS, trackers=["gc_pause"])
    workloads = [w.wait_covered(agent) for w in start_on_all("hashed_later.py", HASHED, pythons=PYTHONS)]
    for workload in workloads:
        workload.say()
        truth = workload.read()
        agent.wait_rows(GC, lambda r: r["host_pid"] == workload.pid and truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"], HASHED)
        rows = agent.select(GC, lambda r: r["host_pid"] == workload.pid and truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"])
        rows.sort(key=lambda r: r["start_time"])
        found = [row["py_stack"][0] for row in rows]
        wanted = [f"<module> (later/{i:04}.py:1)" for i in range(HASHED)]
        assert len(found) == len(wanted) and "<gone>" not in found, (workload.python, found[:5])
        assert all(name in (text, "<unread>") for name, text in zip(found, wanted)), (workload.python, found[:5])
        assert found.count("<unread>") <= HASHED // 10, (workload.python, found)
    agent.stop()
    for workload in workloads:
        workload.finish()
