# SPDX-License-Identifier: Apache-2.0
"""Under a storm of events the agent samples and logs the fact, and the rows' weights add up to the truth. If sampling is not
enough, the agent takes trackers out and reports when nothing was measured; the remaining trackers have right counts and
times."""
import json
import math
import os
import pathlib
import re
import time

import pytest

import bpf_maps
import counts
import host
from agent import ROOT, plain_build
from store_fixture import Store, sql_text

TICKS = os.sysconf("SC_CLK_TCK")
SECONDS = 9
LIMIT = 0.02  # of all CPUs
COSTS = ("bpf_ns", "bpf_hits", "agent_ns")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_now(pid):
    """(when, CPU time until then)"""
    return time.monotonic(), cpu_seconds(pid)


def share(begin, end):
    """Share of one CPU between two samples of any distance."""
    return (end[1] - begin[1]) / (end[0] - begin[0])


def check_estimate(weights, truth, lost, what):
    """Horvitz and Thompson: the sum of weights is unbiased, and the kept events give the variance. Six sigmas are
    one in 500 million; 1 % allows for two clocks and a machine that hides single events."""
    estimate = sum(weights)
    sigma = math.sqrt(sum(w * (w - 1) for w in weights))
    assert abs(estimate - truth) <= 6 * sigma + 0.01 * truth + lost, (what, estimate, truth, sigma, lost)
    assert sigma < truth / 4, (what, sigma, truth)  # otherwise nothing would have been tested


def check_questions(tmp_path, connects, truth, lost):
    """sql/queries/tcp_connect.sql answers correctly from the sampled rows."""
    with Store(tmp_path / "db") as store:
        store.ask(sql_text("sql/tables/ebpf_tcp_connect.sql"))
        store.ask(sql_text("sql/tables/ebpf_tcp_connect_closed.sql"))
        done = store.insert("INSERT INTO ebpf_tcp_connect FORMAT JSONEachRow", "\n".join(map(json.dumps, connects)), async_insert=0)
        assert done.status == 200, done.text
        question = pathlib.Path(ROOT, "sql/queries/tcp_connect.sql").read_text()
        [line] = json.loads(store.ask(question, default_format="JSON"))["data"]
    sigma = math.sqrt(sum(r["weight"] * (r["weight"] - 1) for r in connects))
    assert abs(line["connects"] - truth) <= 6 * sigma + 0.01 * truth + lost, (line, truth, sigma)
    assert line["failed"] == 0 and len(connects) < 0.7 * truth, (line, len(connects), truth)


