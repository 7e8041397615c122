# SPDX-License-Identifier: Apache-2.0
"""As many context switches as the machine can make: each is counted, no tracker is disturbed, nothing grows.
UNDERSPAN_STORM=N (`make storm`) makes N switches."""
import os
import subprocess

import pytest

import counts
import host
import test_gc_pause
from agent import ROOT, SANITIZER
from conftest import GUNICORNS, PYTHONS
from servers import Gunicorn, get_at_once

pytestmark = pytest.mark.alone
SWITCHES = int(os.environ.get("UNDERSPAN_STORM", 600_000))
CONNECTIONS = COLLECTIONS = 499
CPUS = len(os.sched_getaffinity(0))
ROWS, PROFILE = "ebpf_off_cpu", "ebpf_off_cpu_profile"
ALL_OF_THEM = ["--governor.cpu_percent=0", "--governor.tracker_cpu_percent=0"]


def start_storm(start_workload, yielders, switches=SWITCHES):
    each = switches // CPUS // (yielders + 1)  # the pair makes about as many as a single yielder
    workload = start_workload(PYTHONS[0], "off_cpu_storm.py", yielders, each)
    workload.hello = workload.read()
    return workload


def switches_of(pid):
    return sum(int(host.status_field(pid, f)[0]) for f in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"))


def wait_asleep(pid):
    seen = []

    def is_asleep():
        with open(f"/proc/{pid}/stat") as f:
            seen.append((f.read().rsplit(")", 1)[1].split()[0], switches_of(pid)))
        return seen[-1][0] == "S" and seen[-2:-1] == seen[-1:]
    host.wait_until(is_asleep, 10, "the program is asleep")
    return seen[-1][1]


def resident_kib(agent):
    return int(host.status_field(agent.pid, "VmRSS")[0])


def map_bytes(agent):
    """The kernel's memory for the agent's maps."""
    total = 0
    for fd in os.listdir(f"/proc/{agent.pid}/fdinfo"):
        with open(f"/proc/{agent.pid}/fdinfo/{fd}") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("memlock:"))
    return total


@pytest.mark.parametrize("yielders,options", [
    (2, ["--off_cpu.min_duration_us=0"]),  # a row of each
    (13, ["--off_cpu.profile_entries=16", "--off_cpu.profile_interval=1"]),
], ids=["rows", "small_maps"])
def test_each_switch_of_a_storm_is_counted(yielders, options, start_workload, start_agent, capsys):
    """seen + counted lost = truth, the kernel's count of the switches of every watched thread."""
    switches = SWITCHES if yielders > 2 else min(SWITCHES, 2_000_000)
    storm = start_storm(start_workload, yielders, switches)
    before = wait_asleep(storm.pid)
    agent = start_agent(f"--pid={storm.pid}", *ALL_OF_THEM, *options, trackers=["off_cpu"], only_count=[ROWS])
    sizes = resident_kib(agent), map_bytes(agent)
    storm.say()
    truth = storm.read()
    after = wait_asleep(storm.pid)
    grown = resident_kib(agent) - sizes[0], map_bytes(agent) - sizes[1]
    agent.wait_quiet(ROWS)
    agent.stop()
    storm.finish()
    # the last sleep of each has not ended; the first sleep of the program had begun before the agent came
    happened = {int(pid): n - 1 for pid, n in truth["children"].items()}
    happened[storm.pid] = after - before - 1
    total = sum(happened.values())
    assert total > 0.8 * switches
    found = counts.check(agent)["off_cpu"]
    assert found["seen"] == total
    rate = total / truth["seconds"]
    with capsys.disabled():
        print(f" {total} switches, {rate:,.0f}/s, {found['rows']} rows, {found['lost_ring']} lost, RSS +{grown[0]} KiB", end=" ")
    if yielders > 2:
        nobody = [r for r in agent.rows[PROFILE] if not r["host_pid"]]
        assert nobody and "off_cpu.profile_entries" in agent.stderr
    else:
        profile = dict.fromkeys(happened, 0)
        for row in agent.rows[PROFILE]:
            profile[row["host_pid"]] += row["count"]
        missing = {pid: n - profile[pid] for pid, n in happened.items() if n != profile[pid]}
        assert sum(missing.values()) == found["lost_state"], missing
    assert sum(r["count"] for r in agent.rows[PROFILE]) + found["lost_state"] == total
    assert grown[1] < 256 * 1024  # entries are allocated on demand: for these few threads, not for all events
    assert SANITIZER or grown[0] < 16 * 1024  # a sanitizer keeps freed memory


