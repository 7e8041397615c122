# SPDX-License-Identifier: Apache-2.0
"""Samples of threads on a CPU compared with the threads' own clocks and with the functions that spent the time
(workloads/on_cpu_truth.py)."""
import json
import math
import os
import re
import socket
import subprocess
import time
import urllib.request

import pytest

import counts
import host
import servers
from agent import NO_ENGINE, UNDERSPAN, Agent, plain_build
from answers import Answers
from store_fixture import Store
from test_request import TRACKERS, trace_of

TABLE = "ebpf_on_cpu"
SECONDS = 2
HERTZ = 97


def close_to(rows, seconds, hertz):
    """A thread that shares its CPU is met by chance: the variance is at most the number, about half of it with one neighbour."""
    n = seconds * hertz
    return abs(len(rows) - n) <= 2 + 4 * math.sqrt(n / 2)


def check(agent, workload, hertz):
    truth = workload.truth
    rows = [r for r in agent.select(TABLE, lambda r: r["host_pid"] == workload.hello["pid"])
            if truth["begin"] <= host.monotonic_ns(r["end_time"]) <= truth["end"]]
    assert all(r["duration_ns"] == 1_000_000_000 // hertz and r["weight"] == 1 for r in rows)
    of = {name: [r for r in rows if r["tid"] == tid] for name, tid in
          (("main", workload.hello["tid"]), ("hasher", truth["hasher"]), ("native", truth["native"]))}
    assert sum(map(len, of.values())) == len(rows), "a thread that did not compute has samples"
    assert close_to(of["main"], truth["main"], hertz), (len(of["main"]), truth)
    assert close_to(of["hasher"], truth["hashed"], hertz), (len(of["hasher"]), truth)
    assert close_to(of["native"], SECONDS, hertz), (len(of["native"]), truth)
    assert not any(r["py_stack"] for r in of["native"])
    with_stack = [r for r in of["main"] if r["py_stack"]]
    assert len(with_stack) >= 0.97 * len(of["main"]), of["main"]
    shares = {name: sum(any(f.startswith(f"{name} (") for f in r["py_stack"]) for r in with_stack) for name in ("much", "little")}
    # of 194 samples: three standard deviations of a share of 3/4 are 0.093
    assert sum(shares.values()) >= 0.97 * len(with_stack), (shares, with_stack[:3])
    assert abs(shares["much"] / sum(shares.values()) - 0.75) < 0.1, shares
    lines = {f.rpartition(":")[2] for r in with_stack for f in r["py_stack"][1:] if f.startswith("much (")}
    assert lines == {f"{truth['much']})"}, lines
    hashed = [r for r in of["hasher"] if r["py_stack"] and r["py_stack"][0].startswith("hashes (")]
    assert len(hashed) >= 0.97 * len(of["hasher"]), of["hasher"]


def run(agent, workloads):
    for workload in workloads:
        workload.wait_covered(agent)
    for workload in workloads:
        workload.say()
        workload.truth = workload.read()
        workload.say("end")
        workload.finish()
    agent.stop()


def test_samples_are_the_threads_cpu_time(native, start_agent, start_on_all):
    agent = start_agent(f"--on_cpu.hertz={HERTZ}", trackers=["on_cpu", "gc_pause"])
    workloads = start_on_all("on_cpu_truth.py", native, SECONDS)
    run(agent, workloads)
    host.check_each(workloads, lambda workload: check(agent, workload, HERTZ))


def asked(port, i, grind, polish):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{grind}/{polish}", headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def connects(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@plain_build(NO_ENGINE)
def test_explain_names_the_code_in_which_a_request_computed(tmp_path, cleanup, debian_python, monkeypatch):
    port = servers.free_port()
    server = servers.Server([debian_python.path, os.path.join(host.WORKLOADS, "on_cpu_app.py"), str(port)])
    cleanup.append(server)
    host.wait_until(lambda: connects(port), 30, "the server answers")
    store = Store(tmp_path / "db")
    cleanup.append(store)
    ask = Answers(store)
    ask.apply()
    monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
    agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", stdout=False, trackers=[*TRACKERS, "off_cpu", "on_cpu"])
    cleanup.append(agent)
    agent.wait_ready()
    time.sleep(1)
    work = {1: (1200, 300), 2: (300, 1200), 3: (0, 1000)}
    for i, of in work.items():
        asked(port, i, *of)
    agent.stop()
    for i, (grind, polish) in work.items():
        done = ask.command("explain", "--json", trace_of(i))
        assert done.returncode == 0, done.stderr
        # another test's server on this host may serve the same ids
        [row] = [r for r in json.loads(done.stdout)["requests"] if r["pid"] == server.pid]
        [cause] = [c for c in row["causes"] if c["cause"] == "cpu"]
        found = re.fullmatch(r"the thread computed, (\d+) of (\d+) samples in spend \(workloads/on_cpu_app.py:(10|11)\)", cause["said"])
        assert found, cause
        samples, cpu_ms = int(found[2]), grind + polish
        assert 0.5 * cpu_ms * 19 / 1000 < samples < 1.5 * cpu_ms * 19 / 1000 + 2 and int(found[1]) >= samples - 2, (cause, row)
        stacks = json.loads(store.ask(f"""SELECT py_stack FROM ebpf_on_cpu WHERE tid = {row['tid']} AND end_time BETWEEN
            fromUnixTimestamp64Micro({row['handled_us']}) AND fromUnixTimestamp64Micro({row['to_us']}) FORMAT JSONCompact"""))["data"]
        assert sum(bool(stack) for [stack] in stacks) == samples, (stacks, cause)
        in_grind = sum(any(f.startswith("grind (") for f in stack) for [stack] in stacks)
        assert abs(in_grind / samples - grind / cpu_ms) < 0.35, (in_grind, samples, grind)
    check_window(ask, server.pid)


def check_window(ask, pid):
    """A profile of the window, with the time on a CPU and without."""
    [sampled_us, off_us] = json.loads(ask.store.ask(f"""SELECT (SELECT sum(duration_ns) FROM ebpf_on_cpu WHERE host_pid = {pid}) / 1000,
        (SELECT sum(off_ns) FROM ebpf_off_cpu_profile WHERE host_pid = {pid}) / 1000 FORMAT JSONCompact"""))["data"][0]
    both, waits = (json.loads(ask.command("offcpu", "--since=10m", f"--pid={pid}", "--json", *more).stdout) for more in (["--cpu"], []))
    of = {True: 0, False: 0}
    for stack in both["stacks"]:
        of[stack["frames"][-1] == "[cpu]"] += stack["us"]
    assert of == {True: both["cpu_us"], False: both["off_cpu_us"]} and abs(both["cpu_us"] - sampled_us) <= 1, (of, sampled_us)
    assert abs(both["off_cpu_us"] - waits["off_cpu_us"]) <= 1 and abs(waits["off_cpu_us"] - off_us) <= 1 and "cpu_us" not in waits, off_us
    in_grind = sum(s["us"] for s in both["stacks"] if s["frames"][-1] == "[cpu]" and any(f.startswith("grind (") for f in s["frames"]))
    assert abs(in_grind - 1_500_000) < 750_000, in_grind


@plain_build(NO_ENGINE)
def test_a_window_without_samples_says_so(tmp_path, cleanup):
    """An earlier agent, or one without the tracker: no time on a CPU is not the same as not measured."""
    store = Store(tmp_path / "db")
    cleanup.append(store)
    ask = Answers(store)
    ask.apply()
    of = {"host": "h1", "start_time": f"{time.time() - 60:.6f}", "end_time": f"{time.time():.6f}"}
    waits = {**of, "pid": 7, "host_pid": 7, "tid": 7, "host_tid": 7, "comm": "python3"}
    ask.insert("ebpf_off_cpu_profile", {**waits, "cause": "sleep", "syscall": "clock_nanosleep", "off_ns": 5_000_000_000, "count": 1})
    ask.insert("ebpf_agent", {**of, "tracker": "off_cpu"})
    report = json.loads(ask.command("offcpu", "--since=10m", "--cpu", "--json").stdout)
    assert report["off_cpu_us"] == 5_000_000 and report["cpu_us"] is None
    assert [n for n in report["notes"] if n.startswith("time on a CPU was not measured: no agent with the tracker `on_cpu`")], report["notes"]
    store.ask("DROP TABLE ebpf_on_cpu")  # an older schema
    older = ask.command("offcpu", "--since=10m", "--cpu")
    assert older.returncode == 0 and "off the CPU" in older.stdout and "on and off" not in older.stdout, (older.stdout, older.stderr)
    assert "time on a CPU was not measured" in older.stdout, older.stdout


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_live_profile_of_a_process(debian_python):
    code = ("import time\ndef grind():\n until = time.thread_time() + 0.03\n while time.thread_time() < until: pass\n"
            "while True: grind(); time.sleep(0.03)")
    with subprocess.Popen([debian_python.path, "-c", code]) as process:
        try:
            before, begun = cpu_seconds(process.pid), time.monotonic()
            done = subprocess.run([UNDERSPAN, "offcpu", f"-p{process.pid}", "-d6", "--cpu", "--json"], capture_output=True, text=True, timeout=60)
            rate = (cpu_seconds(process.pid) - before) / (time.monotonic() - begun)
        finally:
            process.kill()
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    ground = sum(s["us"] for s in report["stacks"] if s["frames"][-1] == "[cpu]" and any(f.startswith("grind (<string>:") for f in s["frames"]))
    used_us = sum(s["us"] for s in report["stacks"] if s["frames"][-1] == "[cpu]")
    assert report["cpu_us"] == used_us and ground > 0.9 * used_us, (ground, used_us)
    # the command's own start is not measured, when the process may have had more of a busy CPU or less
    assert 0.65 < used_us / 1e6 / (rate * report["duration_s"]) < 1.5, (used_us, rate, report["duration_s"])
    assert any("[sleep]" in s["frames"][-1] for s in report["stacks"])


@pytest.mark.promise
def test_a_stop_in_the_midst_of_computation(start_agent, cleanup, debian_python):
    """No sample is counted after the last read of the ring buffer."""
    busy = subprocess.Popen([debian_python.path, "-c", "while True: pass"])
    cleanup.append(busy)  # killed
    for _ in range(4):
        agent = start_agent("--on_cpu.hertz=1000", f"--pid={busy.pid}", trackers=["on_cpu"])
        agent.wait_rows(TABLE, n=20, timeout=20)
        agent.stop()
        counts.check(agent)
