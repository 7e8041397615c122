# SPDX-License-Identifier: Apache-2.0
"""Each outbound connection is one row with the outcome of connect()."""
import collections
import errno
import ipaddress
import json
import os
import select
import socket
import struct
import subprocess
import threading
import time

import pytest

import counts
from host import WORKLOADS, monotonic_ns
from netns import Netns, in_namespace

TABLE = "ebpf_tcp_connect"
CLOSED = "ebpf_tcp_connect_closed"
OUTCOMES = {0: "success", errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "timeout", errno.ENETUNREACH: "unreachable",
            errno.EHOSTUNREACH: "unreachable", errno.EACCES: "denied", errno.EADDRNOTAVAIL: "no_port"}
SLACK_NS = 50_000  # between two clocks' readings


def plain(ip):
    """'127.0.0.1' for '::ffff:127.0.0.1'."""
    address = ipaddress.ip_address(ip)
    return str(getattr(address, "ipv4_mapped", None) or address)


@pytest.fixture
def two_namespaces(cleanup):
    """A namespace with a neighbour that drops packets, and with refusing routes; the neighbour is also a
    router without routes."""
    here, there = Netns(), Netns()
    cleanup.extend([there, here])
    here.connect_to(there)
    for family, net, hole, nowhere, link in (
            ("-4", "10.98.0.0/16", "10.99.0.9", ("203.0.113.0/24", "192.0.2.0/24"), "10.99.0.2"),
            ("-6", "fd98::/64", "fd99::9", ("2001:db8:2::/64", "2001:db8:3::/64"), "fd99::2")):
        here.ip(f"neigh add {hole} lladdr 02:00:00:00:00:09 dev us0")
        here.ip(f"{family} route add unreachable {nowhere[0]}")
        here.ip(f"{family} route add prohibit {nowhere[1]}")
        here.ip(f"{family} route add {net} via {link}")
    here.sysctl("net.ipv4.tcp_syn_retries", 1)
    there.sysctl("net.ipv4.ip_forward", 1)
    there.sysctl("net.ipv6.conf.all.forwarding", 1)
    for ip in "ipv4.icmp_ratelimit", "ipv6.icmp.ratelimit":
        there.sysctl("net." + ip, 0)
    return here, there


def run_connects(netns, n, n_slow):
    process = subprocess.Popen([*netns.prefix, "/usr/bin/python3", os.path.join(WORKLOADS, "tcp_connects.py"), str(n),
                                str(n_slow)], stdout=subprocess.PIPE)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0
    return process.pid, json.loads(output)


def key_of_row(row):
    """A local port is known once chosen by the kernel; without a port, several rows may be alike."""
    return row["tid"], plain(row["remote_ip"]), row["remote_port"], row["local_port"]


def test_997_connects_are_997_rows(start_agent, two_namespaces):
    here, _ = two_namespaces
    agent = start_agent(trackers=["tcp_connect"])
    pid, truth = run_connects(here, 997, 120)
    agent.wait_rows(TABLE, lambda r: r["host_pid"] == pid, n=997)
    agent.stop()
    rows = [r for r in agent.rows[TABLE] if r["host_pid"] == pid]
    assert len(truth) == len(rows) == 997
    errors = collections.Counter((t["kind"], t["errno"]) for t in truth)
    assert {kind for kind, _ in errors} == {"listening", "refusing", "black_hole", "no_route", "unreachable",
                                            "prohibited", "router"}, errors
    # as multisets: every value known to connect() is in the row
    expected = collections.Counter((t["tid"], t["family"], t["ip"], t["port"], t["errno"], OUTCOMES[t["errno"]])
                                   for t in truth)
    seen = collections.Counter((r["tid"], r["family"], plain(r["remote_ip"]), r["remote_port"], r["errno"],
                                r["outcome"]) for r in rows)
    assert seen == expected
    assert {r["netns"] for r in rows} == {here.inode}
    assert {r["pid"] for r in rows} == {pid}
    check_ports_and_times(truth, rows)
    timed_out = [r for r in rows if r["outcome"] == "timeout"]
    assert timed_out and all(r["total_retrans"] >= 1 for r in timed_out)
    assert all(r["srtt_us"] > 0 and r["tcp_state"] == "ESTABLISHED" for r in rows if r["outcome"] == "success")
    assert all(r["tcp_state"] == "CLOSE" for r in rows if r["outcome"] != "success")