def test_a_storm_takes_nothing_from_the_others(tmp_path, start_agent, start_workload, cleanup):
    """All collections and hand-offs arrive while the off_cpu ring buffer overflows."""
    storm = start_storm(start_workload, 2, min(SWITCHES, 2_000_000))
    collector = start_workload(PYTHONS[0], "gc_truth.py", 1, COLLECTIONS, 7)
    gunicorn = Gunicorn(PYTHONS[0], GUNICORNS[0], str(tmp_path))
    cleanup.append(gunicorn)
    workers = host.wait_until(lambda: host.children_of(gunicorn.pid), 10, "there is a worker")
    # not the test: reading of rows would make more rows
    agent = start_agent(*(f"--pid={pid}" for pid in (storm.pid, collector.pid, gunicorn.pid, *workers)),
                        *ALL_OF_THEM, "--off_cpu.min_duration_us=0",
                        trackers=["handoff", "gc_pause", "gil_wait", "off_cpu"], only_count=[ROWS])
    gunicorn.wait_covered(agent)
    collector.wait_covered(agent)
    storm.say()
    collector.say()
    ports = set(get_at_once(gunicorn.address, "/sleep/0.001", CONNECTIONS))
    truth = collector.read()
    storm.read()
    collector.finish()
    storm.finish()
    gunicorn.stop()
    agent.wait_quiet(ROWS)
    agent.stop()
    found = counts.check(agent)
    assert found["off_cpu"]["seen"] > min(SWITCHES, 2_000_000) / 2
    assert not any(found[t][lost] for t in ("handoff", "gc_pause") for lost in ("lost_ring", "lost_state", "bad_event"))
    rows = test_gc_pause.rows_of(agent, collector.hello, truth["begin"], truth["end"])
    assert len(rows) == len(truth["collections"]) >= COLLECTIONS
    assert len([r for r in agent.select("ebpf_handoff", lambda r: r["host_pid"] in gunicorn.worker_pids)
                if r["peer_port"] in ports]) == CONNECTIONS


class YieldStorm:
    """programs/yield_storm.c"""
    STORM_SHARE = 0.8  # of the time

    def __init__(self, seconds):
        self.seconds = seconds
        self.process = subprocess.Popen([os.path.join(ROOT, "build", "tests", "e2e", "yield_storm"), str(seconds)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pids = [int(pid) for pid in self.process.stdout.readline().split()]

    def begin(self):
        self.before = {pid: wait_asleep(pid) for pid in self.pids}

    def switches(self):
        """Waits for the end. Of each child: the last sleep has not ended, the first had begun before."""
        assert self.process.stdout.readline() == "done\n"
        return {pid: wait_asleep(pid) - before - 1 for pid, before in self.before.items()}

    def kill(self):
        self.process.stdin.close()
        self.process.wait()


@pytest.mark.parametrize("options", [[], ["--off_cpu.min_duration_us=0"]], ids=["threshold", "rows"])
def test_a_storm_of_all_that_processors_can_do(options, start_agent, start_workload, cleanup, tmp_path, capsys):
    """Processes that only yield: each interval is counted, and concurrent collections and hand-offs are rows."""
    storm = YieldStorm(2)
    cleanup.append(storm)
    collector = start_workload(PYTHONS[0], "gc_truth.py", 1, COLLECTIONS, 7)
    gunicorn = Gunicorn(PYTHONS[0], GUNICORNS[0], str(tmp_path))
    cleanup.append(gunicorn)
    workers = host.wait_until(lambda: host.children_of(gunicorn.pid), 10, "there is a worker")
    storm.begin()
    agent = start_agent(*(f"--pid={pid}" for pid in (*storm.pids, collector.pid, gunicorn.pid, *workers)), *ALL_OF_THEM,
                        *options, trackers=["handoff", "gc_pause", "off_cpu"], only_count=[ROWS])
    gunicorn.wait_covered(agent)
    collector.wait_covered(agent)
    storm.process.stdin.write("go\n")
    collector.say()
    ports = set(get_at_once(gunicorn.address, "/sleep/0.001", CONNECTIONS))
    happened = storm.switches()
    truth = collector.read()
    collector.finish()
    gunicorn.stop()
    agent.wait_quiet(ROWS)
    agent.stop()
    found = counts.check(agent)
    assert not any(found[t][lost] for t in ("handoff", "gc_pause") for lost in ("lost_ring", "lost_state", "bad_event"))
    assert len(test_gc_pause.rows_of(agent, collector.hello, truth["begin"], truth["end"])) == len(truth["collections"])
    handed = {r["peer_port"] for r in agent.rows["ebpf_handoff"]}
    assert len(ports) == CONNECTIONS and ports <= handed
    profile = dict.fromkeys(happened, 0)
    for row in agent.rows[PROFILE]:
        if row["host_pid"] in profile:
            profile[row["host_pid"]] += row["count"]
    missing = sum(happened.values()) - sum(profile.values())
    with capsys.disabled():
        print(f" {sum(happened.values())} switches, {sum(happened.values()) / storm.seconds / storm.STORM_SHARE:,.0f}/s,"
              f" {found['off_cpu']['rows']} rows, {found['off_cpu']['lost_ring']} lost", end=" ")
    assert sum(happened.values()) > 100_000
    assert 0 <= missing <= found["off_cpu"]["lost_state"], missing
