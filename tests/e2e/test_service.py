# SPDX-License-Identifier: Apache-2.0
"""The agent as a service that runs for years: messages to the manager, SIGHUP, and stepped clocks."""
import gc
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

import counts
import host


# ---- the service manager ----

@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A manager's notify socket; messages() are the received fields, in order."""
    class Manager:
        def __init__(self):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.socket.bind(str(tmp_path / "notify"))
            self.told = []
            monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
            threading.Thread(target=self.read, daemon=True).start()

        def read(self):
            while True:
                text = self.socket.recv(4096).decode()
                self.told.append((time.monotonic(), dict(line.split("=", 1) for line in text.splitlines())))

        def times(self, field):
            return [at for at, fields in list(self.told) if field in fields]

        def wait(self, field, n=1, timeout=20):
            host.wait_until(lambda: len(self.times(field)) >= n, timeout, field)

    return Manager()


def test_the_manager_is_told(manager, start_agent, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    agent = start_agent(trackers=["gc_pause"])
    manager.wait("READY")
    assert "1 tracker" in manager.told[0][1]["STATUS"]
    manager.wait("WATCHDOG", 5)
    agent.process.send_signal(signal.SIGHUP)
    manager.wait("READY", 2)
    reloading = next(fields for _, fields in manager.told if "RELOADING" in fields)
    assert abs(int(reloading["MONOTONIC_USEC"]) / 1e6 - time.monotonic()) < 10
    agent.stop()
    manager.wait("STOPPING")
    order = [next(iter(fields)) for _, fields in manager.told if "WATCHDOG" not in fields]
    assert order == ["READY", "RELOADING", "READY", "STOPPING"]


def test_the_watchdog_notices_a_stuck_collector(manager, start_agent, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "600000")
    agent = start_agent(trackers=["gc_pause"])
    manager.wait("WATCHDOG", 3)
    agent.process.send_signal(signal.SIGSTOP)
    time.sleep(0.3)  # for messages under way
    n = len(manager.times("WATCHDOG"))
    time.sleep(1.5)
    assert len(manager.times("WATCHDOG")) == n
    agent.process.send_signal(signal.SIGCONT)
    manager.wait("WATCHDOG", n + 2)
    agent.stop()


def test_a_watchdog_of_another_process(manager, start_agent, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    agent = start_agent(trackers=["gc_pause"])
    time.sleep(1)
    assert not manager.times("WATCHDOG")
    agent.stop()


# ---- SIGHUP ----

def collections_of(agent, pid):
    return agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == pid)


def test_reload_loses_no_event(tmp_path, debian_python, start_agent, start_workload):
    """SIGHUP again and again while a program collects: each collection is a row."""
    config = tmp_path / "underspan.json"
    config.write_text(json.dumps({"gc_pause": {"min_duration_us": 0}}))
    agent = start_agent("-c", str(config), trackers=["gc_pause", "off_cpu"])
    workload = start_workload(debian_python, "gc_truth.py", 2, 997, 1).wait_covered(agent)
    workload.say()
    for level in "debug", "info", "warn", "info":
        config.write_text(json.dumps({"gc_pause": {"min_duration_us": 0}, "log_level": level, "report_interval": 1}))
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    truth = workload.read()
    workload.finish()
    agent.stop()
    rows = [r for r in collections_of(agent, workload.pid)
            if truth["begin"] <= host.monotonic_ns(r["start_time"]) <= truth["end"]]
    assert len(rows) == len(truth["collections"])
    assert "reloaded: report_interval, log_level" in agent.stderr or "reloaded: log_level" in agent.stderr
    counts.check(agent)


def test_what_a_reload_changes(tmp_path, start_agent):
    config = tmp_path / "underspan.json"
    config.write_text("{}")
    agent = start_agent("-c", str(config), trackers=["gc_pause"])
    me = os.getpid()

    def reload(text, word):
        config.write_text(text)
        n = len(agent.log)
        agent.process.send_signal(signal.SIGHUP)
        host.wait_until(lambda: any(word in line for line in agent.log[n:]), 10, word)

    def collect(seconds=0.5):
        """Whether a collection becomes a row."""
        before = len(collections_of(agent, me))
        gc.collect()
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(collections_of(agent, me)) == before:
            time.sleep(0.05)
        return len(collections_of(agent, me)) > before

    assert collect(10)
    reload('{"gc_pause": {"min_duration_us": 60000000}}', "reloaded: gc_pause.min_duration_us")
    assert not collect()
    reload('{"gc_pause": {"min_duration_us": "soon"}}', "nothing has changed:")
    assert not collect()
    reload('{"no_such_key": 1}', "no_such_key")
    reload('{"trackers": ["off_cpu"], "host": "other"}', "restart the agent to change: host")  # the flag beats the file
    assert collect(10)  # the key is gone: the default holds
    agent.stop()
    counts.check(agent)
    assert {r["host"] for r in agent.rows["ebpf_gc_pause"]} == {os.uname().nodename}


def test_a_reload_changes_no_kind_of_place_for_rows(tmp_path, start_agent):
    config = tmp_path / "underspan.json"
    config.write_text('{"stdout": true}')
    agent = start_agent("-c", str(config), trackers=["gc_pause"], stdout=False)
    config.write_text('{"clickhouse": "http://127.0.0.1:1"}')
    agent.process.send_signal(signal.SIGHUP)
    host.wait_until(lambda: "nothing has changed" in agent.stderr, 10, "an answer")
    assert "a reload changes clickhouse to other servers only: restart the agent for another place" in agent.stderr
    agent.stop()


# ---- time ----

@pytest.fixture
def step_clock(tmp_path, monkeypatch):
    """step_clock(seconds): from now on, the agent's wall clock is ahead of the system's by so much."""
    here = os.path.dirname(os.path.abspath(__file__))
    library, path = tmp_path / "clock_step.so", tmp_path / "step"
    compiler = next(c for c in ("clang-19", "clang", "cc") if shutil.which(c))
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, f"{here}/workloads/clock_step.c"], check=True)
    path.write_bytes(struct.pack("q", 0))
    monkeypatch.setenv("CLOCK_STEP_FILE", str(path))
    monkeypatch.setenv("LD_PRELOAD", str(library))

    def step(seconds):
        with open(path, "r+b") as f:
            f.write(struct.pack("q", seconds))
    return step


