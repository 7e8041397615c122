# SPDX-License-Identifier: Apache-2.0
"""Rows name threads as threading does."""
import collections
import json
import os
import subprocess

import pytest

import host
from conftest import ALL_PYTHONS

TABLE = "ebpf_gc_pause"
SHORT = 60
SLACK_NS = 2_000_000  # a truth begins and ends well before and after the bracketed calls
NAME_BYTES = 511  # the agent's limit of a name


def shown(name):
    """As in a row: no lone surrogates, no NUL, truncated between characters."""
    text = "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in name)
    return text.encode()[:NAME_BYTES].decode(errors="ignore")


def rows_of(agent, hello, record):
    pid = record["tid"] if record["kind"] == "forked" else hello["pid"]
    return [r for r in agent.select(TABLE, lambda r: r["host_pid"] == pid and r["tid"] == record["tid"])
            if record["begin"] - SLACK_NS < host.monotonic_ns(r["start_time"]) < record["end"] + SLACK_NS]


@pytest.mark.alone
def test_rows_have_the_names_of_threading(start_agent, start_on_all, capsys):
    agent = start_agent(trackers=["gc_pause"])
    workloads = start_on_all("names.py", SHORT)
    host.run_together(agent, workloads)
    agent.stop()
    lines = []

    def check(workload):
        kinds, short = collections.Counter(), collections.Counter()
        for record in workload.truth["truth"]:
            rows = rows_of(agent, workload.hello, record)
            assert rows, f"no rows: {record}"
            kinds[record["kind"]] += 1
            names = {r["thread_name"] for r in rows}
            if record["kind"] == "short":
                assert names <= {shown(record["name"]), ""}, f"{names} for {record['name']!r}"
                short[names == {record["name"]}] += 1
            else:
                assert names == {shown(record["name"])}, f"{record['kind']}: {names} for {record['name']!r}"
        assert set(kinds) == {"named", "before", "renamed", "subclass", "pool", "foreign", "forked", "main", "short"}
        lines.append(f"{workload.python}: {short[True]} of {SHORT} that live 50 ms")
        # within 50 ms a reader has to have had a CPU
        assert short[True] >= SHORT * (0.9 if os.getloadavg()[0] < 4 * os.cpu_count() else 0.1)

    try:
        host.check_each(workloads, check)
    finally:
        with capsys.disabled():
            print("", *lines, sep="\n  ", end=" ")


def test_threads_of_other_interpreters_have_names(start_agent, start_on_all):
    """The names are in the threading module of the interpreter that started the threads."""
    pythons = [p for p in ALL_PYTHONS if p.version >= (3, 12) and "shared" not in str(p)]
    agent = start_agent(trackers=["gc_pause"])
    workloads = start_on_all("names_subinterpreter.py", pythons=pythons)
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        assert len(workload.truth["truth"]) == 4
        for record in workload.truth["truth"]:
            rows = [r for r in agent.select(TABLE, lambda r: r["host_pid"] == workload.pid and r["tid"] == record["tid"])
                    if record["begin"] < host.monotonic_ns(r["start_time"]) < record["end"]]
            names = collections.Counter(r["thread_name"] for r in rows)
            # the first may come before the name is read
            assert len(rows) == 20 and set(names) <= {record["name"], ""} and names[record["name"]] >= 10, (names, record)

    host.check_each(workloads, check)


WAKERS = """
import json, threading, time
locks, told = [threading.Lock() for _ in range(3)], []
for lock in locks: lock.acquire()
def wake(lock): time.sleep(1.5); lock.release(); time.sleep(1)
def wait():
    for lock in locks: lock.acquire()
print("ready", flush=True)
input()
waiter = threading.Thread(target=wait, name="waiter"); waiter.start()
for i, lock in enumerate(locks):
    waker = threading.Thread(target=wake, args=(lock,), name=f"waker {i}"); waker.start()
    told.append((waker.native_id, waker.name)); waker.join()
print(json.dumps([waiter.native_id, told]), flush=True)
input()
"""


def test_sums_name_wakers_that_have_ended(start_agent, cleanup, debian_python):
    """Each begins and ends during the time of the sums."""
    process = subprocess.Popen([debian_python.path, "-c", WAKERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    cleanup.append(process)
    assert process.stdout.readline() == "ready\n"
    agent = start_agent(f"--pid={process.pid}", "--off_cpu.profile_interval=3600", trackers=["off_cpu"])
    print(file=process.stdin, flush=True)
    waiter, told = json.loads(process.stdout.readline())
    agent.stop()
    names = {r["waker_host_tid"]: r["waker_thread_name"]
             for r in agent.select("ebpf_off_cpu_profile", lambda r: r["host_tid"] == waiter and r["cause"] == "lock" and r["off_ns"] > 10**9)}
    if os.getloadavg()[0] >= 4 * os.cpu_count():  # a reader may have had no CPU during a thread's life
        told = [(tid, names.get(tid) and name) for tid, name in told]
    assert names == dict(map(tuple, told))