def check_ports_and_times(truth, rows):
    """connect() gives the port back after an immediate failure; otherwise the caller can read the port, and
    a row has the same port."""
    by_port = collections.defaultdict(list)
    for row in rows:
        by_port[key_of_row(row)].append(row)
    compared = 0
    for t in truth:
        found = by_port.get((t["tid"], t["ip"], t["port"], t["local_port"]), [])
        if t["kind"] in ("listening", "black_hole") and t["errno"] == 0 or not t["blocking"] and t["kind"] == "black_hole":
            assert found, t
        if t["local_port"] and len(found) == 1:
            compared += 1
            start, end = (monotonic_ns(found[0][name]) for name in ("start_time", "end_time"))
            assert t["start"] - SLACK_NS <= start <= end <= t["end"] + SLACK_NS, (t, found)
    assert compared > 200
    assert all(r["local_port"] for r in rows if r["outcome"] in ("success", "refused", "timeout"))


def test_closing_before_the_answer_is_aborted(start_agent, two_namespaces):
    here, _ = two_namespaces

    def connect_and_close():
        for _ in range(10):
            with socket.socket() as s:
                s.setblocking(False)
                assert s.connect_ex(("10.99.0.9", 81)) == errno.EINPROGRESS
                time.sleep(0.02)
    agent = start_agent(trackers=["tcp_connect"])
    tid, _ = in_namespace(here, connect_and_close)
    agent.stop()
    rows = [r for r in agent.rows[TABLE] if r["host_tid"] == tid]
    assert [(r["outcome"], r["errno"], r["remote_port"]) for r in rows] == [("aborted", 0, 81)] * 10
    assert all(20_000_000 <= r["duration_ns"] < 500_000_000 for r in rows)


def test_no_port_left(start_agent, cleanup):
    netns = Netns()
    cleanup.append(netns)
    netns.sysctl("net.ipv4.ip_local_port_range", "50000 50003")

    def connect_until_none_is_left():
        server = socket.create_server(("127.0.0.1", 4000))
        kept, errors = [server], []
        for _ in range(7):
            s = socket.socket()
            kept.append(s)
            errors.append(s.connect_ex(("127.0.0.1", 4000)))
        return errors
    agent = start_agent(trackers=["tcp_connect"])
    tid, errors = in_namespace(netns, connect_until_none_is_left)
    agent.stop()
    assert set(errors) == {0, errno.EADDRNOTAVAIL}
    rows = [r for r in agent.rows[TABLE] if r["host_tid"] == tid]
    assert [(r["outcome"], r["errno"]) for r in rows] == [(OUTCOMES[e], e) for e in errors]
    assert {(plain(r["remote_ip"]), r["remote_port"]) for r in rows} == {("127.0.0.1", 4000)}


def test_asking_again_is_no_second_attempt(start_agent):
    """Asynchronous programs call connect() once more to hear the outcome."""
    agent = start_agent(trackers=["tcp_connect"])
    tid = threading.get_native_id()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as good, socket.socket() as bad, \
            socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        for s, address in (good, server.getsockname()), (bad, refusing.getsockname()):
            s.setblocking(False)
            s.connect_ex(address)
            select.select([], [s], [], 5)
        assert [good.connect_ex(server.getsockname()) for _ in range(2)] == [0, errno.EISCONN]
        assert bad.connect_ex(refusing.getsockname()) == errno.ECONNREFUSED
        # and a true second attempt on the same socket, blocking
        bad.setblocking(True)
        assert bad.connect_ex(refusing.getsockname()) in (errno.ECONNREFUSED, errno.ECONNABORTED)
        assert bad.connect_ex(server.getsockname()) in (0, errno.ECONNABORTED)
        ports = server.getsockname()[1], refusing.getsockname()[1]
    agent.stop()
    rows = [(r["remote_port"], r["outcome"]) for r in agent.rows[TABLE] if r["host_tid"] == tid
            and r["remote_port"] in ports]
    assert rows[:2] == [(ports[0], "success"), (ports[1], "refused")]
    assert rows.count((ports[1], "refused")) <= 2 and len(rows) <= 4


def exchange(server, sent, received, end):
    """One connection: `sent` bytes there, `received` back, closed by the side `end`. Returns port and lifetime."""
    client = socket.create_connection(server.getsockname())
    begin = time.monotonic_ns()
    port = client.getsockname()[1]
    peer = server.accept()[0]
    client.sendall(b"x" * sent)
    left = sent
    while left:
        left -= len(peer.recv(65536))
    peer.sendall(b"y" * received)
    left = received
    while left:
        left -= len(client.recv(65536))
    time.sleep(0.05)
    if end == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        time.sleep(0.02)
        client.close()
    elif end == "remote":
        peer.close()
        assert client.recv(1) == b""
        client.close()
    else:
        client.close()
        assert peer.recv(1) == b""
        peer.close()
    return port, time.monotonic_ns() - begin