def test_rows_across_a_step(start_agent, step_clock):
    """Steps of an hour, forth and back: each row has the wall clock's time of the event."""
    agent = start_agent("--trackers=gc_pause", "--flush_interval=3")
    truth = []
    for step in 0, 3600, 0, -3600:
        step_clock(step)
        if step or truth:
            host.wait_until(lambda: agent.stderr.count("was stepped by") >= len(truth), 10, "a step seen")
        begin = host.monotonic_ns(time.time_ns() // 1000)
        for _ in range(7):
            gc.collect()
        truth.append((begin, host.monotonic_ns(time.time_ns() // 1000), step))
        # at once: the rows are still in the kernel, or not converted, when the clock is stepped
    agent.stop()
    rows = sorted((host.monotonic_ns(r["start_time"]), host.monotonic_ns(r["end_time"]), r["duration_ns"])
                  for r in collections_of(agent, os.getpid()) if r["generation"] == 2)
    for begin, end, step in truth:
        ahead = step * 10**9
        inside = [r for r in rows if begin - 10**6 <= r[0] - ahead <= end + 10**6]
        assert len(inside) == 7, (step, [(r[0] - begin) / 1e9 for r in rows])
        for start, stop, duration in inside:
            assert abs((stop - start) - duration) < 10_000
    told = agent.select("ebpf_probe_health", lambda r: r["tracker"] == "clock")
    assert len(told) == 3 and all("was stepped by" in r["reason"] for r in told)
    assert [float(r["reason"].split("stepped by ")[1].split()[0]) for r in told] == pytest.approx([3600, -3600, -3600],
                                                                                                  abs=0.01)
