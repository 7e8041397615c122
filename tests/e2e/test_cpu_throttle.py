# SPDX-License-Identifier: Apache-2.0
"""Time taken from a process by a CPU quota is a row: the sum equals cpu.stat's delta, the times equal the
process's observation."""
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

import counts
from cgroups import QuotaCgroup, find_cpu_controller
from host import DEBIAN_PYTHON, monotonic_ns
from store_fixture import ROOT, UNDERSPAN, Store, underspan

TABLE = "ebpf_cpu_throttle"
MS = 1_000_000
# burns CPU for a number of seconds of wall clock at each word, and reports the gaps without CPU
BURNER = """if True:
    import json, sys, time
    print("up", flush=True)
    for line in sys.stdin:
        end = time.monotonic_ns() + int(float(line) * 1e9)
        holes, last = [], time.monotonic_ns()
        while last < end:
            now = time.monotonic_ns()
            if now - last > 8_000_000:
                holes.append((last, now))
            last = now
        print(json.dumps(holes), flush=True)
"""

pytestmark = pytest.mark.skipif(not find_cpu_controller(), reason="this host has no cgroup CPU controller mounted")


class Burner:
    def __init__(self, cgroup=None, python=DEBIAN_PYTHON):
        self.process = subprocess.Popen([str(python), "-c", BURNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, preexec_fn=cgroup and cgroup.enter)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "up\n"

    def start(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def holes(self):
        return json.loads(self.process.stdout.readline())

    def burn(self, seconds):
        self.start(seconds)
        return self.holes()

    def burn_until_throttled(self, cgroup, seconds):
        """For so long, and on until the cgroup's own count says that its quota took the CPU away: on a busy machine a process may get less
        than its quota for seconds."""
        before, deadline = cgroup.stat()["nr_throttled"], time.monotonic() + 60
        holes = self.burn(seconds)
        while cgroup.stat()["nr_throttled"] == before:
            assert time.monotonic() < deadline, "the process never got its quota"
            holes += self.burn(seconds)
        return holes

    def end(self):
        self.process.stdin.close()
        self.process.wait(20)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def make_cgroup(cleanup):
    def make(*args, **kwargs):
        cgroup = QuotaCgroup(*args, **kwargs)
        cleanup.append(cgroup)
        return cgroup
    return make


@pytest.fixture
def start_burner(cleanup):
    def start(cgroup=None):
        burner = Burner(cgroup)
        cleanup.append(burner)
        return burner
    return start


def rows_of(agent, pid, cgroup):
    return sorted(agent.select(TABLE, lambda r: r["host_pid"] == pid and r["cgroup"] == cgroup.name),
                  key=lambda r: r["end_time"])


def sums(rows):
    return {"nr_throttled": sum(r["throttled_periods"] for r in rows), "throttled_ns": sum(r["throttled_ns"] for r in rows)}


def deltas(before, after, cgroup):
    """In the form of sums(); version 2 truncates the nanoseconds."""
    return {name: after[name] - before[name] for name in ("nr_throttled", "throttled_ns")}


def assert_same(rows, before, after, cgroup):
    found, truth = sums(rows), deltas(before, after, cgroup)
    if cgroup.is_v2:
        assert abs(found.pop("throttled_ns") - truth.pop("throttled_ns")) <= 1000
    assert found == truth


def test_throttled_time_is_cpu_stats(start_agent, make_cgroup, start_burner):
    """20 ms of 100: from the process's first moment to the last, through bursts and pauses."""
    cgroup = make_cgroup(20_000, 100_000)
    agent = start_agent(trackers=["cpu_throttle"])
    burner = start_burner(cgroup)
    holes = []
    for seconds, rest in (0.35, 0.5), (1.7, 0.3), (0.15, 0.4):
        holes += burner.burn(seconds)
        time.sleep(rest)
    burner.end()
    after = cgroup.stat()
    time.sleep(1.2)  # the agent asks once a second
    agent.stop()
    rows = rows_of(agent, burner.pid, cgroup)
    assert after["nr_throttled"] >= 3  # more on an idle machine
    assert_same(rows, {"nr_throttled": 0, "throttled_ns": 0}, after, cgroup)
    assert rows[-1]["throttled_periods_total"] == after["nr_throttled"]
    assert sum(r["periods"] for r in rows) <= rows[-1]["periods_total"] <= after["nr_periods"]
    for row in rows:
        assert (row["pid"], row["tid"], row["quota_us"], row["period_us"]) == (burner.pid, 0, 20_000, 100_000)
        assert row["cgroup_id"] == cgroup.identity() and row["cgroup_level"] == 1
        assert row["comm"].startswith("python3")
        assert row["duration_ns"] <= 1100 * MS
    check_moments(rows, holes)
    assert counts.check(agent)["cpu_throttle"]["rows"] == len(agent.rows[TABLE])


def check_moments(rows, holes):
    """The process did not run at the times in the rows. (On a busy machine, there may be further gaps.)"""
    stood_still = sum(max(0, min(end, monotonic_ns(r["end_time"])) - max(begin, monotonic_ns(r["start_time"])))
                      for begin, end in holes for r in rows)
    # a program migrated between CPUs may be counted on both
    throttled = sum(min(r["throttled_ns"], r["duration_ns"]) for r in rows)
    assert stood_still > 0.6 * throttled, f"{stood_still / MS:.0f} of {throttled / MS:.0f} ms"


def test_a_process_that_was_there_before_and_one_that_comes(start_agent, make_cgroup, start_burner):
    """The agent starts in the middle: earlier throttling is not reported; two processes of a cgroup have equal rows."""
    cgroup = make_cgroup(10_000, 50_000)
    burner = start_burner(cgroup)
    burner.burn_until_throttled(cgroup, 0.5)
    time.sleep(0.3)
    before = cgroup.stat()
    agent = start_agent(trackers=["cpu_throttle"])
    time.sleep(1.2)
    burner.burn_until_throttled(cgroup, 0.6)
    time.sleep(0.3)
    middle = cgroup.stat()
    second = start_burner(cgroup)
    burner.burn_until_throttled(cgroup, 0.6)
    time.sleep(0.3)
    after = cgroup.stat()
    time.sleep(1.2)
    agent.stop()
    assert_same(rows_of(agent, burner.pid, cgroup), before, after, cgroup)
    assert_same(rows_of(agent, second.pid, cgroup), middle, after, cgroup)


def test_the_quota_of_a_cgroup_above(start_agent, make_cgroup, start_burner):
    """A pod's limit over a container without a limit; a process outside has no rows."""
    pod = make_cgroup(20_000, 100_000)
    container = make_cgroup(None, parent=pod)
    agent = start_agent(trackers=["cpu_throttle"])
    burner, other = start_burner(container), start_burner()
    other.start(0.5)
    burner.burn_until_throttled(pod, 0.8)
    other.holes()
    time.sleep(0.3)
    after = pod.stat()
    time.sleep(1.2)
    agent.stop()
    assert_same(rows_of(agent, burner.pid, pod), {"nr_throttled": 0, "throttled_ns": 0}, after, pod)
    assert {r["cgroup"] for r in agent.rows[TABLE] if r["host_pid"] == burner.pid} == {pod.name}
    assert not agent.select(TABLE, lambda r: r["host_pid"] == other.pid)


def test_without_the_timers_tracepoint(start_agent, make_cgroup, start_burner):
    """The sums are right all the same, the rows span a second."""
    cgroup = make_cgroup(20_000, 100_000)
    agent = start_agent("--degrade=hrtimer_expire_entry", trackers=["cpu_throttle"])
    burner = start_burner(cgroup)
    time.sleep(1.2)
    before = cgroup.stat()
    burner.burn_until_throttled(cgroup, 1)
    time.sleep(0.3)
    after = cgroup.stat()
    time.sleep(1.2)
    agent.stop()
    assert [r["reason"] for r in agent.rows["ebpf_probe_health"] if "hrtimer_expire_entry" in r["reason"]]
    rows = [r for r in rows_of(agent, burner.pid, cgroup) if r["throttled_periods_total"] > before["nr_throttled"]]
    assert_same(rows, before, after, cgroup)


def test_only_the_chosen_process(start_agent, make_cgroup, start_burner):
    cgroup = make_cgroup(20_000, 100_000)
    burners = start_burner(cgroup), start_burner(cgroup)
    agent = start_agent(f"--pid={burners[1].pid}", trackers=["cpu_throttle"])
    time.sleep(1)
    burners[0].burn_until_throttled(cgroup, 0.5)
    time.sleep(1.2)
    agent.stop()
    assert {r["host_pid"] for r in agent.rows[TABLE]} == {burners[1].pid}
    total = sum(r["seen"] for r in agent.rows["ebpf_agent"] if r["tracker"] == "cpu_throttle")
    assert total == len(agent.rows[TABLE]) > 0


def test_explain_says_so(make_cgroup, start_burner, cleanup, tmp_path):
    """From the kernel into a database and out again: the windows stand under the stopped span, and nowhere else."""
    cgroup = make_cgroup(20_000, 100_000)
    with Store(tmp_path / "db") as store:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}
        traces = (pathlib.Path(ROOT) / "sql/otel/otel_traces.sql").read_text()
        for command in ["sql", "-"], ["schema", "--apply"]:
            done = underspan(*command, f"--clickhouse={store.url}", env=env, input=traces)
            assert done.returncode == 0, done.stderr
        agent = subprocess.Popen([UNDERSPAN, "run", f"--clickhouse={store.url}", "--trackers=cpu_throttle",
                                  "--flush_interval=1"], env=env, stderr=subprocess.PIPE, text=True)
        cleanup.append(agent)
        while "ready" not in agent.stderr.readline():
            assert agent.poll() is None
        burner = start_burner(cgroup)
        time.sleep(0.3)
        spans = []
        for seconds in 0.7, 0:
            begin = time.time_ns()
            burner.burn_until_throttled(cgroup, seconds) if seconds else time.sleep(0.3)
            spans.append((begin, time.time_ns() - begin))
            time.sleep(0.5)
        time.sleep(1.2)
        agent.terminate()
        assert agent.wait(10) == 0
        said = []
        for i, (begin, duration) in enumerate(spans):
            trace = f"{i + 1:032x}"
            done = underspan("sql", f"--clickhouse={store.url}", f"""
                INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, SpanKind, ServiceName, SpanAttributes, Duration)
                VALUES (fromUnixTimestamp64Nano({begin}), '{trace}', '{i + 1:016x}', 'GET slow', 'Server', 'shop',
                        map('process.pid', '{burner.pid}', 'thread.id', '{burner.pid}'), {duration})""", env=env)
            assert done.returncode == 0, done.stderr
            done = underspan("explain", f"--clickhouse={store.url}", trace, env=env)
            assert done.returncode == 0, done.stderr
            said.append([line for line in done.stdout.splitlines() if "throttled" in line])
        question = (pathlib.Path(ROOT) / "sql/queries/cpu_throttle.sql").read_text()
        done = underspan("sql", f"--clickhouse={store.url}", "-", env=env, input=question)
        assert done.returncode == 0 and cgroup.name in done.stdout, done.stdout + done.stderr
    assert said[0] and all(f"CPU quota of {cgroup.name[:4]}" in line for line in said[0]), said
    assert sum(float(re.search(r"throttled ([\d.]+) ms", line).group(1)) for line in said[0]) > 100
    assert said[1] == []
