# SPDX-License-Identifier: Apache-2.0
"""The sums of all intervals off the CPU, however short: by Python stack, idle threads apart from busy threads, with
the exact number of intervals."""
import os
import subprocess

import host
from conftest import PYTHONS

PROFILE = "ebpf_off_cpu_profile"
TABLE = "ebpf_off_cpu"


def known(row):
    return row["py_stack"] and not {"<gone>", "<unread>"} & set(row["py_stack"])


def ns_of(rows):
    return sum(r["off_ns"] for r in rows)


def test_sums_tell_idle_threads_from_those_kept_waiting(start_agent, start_on_all):
    """By the same Python stacks as rows do."""
    agent = start_agent("--off_cpu.profile_interval=1", trackers=["off_cpu", "gc_pause"])
    workloads = start_on_all("off_cpu_idle.py", 31)
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        for name, tid in workload.truth["tids"].items():
            sums = agent.select(PROFILE, lambda r: (r["host_pid"], r["host_tid"], r["cause"], r["state"]) ==
                                (workload.hello["pid"], tid, "lock", "S"))
            right = [r for r in sums if known(r)]
            assert ns_of(right) >= 0.9 * ns_of(sums) >= 0.4e9, (name, ns_of(right), ns_of(sums))
            wrong = [r for r in right if r["idle"] != name.startswith("idle")]
            assert not wrong, (name, wrong[0]["py_stack"])
    host.check_each(workloads, check)


def native_library(directory):
    library = directory / "native_threads.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-o", library, os.path.join(host.WORKLOADS, "native_threads.c")], check=True)
    return library


def test_native_threads_wait_for_work_on_conditions(start_agent, start_on_all, tmp_path):
    """A library's threads have no Python stack: a wait for a condition or a semaphore is idle, one for a mutex is not. Rows and sums."""
    agent = start_agent("--off_cpu.profile_interval=1", trackers=["off_cpu", "gc_pause"])
    workloads = start_on_all("off_cpu_native.py", 31, native_library(tmp_path))
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        for name, tid in workload.truth["tids"].items():
            def of_thread(row):
                return (row["host_pid"], row["host_tid"], row["cause"], row["state"]) == (workload.hello["pid"], tid, "lock", "S")
            rows, sums = agent.select(TABLE, lambda r: of_thread(r) and r["duration_ns"] > 15e6), agent.select(PROFILE, of_thread)
            assert len(rows) >= 15 and ns_of(sums) >= 0.4e9, (name, len(rows), ns_of(sums))
            if name.startswith("idle"):
                # a thread that is woken may find the condition's mutex taken, and a list of threads may change while it is read
                assert sum(r["idle"] for r in rows) >= 0.9 * len(rows), (name, [r["idle"] for r in rows])
                assert ns_of(r for r in sums if r["idle"]) >= 0.9 * ns_of(sums), (name, sums)
            else:
                assert not any(r["idle"] for r in rows + sums), (name, [r for r in rows + sums if r["idle"]])
            assert name == "busy Python" or not any(r["py_stack"] for r in rows + sums), name
    host.check_each(workloads, check)


def test_native_threads_that_wait_until_the_end(start_agent, start_on_all, tmp_path):
    """Their only wait ends after the interpreter: nobody can look for them in its list of threads then. Rows and sums are idle."""
    agent = start_agent("--off_cpu.profile_interval=1", trackers=["off_cpu", "gc_pause"])
    workloads = start_on_all("off_cpu_native_end.py", 1, native_library(tmp_path), pythons=PYTHONS[::3])
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        for name, tid in workload.truth["tids"].items():
            def of_thread(row):
                return (row["host_pid"], row["host_tid"], row["cause"]) == (workload.hello["pid"], tid, "lock")
            rows, sums = agent.select(TABLE, lambda r: of_thread(r) and r["duration_ns"] > 0.9e9), agent.select(PROFILE, of_thread)
            assert [r["idle"] for r in rows] == [1], (name, rows)
            assert ns_of(r for r in sums if r["idle"]) >= 0.9e9 and ns_of(r for r in sums if not r["idle"]) < 0.1e9, (name, sums)
    host.check_each(workloads, check)


