# SPDX-License-Identifier: Apache-2.0
"""What the agent says about itself adds up, exactly, for every tracker: no event disappears without a count."""
import socket

import counts
from test_ena import OPTIONS as VETH
from test_tcp_loss import Scene
from veth import DroppingPair

TRACKERS = ["handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept", "tcp_connect", "tcp_loss", "ena"]
EVERYTHING = [f"--{stem}.min_duration_us=0" for stem in ("handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept",
                                                         "tcp_connect")]


def test_all_trackers_add_up(debian_python, start_agent, start_workload, cleanup):
    pair = DroppingPair("uso0")
    cleanup.append(pair)
    scene = Scene(lambda *options, trackers: start_agent(*options), cleanup, socket.AF_INET, [*EVERYTHING, *VETH])
    scene.watch()
    agent = scene.agent
    workload = start_workload(debian_python, "everything.py", 2).wait_covered(agent)
    workload.say()
    scene.listen()
    scene.connect()
    scene.wire.drop = (lambda lost: lambda p: p.side == 0 and p.length and not lost and not lost.append(p))([])
    scene.a.do("main", "send", "c", 1000)
    scene.b.do("main", "recv", "c", 1000)
    pair.send(10)
    workload.read()
    workload.finish()
    scene.finish()
    found = counts.check(agent)
    assert set(TRACKERS) <= set(found)
    assert {"off_cpu_profile", "gil_wait_profile", "processes", "agent"} <= set(found)
    for tracker in TRACKERS:
        assert found[tracker]["rows"] > 0, (tracker, found[tracker])
    assert found["processes"]["seen"] > 0


def test_rings_that_overflow_lose_nothing_uncounted(debian_python, start_agent, start_workload):
    """The agent is stopped while programs work: rings run full, and each event that found no room is counted."""
    agent = start_agent(*EVERYTHING, "--off_cpu.profile_interval=1")
    workload = start_workload(debian_python, "everything.py", 3).wait_covered(agent)
    agent.process.send_signal(19)
    workload.say()
    workload.read()
    agent.process.send_signal(18)
    workload.finish()
    agent.stop()
    found = counts.check(agent)
    assert sum(counts_of["lost_ring"] for counts_of in found.values()) > 0, found
    assert "the ring buffer was full" in agent.stderr