@pytest.mark.sole
@plain_build("what the agent costs itself is compared")
def test_a_storm(debian_python, start_agent, start_workload, tmp_path):
    workload = start_workload(debian_python, "storm.py", 12, SECONDS)
    # only this process: further Pythons of the host must not keep the governor from stepping back
    agent = start_agent(f"--governor.cpu_percent={LIMIT * 100:g}", "--governor.tracker_cpu_percent=0.5", "--governor.interval=1",
                        "--governor.take_out=false", "--off_cpu.min_duration_us=0", f"--pid={workload.pid}",
                        trackers=["off_cpu", "tcp_connect", "gc_pause"])
    workload.wait_covered(agent)
    at = [cpu_now(agent.pid)]
    workload.say()
    time.sleep(1)
    at.append(cpu_now(agent.pid))
    time.sleep(SECONDS - 3)
    at.append(cpu_now(agent.pid))
    truth = workload.read()
    at.append(cpu_now(agent.pid))
    # off_cpu's program runs at each switch of the host: a busy host alone may keep the sampling up
    host.wait_until(lambda: re.search("(off_cpu|tcp_connect) costs.*all, sampling is off", agent.stderr), 40,
                    "the governor steps back")
    workload.finish()
    agent.stop()
    found = counts.check(agent)

    def rows(table):
        return agent.select(table, lambda r: r["host_pid"] == workload.pid and
                            truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"])

    sleeps = [r for r in rows("ebpf_off_cpu") if r["cause"] == "sleep"]
    connects = rows("ebpf_tcp_connect")
    assert max(r["weight"] for r in sleeps) >= 4 and found["off_cpu"]["sampled"] > truth["slept"] / 2
    lost = {t: sum(found[t][c] for c in ("lost_ring", "lost_state")) for t in ("off_cpu", "tcp_connect")}
    check_estimate([r["weight"] for r in sleeps], truth["slept"], lost["off_cpu"], "sleeps")
    # the truth's time includes the wait for the GIL after the sleep, which is none of the row's
    in_sleep = sum(r["weight"] * r["duration_ns"] for r in sleeps)
    assert in_sleep <= truth["slept_ns"] * 1.2
    assert in_sleep >= truth["slept"] * 2e6 * 0.7
    check_estimate([r["weight"] for r in connects], truth["connected"], lost["tcp_connect"], "connects")
    # the profile is an estimate too, scaled already
    profile = sum(r["count"] for r in agent.select("ebpf_off_cpu_profile", lambda r: r["host_pid"] == workload.pid and
                                                   r["cause"] == "sleep"))
    assert 0.7 * truth["slept"] <= profile <= 1.3 * truth["slept"]
    check_questions(tmp_path, connects, truth["connected"], lost["tcp_connect"])
    # the log has action and reason, and the sampling helped: the agent's CPU in the last seconds is half of the first, or
    # near the limit already, where unrelated programs leave the storm little CPU to begin with
    assert "governor: off_cpu costs" in agent.stderr and not re.search(r"one in 1\b", agent.stderr)
    first, last = share(at[0], at[1]), share(at[2], at[3])
    assert last < max(first / 2, 2 * LIMIT * os.cpu_count()), (at, agent.stderr)
    assert found["off_cpu"]["bpf_ns"] > 0 and found["off_cpu"]["bpf_hits"] > truth["slept"] and found["off_cpu"]["agent_ns"] > 0
    # nothing is measured of what is no tracker
    assert all(r[c] is None for r in agent.rows["ebpf_agent"] if r["tracker"] == "agent" for c in COSTS)


def test_without_a_storm_every_event_is_a_row(debian_python, start_agent, start_workload):
    """With default limits, all trackers and a program with rare events."""
    agent = start_agent("--governor.cpu_percent=1", "--governor.tracker_cpu_percent=0.5", "--governor.interval=1")
    workload = start_workload(debian_python, "gc_truth.py", 1, 101, 1).wait_covered(agent)
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    found = counts.check(agent)
    assert not any(c["sampled"] for c in found.values()), found
    assert all(r["weight"] == 1 for r in agent.rows["ebpf_gc_pause"])


def test_a_cost_that_is_not_measured_is_not_0(start_agent):
    """Without the governor, which measures."""
    agent = start_agent("--trackers=gc_pause,off_cpu")
    agent.stop()
    rows = agent.rows["ebpf_agent"]
    assert {r["tracker"] for r in rows} >= {"gc_pause", "off_cpu"}
    assert all(r[c] is None for r in rows for c in COSTS), rows


@pytest.mark.sole
def test_many_rows_are_a_sample_after_a_minutes_worth(debian_python, start_agent, start_workload):
    """Limits on CPU that are never reached, and 10 rows a second: 600 connections are a row each, of more a part, with weights."""
    workload = start_workload(debian_python, "storm.py", 1, SECONDS)
    agent = start_agent("--governor.cpu_percent=100", "--governor.tracker_cpu_percent=0", "--governor.interval=1",
                        "--governor.rows_per_second=10", f"--pid={workload.pid}", trackers=["tcp_connect", "gc_pause"])
    workload.wait_covered(agent)
    workload.say()
    truth = workload.read()
    host.wait_until(lambda: re.search("tcp_connect makes .*all, sampling is off", agent.stderr), 60, "all rows come back")
    workload.finish()
    agent.stop()
    found = counts.check(agent)
    connects = sorted(agent.select("ebpf_tcp_connect", lambda r: r["host_pid"] == workload.pid and
                                   truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"]), key=lambda r: r["start_time"])
    assert truth["connected"] > 3000 and found["tcp_connect"]["sampled"] > truth["connected"] / 4
    assert all(r["weight"] == 1 for r in connects[:300])  # each connection has a second row, at its end
    assert max(r["weight"] for r in connects) > 16
    check_estimate([r["weight"] for r in connects], truth["connected"],
                   found["tcp_connect"]["lost_ring"] + found["tcp_connect"]["lost_state"], "connects")
    assert re.search(r"governor: tcp_connect makes \d+ rows per second, governor.rows_per_second is 10: .*all of \d+ ms and longer", agent.stderr)
    assert not found["gc_pause"]["sampled"] and "costs" not in agent.stderr


# ---- trackers taken out ----

KERNEL_LIMIT = 2  # percent of all CPUs: a fraction of the storm's cost, on a busy machine as well
SETTLED = 15  # seconds after which the limit holds
EDGE_NS = 30_000_000  # between the time written and the last or first event


def kernel_percent(agent, seconds):
    """The share of all CPUs taken by the agent's programs, by the kernel's statistics."""
    with bpf_maps.run_statistics():
        before, begin = bpf_maps.run_ns(agent.pid), time.monotonic_ns()
        time.sleep(seconds)
        ran, wall = bpf_maps.run_ns(agent.pid) - before, time.monotonic_ns() - begin
    return 100 * ran / wall / os.cpu_count()


def outages(agent, tracker):
    """[(from, to)] in ns: gaps between the reports of a tracker, up to now."""
    reports = sorted((r["start_time"], r["end_time"]) for r in agent.rows["ebpf_agent"] if r["tracker"] == tracker)
    return [(host.monotonic_ns(one[1]), host.monotonic_ns(other[0]))
            for one, other in zip(reports, reports[1:]) if other[0] > one[1]]


def reported(agent, tracker):
    return sorted((r["start_time"], r["end_time"]) for r in agent.rows["ebpf_agent"] if r["tracker"] == tracker)


def is_back(agent, tracker):
    return f"governor: {tracker} is put back" in agent.stderr


def check_health(agent, tracker, gaps):
    """Each gap is reported: a row at the begin, and a row at the end with both times."""
    rows = [r for r in agent.rows["ebpf_probe_health"] if r["tracker"] == tracker and "taken out" in r["reason"]]
    gone, back = ([r for r in rows if r["live"] == live] for live in (0, 1))
    assert len(gone) >= len(gaps) and len(back) == len(gaps), (tracker, rows, gaps)
    for (begin, end), row in zip(gaps, back):
        assert row["reason"].startswith("not measured from ") and abs(host.monotonic_ns(row["time"]) - end) < 1e9, (row, end)
        assert any(abs(host.monotonic_ns(r["time"]) - begin) < 1e9 for r in gone), (gone, begin)


def inside(begin, end, gaps):
    return any(begin > gap[0] + EDGE_NS and end < gap[1] - EDGE_NS for gap in gaps)


def outside(begin, end, gaps):
    return all(end < gap[0] - EDGE_NS or begin > gap[1] + EDGE_NS for gap in gaps)


def check_requests(agent, pid, truth, gaps, lost):
    """Every request outside of the gaps is a row, none inside is; requests across an edge are rows, or counted, or
    neither."""
    rows = [(host.monotonic_ns(r["start_time"]), host.monotonic_ns(r["end_time"])) for r in agent.rows["ebpf_request"]
            if r["host_pid"] == pid and r["path"] == "/"]
    measured = [t for t in truth if outside(*t, gaps)]
    straddle = [t for t in truth if not outside(*t, gaps) and not inside(*t, gaps)]
    missing = [t for t in measured if not any(t[0] - 1e6 <= row[0] and row[1] <= t[1] + 1e6 for row in rows)]
    assert not missing, (len(missing), missing[:3], len(measured), gaps)
    assert len(measured) <= len(rows) <= len(measured) + len(straddle), (len(measured), len(straddle), len(rows), gaps)
    assert len(rows) + lost <= len(measured) + len(straddle), (len(rows), lost)
    # a request from before the gap with an end behind the gap would be as long as the gap
    within = [row for row in rows if not any(t[0] - 1e6 <= row[0] and row[1] <= t[1] + 1e6 for t in truth)]
    assert not within, (within[:3], gaps)
    assert sum(inside(*t, gaps) for t in truth) > 10 and len(measured) > 10, (len(truth), len(measured), gaps)


def check_sleeps(agent, truth, gaps):
    """The governor has sampled the sleeps: the rows have the right length."""
    rows = [(host.monotonic_ns(r["start_time"]), host.monotonic_ns(r["end_time"])) for r in agent.rows["ebpf_off_cpu"]
            if r["host_tid"] == truth["sleeper"] and r["cause"] == "sleep"]
    for row in rows:
        assert any(t[0] - 1e6 <= row[0] and row[1] <= t[1] + 1e6 for t in truth["sleeps"]), (row, gaps)
        assert not inside(*row, gaps), (row, gaps)
    assert len(rows) > 3, (rows, len(truth["sleeps"]))


@pytest.mark.sole
@plain_build("what the agent's programs cost is compared")
def test_trackers_are_taken_out_and_put_back(debian_python, start_agent, start_workload):
    """`request` is first here, so that the rows can be compared with the truth; then all users of context switches."""
    workload = start_workload(debian_python, "outage.py")
    agent = start_agent(f"--governor.cpu_percent={KERNEL_LIMIT}", "--governor.tracker_cpu_percent=0", "--governor.interval=2", "--governor.retry=25",
                        "--shed_first=request,off_cpu", "--off_cpu.min_duration_us=100000", "--request.min_duration_us=0",
                        "--report_interval=1", f"--pid={workload.pid}")
    workload.wait_covered(agent)
    assert "taken out" not in agent.stderr, agent.stderr
    workload.say()
    before = kernel_percent(agent, 2)
    assert before > 2 * KERNEL_LIMIT, before  # otherwise there is nothing to limit
    time.sleep(SETTLED - 2)
    held = kernel_percent(agent, 4)
    assert held <= 1.2 * KERNEL_LIMIT, (before, held, agent.stderr)
    assert "governor: request is taken out" in agent.stderr and "governor: off_cpu is taken out" in agent.stderr
    workload.say()
    host.wait_until(lambda: is_back(agent, "request") and is_back(agent, "off_cpu"), 60, "the trackers come back")
    time.sleep(3)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.stop()
    found = counts.check(agent)
    for tracker in ("request", "off_cpu"):
        gaps = outages(agent, tracker)
        assert gaps and sum(end - begin for begin, end in gaps) > 5e9, (tracker, gaps)
        check_health(agent, tracker, gaps)
        assert reported(agent, tracker) == reported(agent, f"{tracker}_profile"), f"the sums of {tracker} have no coverage of their own"
    assert not outages(agent, "ena"), "a tracker without programs measures on"
    lost = found["request"]["lost_state"]
    check_requests(agent, workload.pid, truth["requests"], outages(agent, "request"), lost)
    check_sleeps(agent, truth, outages(agent, "off_cpu"))


@pytest.mark.sole
@plain_build("what the agent's programs cost is compared")
def test_samples_of_cpu_time_are_taken_out_and_put_back(debian_python, native, start_agent, start_workload):
    """The clocks of `on_cpu` are no programs of the skeleton: the tracker closes and opens them."""
    agent = start_agent("--governor.cpu_percent=0.1", "--governor.tracker_cpu_percent=0", "--governor.interval=1", "--governor.retry=10",
                        "--shed_first=on_cpu", "--on_cpu.hertz=1000", "--report_interval=1", trackers=["on_cpu", "gc_pause"])
    busy = start_workload(debian_python, "on_cpu_truth.py", native, 10).wait_covered(agent)
    busy.say()
    host.wait_until(lambda: "governor: on_cpu is taken out" in agent.stderr, 30, "the governor's word")
    host.wait_until(lambda: is_back(agent, "on_cpu"), 90, "the tracker comes back")
    again = start_workload(debian_python, "on_cpu_truth.py", native, 1).wait_covered(agent)
    again.say()
    again.read(), again.say("end"), again.finish()
    busy.finish()
    agent.stop()
    counts.check(agent)
    gaps = outages(agent, "on_cpu")
    back = agent.stderr.count("governor: on_cpu is put back")
    assert len(gaps) - back in (0, 1), (gaps, agent.stderr)  # the agent may stop while the tracker is out
    check_health(agent, "on_cpu", gaps[:back])
    ends = {workload: [host.monotonic_ns(r["end_time"]) for r in agent.rows["ebpf_on_cpu"] if r["host_pid"] == workload.pid] for workload in (busy, again)}
    assert len(ends[busy]) > 100 and len(ends[again]) > 100, {w.pid: len(rows) for w, rows in ends.items()}
    assert not any(inside(end, end, gaps) for end in ends[busy]), gaps


def test_samples_of_cpu_time_have_no_duration(debian_python, native, start_agent, start_workload):
    agent = start_agent("--governor.cpu_percent=100", "--governor.tracker_cpu_percent=0", "--governor.rows_per_second=1", "--governor.interval=1",
                        "--on_cpu.hertz=1000", trackers=["on_cpu", "gc_pause"])
    workload = start_workload(debian_python, "on_cpu_truth.py", native, 3).wait_covered(agent)
    workload.say()
    host.wait_until(lambda: "governor: on_cpu makes" in agent.stderr, 30, "the governor's word")
    [said, *_] = re.findall("governor: on_cpu makes .*", agent.stderr)
    assert re.search("events reported from now on: one in [0-9]+$", said), said


def test_within_the_limit_nothing_is_taken_out(debian_python, start_agent, start_workload):
    agent = start_agent("--governor.cpu_percent=20", "--governor.tracker_cpu_percent=0", "--governor.interval=1",
                        "--report_interval=1")
    workload = start_workload(debian_python, "gc_truth.py", 1, 101, 5).wait_covered(agent)
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    counts.check(agent)
    assert "taken out" not in agent.stderr, agent.stderr
    assert not [t for t in {r["tracker"] for r in agent.rows["ebpf_agent"]} if outages(agent, t)]
