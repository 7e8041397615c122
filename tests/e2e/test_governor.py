# SPDX-License-Identifier: Apache-2.0
"""Under a storm of events the agent takes fewer of them, says so, and its rows' weights still add up to the truth."""
import json
import math
import os
import pathlib
import re
import time

import pytest

import counts
import host
from agent import ROOT, plain_build
from store_fixture import Store, sql_text

TICKS = os.sysconf("SC_CLK_TCK")
SECONDS = 9
LIMIT = 0.02  # of all CPUs


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_now(pid):
    """(when, CPU time until then)"""
    return time.monotonic(), cpu_seconds(pid)


def share(begin, end):
    """Of one CPU, between two of these, however long that was."""
    return (end[1] - begin[1]) / (end[0] - begin[0])


def check_estimate(weights, truth, lost, what):
    """Horvitz and Thompson: the sum of weights is unbiased, and the kept ones tell its variance. Six sigmas are once
    in 500 million; 1 % is for what two clocks and a machine that hides single events may differ in."""
    estimate = sum(weights)
    sigma = math.sqrt(sum(w * (w - 1) for w in weights))
    assert abs(estimate - truth) <= 6 * sigma + 0.01 * truth + lost, (what, estimate, truth, sigma, lost)
    assert sigma < truth / 4, (what, sigma, truth)  # else nothing would have been tested


def check_questions(tmp_path, connects, truth, lost):
    """sql/queries/tcp_connect.sql says of the thinned rows what happened."""
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


@pytest.mark.alone
@plain_build("what the agent costs itself is compared")
def test_a_storm(debian_python, start_agent, start_workload, tmp_path):
    workload = start_workload(debian_python, "storm.py", 12, SECONDS)
    # it alone: other Pythons of the host shall not keep it from stepping back
    agent = start_agent(f"--governor.cpu_percent={LIMIT * 100:g}", "--governor.tracker_cpu_percent=0.5", "--governor.interval=1",
                        "--off_cpu.min_duration_us=0", f"--pid={workload.pid}",
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
    # off_cpu's program runs at each switch of everybody: a busy host alone may keep it where it is
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
    # it told what it did and why, and it helped: the agent's own CPU in the last seconds is half of that in the first, or
    # near its limit already, where other programs leave the storm little CPU to begin with
    assert "governor: off_cpu costs" in agent.stderr
    first, last = share(at[0], at[1]), share(at[2], at[3])
    assert last < max(first / 2, 2 * LIMIT * os.cpu_count()), (at, agent.stderr)
    assert found["off_cpu"]["bpf_ns"] > 0 and found["off_cpu"]["bpf_hits"] > truth["slept"]


def test_without_a_storm_every_event_is_a_row(debian_python, start_agent, start_workload):
    """With its usual limits, all trackers and a program that does something now and then."""
    agent = start_agent("--governor.cpu_percent=1", "--governor.tracker_cpu_percent=0.5", "--governor.interval=1")
    workload = start_workload(debian_python, "gc_truth.py", 1, 101, 1).wait_covered(agent)
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    found = counts.check(agent)
    assert not any(c["sampled"] for c in found.values()), found
    assert all(r["weight"] == 1 for r in agent.rows["ebpf_gc_pause"])
