# SPDX-License-Identifier: Apache-2.0
"""The allowance counters, on veth: the XDP counters of veth move by exactly the sent packets, and stand in for
ENA's."""
import os
import socket
import subprocess

import pytest

from agent import run_underspan
from host import wait_until
from netns import Netns
from veth import DroppingPair

OPTIONS = ["--ena.driver=veth", "--ena.counters=pps_allowance_exceeded=rx_queue_0_xdp_drops,"
                                "conntrack_allowance_available=peer_ifindex"]


@pytest.fixture
def make_pair(cleanup):
    def make(name):
        pair = DroppingPair(name)
        cleanup.append(pair)
        return pair
    return make



def of(interface):
    return lambda row: row["interface"] == interface


def test_every_interface_has_its_own_deltas(start_agent, make_pair):
    pairs = make_pair("use0"), make_pair("use1")
    pairs[0].send(5)  # before the start: in the totals, not in the deltas
    agent = start_agent(*OPTIONS, trackers=["ena"])
    for pair in pairs:
        for end in pair.names:
            agent.wait_rows("ebpf_ena", of(end))
    pairs[0].send(1000)
    pairs[1].send(30)
    for pair, total in zip(pairs, (1005, 30)):
        agent.wait_rows("ebpf_ena", lambda r: of(pair.names[1])(r) and r["pps_allowance_exceeded_total"] == total)
    agent.stop()
    for pair, sent, total in zip(pairs, (1000, 30), (1005, 30)):
        rows = agent.select("ebpf_ena", of(pair.names[1]))
        assert rows[0]["pps_allowance_exceeded"] is None and rows[0]["start_time"] == rows[0]["end_time"]
        assert sum(r["pps_allowance_exceeded"] for r in rows[1:]) == sent
        assert rows[-1]["pps_allowance_exceeded_total"] == total
        for before, after in zip(rows, rows[1:]):
            assert after["start_time"] == before["end_time"] < after["end_time"]
        for row in rows:
            assert row["driver"] == "veth" and row["source"] == "ioctl" and row["reset"] == 0
            assert row["bw_in_allowance_exceeded"] is None and row["bw_in_allowance_exceeded_total"] is None
            assert row["conntrack_allowance_available"] == socket.if_nametoindex(pair.names[0])
    reports = agent.select("ebpf_agent", lambda r: r["tracker"] == "ena")
    [report] = [r for r in reports if r["end_time"] == max(x["end_time"] for x in reports)]
    assert sum(r["seen"] for r in reports) == len(agent.rows["ebpf_ena"])
    assert report["lost_ring"] == 0


def test_interfaces_come_and_go(start_agent, make_pair):
    stays = make_pair("use2")
    agent = start_agent(*OPTIONS, trackers=["ena"])
    agent.wait_rows("ebpf_ena", of("use2b"))
    comes = make_pair("use3")
    comes.send(7)
    agent.wait_rows("ebpf_ena", of("use3b"), n=2)
    index = socket.if_nametoindex("use3b")
    comes.kill()
    agent.wait_rows("ebpf_probe_health", lambda r: r["binary"] == "use3b" and not r["live"])
    again = make_pair("use3")
    again.send(3)
    rows = agent.wait_rows("ebpf_ena", lambda r: of("use3b")(r) and r["ifindex"] != index, n=2)
    stays.send(11)
    agent.wait_rows("ebpf_ena", lambda r: of("use2b")(r) and r["pps_allowance_exceeded_total"] == 11)
    agent.stop()
    # the new interface of the old name starts from nothing, and nothing was reset
    assert rows[0]["pps_allowance_exceeded"] is None
    assert not any(r["reset"] for r in agent.rows["ebpf_ena"])
    stayed = agent.select("ebpf_ena", of("use2b"))
    assert sum(r["pps_allowance_exceeded"] or 0 for r in stayed) == 11
    health = agent.select("ebpf_probe_health", lambda r: r["binary"] == "use3b")
    assert [r["live"] for r in health[:3]] == [1, 0, 1]
    assert health[1]["reason"] and all(r["host_pid"] == 0 for r in health)


def test_a_host_without_such_interfaces_says_so(start_agent):
    agent = start_agent("--ena.driver=no_such_driver", trackers=["ena"])
    agent.wait_rows("ebpf_probe_health", lambda r: r["tracker"] == "ena" and "no_such_driver" in r["reason"], n=2)
    agent.stop()
    assert not agent.rows["ebpf_ena"]


def test_a_wrong_counter_choice_is_bad_usage():
    result = run_underspan("run", "--stdout", "--trackers=ena", "--ena.counters=pps=x")
    assert result.returncode == 2 and "ena.counters" in result.stderr


def test_an_interface_that_goes_into_a_namespace_and_comes_back(start_agent, make_pair, cleanup):
    """The host's interfaces are read: the absence is reported, and packets counted during the absence are
    no delta."""
    pair, netns = make_pair("use4"), Netns()
    cleanup.append(netns)
    agent = start_agent(*OPTIONS, trackers=["ena"])
    agent.wait_rows("ebpf_ena", of("use4b"), n=2)
    subprocess.run(["ip", "link", "set", "use4b", "netns", netns.name], check=True)
    agent.wait_rows("ebpf_probe_health", lambda r: r["binary"] == "use4b" and not r["live"])
    netns.ip(f"link set use4b netns {os.getpid()}")
    subprocess.run(["ip", "link", "set", "use4b", "up"], check=True)
    agent.wait_rows("ebpf_probe_health", lambda r: r["binary"] == "use4b" and r["live"], n=2)
    pair.send(9)
    wait_until(lambda: sum(r["pps_allowance_exceeded"] or 0 for r in agent.select("ebpf_ena", of("use4b"))) >= 9, 10,
               "what was sent is in the deltas")
    agent.stop()
    rows = agent.select("ebpf_ena", of("use4b"))
    assert sum(r["pps_allowance_exceeded"] or 0 for r in rows) == 9
    assert [r["pps_allowance_exceeded"] for r in rows].count(None) == 2  # the first reading each time


def test_an_agent_of_its_own_for_a_namespace(start_agent, make_pair, cleanup):
    """For an interface of a container: the host's agent does not enter the namespace."""
    make_pair("use5")
    netns = Netns()
    cleanup.append(netns)
    subprocess.run(["ip", "link", "set", "use5b", "netns", netns.name], check=True)
    agent = start_agent(*OPTIONS, trackers=["ena"], prefix=["nsenter", f"--net=/run/netns/{netns.name}"])
    agent.wait_rows("ebpf_ena", of("use5b"), n=2)
    agent.stop()
    assert not agent.select("ebpf_ena", of("use5"))