def test_short_intervals_have_sampled_stacks_and_exact_sums(start_agent, start_on_all):
    """No interval is long enough for a row. The kernel counts how often each thread left the CPU."""
    agent = start_agent("--off_cpu.min_duration_us=3600000000", "--off_cpu.profile_interval=10",
                        trackers=["off_cpu", "gc_pause"])
    workloads = start_on_all("off_cpu_short.py", 3, pythons=PYTHONS[::3])  # all processes share the samples
    for workload in workloads:
        workload.wait_covered(agent)
    for workload in workloads:
        workload.say()
    for workload in workloads:
        workload.truth = workload.read()
    agent.stop()  # which writes the sums: stacks are read of the living
    for workload in workloads:
        workload.finish()
    places = {"idle": ("lock", "serve ("), "locked": ("lock", "contend ("), "asleep": ("sleep", "pause (")}

    def check(workload):
        assert not agent.select(TABLE, lambda r: r["host_pid"] == workload.hello["pid"])
        for name, (tid, switches) in workload.truth["threads"].items():
            sums = agent.select(PROFILE, lambda r: (r["host_pid"], r["host_tid"]) == (workload.hello["pid"], tid))
            # the last switches come after the report, and some virtual machines hide a switch now and then
            assert abs(sum(r["count"] for r in sums) - switches) <= 10, (name, switches, sums)
            cause, place = places[name]
            waits = [r for r in sums if r["cause"] == cause and r["state"] == "S"]
            sampled, right = [r for r in waits if r["py_stack"]], [r for r in waits if known(r)]
            assert ns_of(sampled) >= 0.5 * ns_of(waits) > 1e9, (name, ns_of(sampled), ns_of(waits))
            assert right, (name, sampled)  # some may not be read in time as the agent stops
            assert all(any(frame.startswith(place) for frame in r["py_stack"]) for r in right), right
            assert {r["idle"] for r in right} == {name == "idle"}, right
            assert all(r["min_ns"] * r["count"] <= r["off_ns"] <= r["max_ns"] * r["count"] for r in right), right
    host.check_each(workloads, check)


def test_stacks_of_a_thread_that_switches_often(start_agent, start_on_all):
    """Most of its native stacks are taken only when it resumes, and only for rows and samples: both have them, of the same place."""
    agent = start_agent("--off_cpu.profile_interval=3600", "--off_cpu.min_duration_us=25000", trackers=["off_cpu", "gc_pause"])
    workloads = start_on_all("off_cpu_often.py", 31, pythons=PYTHONS[::3])
    host.run_together(agent, workloads)
    agent.stop()

    def check(workload):
        thread = workload.hello["pid"], workload.truth["tid"]
        rows = agent.select(TABLE, lambda r: (r["host_pid"], r["host_tid"], r["cause"]) == (*thread, "sleep"))
        seen = [r for r in rows if r["kernel_stack"]]  # some virtual machines hide a switch now and then
        assert len(rows) >= 31 and len(seen) >= 25, (len(rows), len(seen))
        for row in seen:
            assert row["user_stack"] and {"nanosleep", "select"} & set(row["user_stack"][0].replace("_", " ").split()), row["user_stack"]
        right = [r for r in seen if known(r)]
        assert len(right) >= 25 and all(r["py_stack"][0].startswith("sleep_long (") for r in right), [r["py_stack"] for r in seen]
        sums = agent.select(PROFILE, lambda r: (r["host_pid"], r["host_tid"]) == thread)
        assert abs(sum(r["count"] for r in sums) - workload.truth["switches"]) <= 10, (workload.truth["switches"], sums)
        sleeps = [r for r in sums if r["cause"] == "sleep"]
        whole = [r for r in sleeps if r["user_stack"] and r["py_stack"]]
        assert ns_of(whole) >= 0.9 * ns_of(sleeps) > 31 * 30e6, (ns_of(whole), ns_of(sleeps))
    host.check_each(workloads, check)


def test_sums_without_python_stacks(debian_python, start_agent, start_workload):
    agent = start_agent("--off_cpu.py_stacks=false", trackers=["off_cpu", "gc_pause"])
    workload = start_workload(debian_python, "off_cpu_short.py", 1).wait_covered(agent)
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    sums = agent.select(PROFILE, lambda r: r["host_pid"] == workload.pid)
    assert sums and not any(r["py_stack"] for r in sums)


def test_a_service_that_ends_long_before_its_sums_are_due(debian_python, start_agent):
    """Its sums have the Python line and the thread's name, though nobody can read them when the interval ends; what is
    handed over early is neither lost nor twice."""
    agent = start_agent("--off_cpu.min_duration_us=3600000000", "--off_cpu.profile_interval=3600", trackers=["off_cpu"])
    started = [subprocess.Popen([debian_python.path, f"{host.WORKLOADS}/short_service.py", "3"], stdout=subprocess.PIPE,
                                text=True) for _ in range(3)]
    said = [list(map(int, service.communicate(timeout=30)[0].split())) for service in started]

    def sums(service):
        return agent.select(PROFILE, lambda r: (r["host_pid"], r["cause"]) == (service.pid, "sleep") and r["py_stack"])
    host.wait_until(lambda: all(sums(service) for service in started), 10, "sums of ended services")
    for service in started:
        rows = sums(service)
        right = [r for r in rows if r["py_stack"][0].startswith("pause_here (") and r["thread_name"] == "pauser"]
        assert ns_of(right) == ns_of(rows) > 1e9, [(r["py_stack"], r["thread_name"], r["off_ns"]) for r in rows]
    agent.stop()
    for service, (tid, switches) in zip(started, said):
        rows = agent.select(PROFILE, lambda r: (r["host_pid"], r["host_tid"]) == (service.pid, tid))
        # the agent finds the process a little after its start, the last switches come after the report
        assert 0.9 * switches - 20 <= sum(r["count"] for r in rows) <= switches + 10, (switches, rows)
