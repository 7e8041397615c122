# SPDX-License-Identifier: Apache-2.0
"""The Python stack of a collection is what the process itself says of the place: every function, file and line."""
import collections

import host

TABLE = "ebpf_gc_pause"
MAX_FRAMES = 128
CLOCK_NS = 50_000


def texts(stack):
    return [f"{function} ({file}:{line})" if line is not None else f"{function} ({file})"
            for function, file, line in stack]


def pair(agent, workload):
    """Rows and truths in the order of time; they are the same collections."""
    truth = workload.truth
    rows = sorted(agent.select(TABLE, lambda r: r["host_pid"] == workload.pid), key=lambda r: r["start_time"])
    rows = [r for r in rows if truth["begin"] - CLOCK_NS <= host.monotonic_ns(r["start_time"]) <= truth["end"]]
    assert [r["tid"] for r in rows] == [t["tid"] for t in truth["truth"]]
    return zip(rows, sorted(truth["truth"], key=lambda t: t["begin"]))


def test_stacks_are_those_of_the_process(start_agent, start_on_all, capsys):
    # only these: so many new places in the code at once are what the agent can read, but not the host's besides
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
        assert cut == 2 and len(scenes) == 11
        # what was made for one run only, and nothing else, may have died before it was read
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