@pytest.mark.parametrize("end", ["local", "remote", "reset"])
def test_life_and_bytes_of_a_connection(end, start_agent):
    agent = start_agent(trackers=["tcp_connect"])
    sizes = [(0, 0), (1, 0), (0, 1), (1000, 2000), (300_000, 500_000)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        truth = [(*exchange(server, sent, received, end), sent, received) for sent, received in sizes]
    agent.stop()
    rows = {r["local_port"]: r for r in agent.rows[CLOSED] if r["host_pid"] == os.getpid()}
    for port, life_ns, sent, received in truth:
        row = rows[port]
        assert (row["bytes_sent"], row["bytes_received"], row["closed_by"]) == (sent, received, end), row
        assert 50_000_000 <= row["duration_ns"] <= life_ns + 10_000_000
        assert row["tid"] == threading.get_native_id()
    assert len([r for r in agent.rows[TABLE] if r["local_port"] in rows and r["host_pid"] == os.getpid()]) == len(sizes)


def test_only_the_chosen_process(start_agent):
    code = ("import socket,sys; s=socket.create_server(('127.0.0.1',0)); print('up',flush=True); sys.stdin.readline();"
            "[socket.create_connection(s.getsockname()) for _ in range(5)]")
    processes = [subprocess.Popen(["/usr/bin/python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                 for _ in range(2)]
    for process in processes:
        process.stdout.readline()
    agent = start_agent(f"--pid={processes[0].pid}", trackers=["tcp_connect"])
    for process in processes:
        process.communicate(b"\n", timeout=20)
    agent.stop()
    assert [r["host_pid"] for r in agent.rows[TABLE]] == [processes[0].pid] * 5


def test_thresholds_leave_failures_in_and_add_up(start_agent):
    agent = start_agent("--tcp_connect.min_duration_us=10000000", "--tcp_connect.closed=false", trackers=["tcp_connect"])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        for _ in range(20):
            socket.create_connection(server.getsockname()).close()
        with socket.socket() as s:
            s.connect_ex(refusing.getsockname())
    agent.stop()
    assert [r["outcome"] for r in agent.rows[TABLE] if r["host_pid"] == os.getpid()] == ["refused"]
    assert agent.rows[CLOSED] == []
    check_sums(agent, "tcp_connect", 20)


def check_sums(agent, tracker, filtered_at_least):
    totals = collections.Counter()
    for row in agent.rows["ebpf_agent"]:
        if row["tracker"] == tracker:
            totals.update({name: row[name] for name in ("seen", "filtered", "lost_ring", "lost_state", "rows")})
    assert totals["filtered"] >= filtered_at_least
    assert totals["seen"] == sum(totals[n] for n in ("filtered", "lost_ring", "lost_state", "rows")), totals


def test_without_the_calls_own_tracepoint(start_agent, two_namespaces):
    here, _ = two_namespaces
    agent = start_agent("--degrade=sys_exit_connect", trackers=["tcp_connect"])
    tid, error = in_namespace(here, lambda: socket.socket().connect_ex(("198.51.100.1", 80)))
    agent.stop()
    assert error == errno.ENETUNREACH
    assert [(r["outcome"], r["errno"]) for r in agent.rows[TABLE] if r["host_tid"] == tid] == [("unreachable", error)]


def test_what_finds_no_room_is_counted(start_agent, two_namespaces):
    """rows + lost = truth, exactly: an outcome for each connect(), an end for each connection."""
    here, _ = two_namespaces

    def connect_many():
        with socket.create_server(("127.0.0.1", 0), backlog=128) as server, socket.socket() as refusing:
            refusing.bind(("127.0.0.1", 0))
            kept, errors = [], []
            for i in range(101):
                address = server.getsockname() if i % 3 else refusing.getsockname()
                if i % 10 == 0:
                    address = "198.51.100.1", 80  # no route: fails at once
                s = socket.socket()
                errors.append(s.connect_ex(address))
                kept.append(s)
            for s in kept:
                s.close()
        return errors
    agent = start_agent("--tcp_connect.max_connections=13", f"--pid={os.getpid()}", trackers=["tcp_connect"])
    tid, errors = in_namespace(here, connect_many)
    time.sleep(0.2)
    agent.stop()
    found = counts.check(agent)["tcp_connect"]
    rows = [r for r in agent.rows[TABLE] if r["netns"] == here.inode]
    ends = [r for r in agent.rows[CLOSED] if r["netns"] == here.inode]
    immediate = errors.count(errno.ENETUNREACH)
    assert immediate == 11 and errors.count(0) > 50 and errors.count(errno.ECONNREFUSED) > 20
    assert len([r for r in rows if r["outcome"] == "unreachable"]) == immediate
    assert len(ends) <= 13 < found["lost_state"]
    assert len(rows) + len(ends) + found["lost_state"] == len(errors) + errors.count(0), (len(rows), len(ends))
