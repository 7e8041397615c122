# SPDX-License-Identifier: Apache-2.0
"""Connections that wait in an accept queue, and connections refused by a full queue, are rows, right to the
millisecond and to the packet."""
import json
import os
import socket
import struct
import subprocess
import threading
import time

import pytest

import counts
from host import WORKLOADS, monotonic_ns
from netns import Netns, enter
from servers import Gunicorn, get
from test_tcp_connect import SLACK_NS, check_sums, plain
from test_tcp_loss import again

TABLE = "ebpf_tcp_accept"
ALL = "--tcp_accept.min_duration_us=0"
ADDRESSES = {"ipv4": ("127.0.0.1", socket.AF_INET, "127.0.0.1"), "ipv6": ("::1", socket.AF_INET6, "::1"),
             "v4-mapped": ("::", socket.AF_INET6, "127.0.0.1")}


def listen(kind="ipv4", backlog=128, **kwargs):
    """A listener, and the address for clients."""
    ip, family, client_ip = ADDRESSES[kind]
    listener = socket.create_server((ip, 0), family=family, backlog=backlog, dualstack_ipv6=kind == "v4-mapped", **kwargs)
    return listener, (client_ip, listener.getsockname()[1])


def rows_of(agent, port, kind="accepted"):
    return [r for r in agent.rows[TABLE] if r["local_port"] == port and r["kind"] == kind
            and r["host_pid"] == os.getpid()]


def queue_of(listener):
    """(length, limit) of the accept queue, as the kernel tells the listener's owner: TCP_INFO's unacked and sacked."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    return struct.unpack_from("II", info, 24)


def ss_queue(port):
    text = subprocess.run(["ss", "-ltnH", f"sport = :{port}"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return tuple(map(int, text.split()[1:3]))


@pytest.mark.parametrize("kind", ADDRESSES)
def test_the_wait_is_the_servers_sleep(kind, start_agent):
    agent = start_agent(ALL, trackers=["tcp_accept"])
    listener, address = listen(kind)
    truth = {}
    for milliseconds in [0, 1, 2, 5, 10, 20, 50, 200] * 3:
        before = time.monotonic_ns()
        client = socket.create_connection(address)
        connected = time.monotonic_ns()
        time.sleep(milliseconds / 1000)
        accepting = time.monotonic_ns()
        peer = listener.accept()[0]
        truth[client.getsockname()[1]] = before, connected, accepting, time.monotonic_ns()
        client.close()
        peer.close()
    listener.close()
    agent.stop()
    rows = rows_of(agent, address[1])
    assert sorted(r["remote_port"] for r in rows) == sorted(truth)
    right = 0
    for row in rows:
        before, connected, accepting, accepted = truth[row["remote_port"]]
        start, end = monotonic_ns(row["start_time"]), monotonic_ns(row["end_time"])
        assert before - SLACK_NS <= start <= connected + SLACK_NS
        assert accepting - SLACK_NS <= end <= accepted + SLACK_NS
        right += abs(row["duration_ns"] - (accepting - connected)) < 1_000_000
        assert (row["pid"], row["tid"]) == (os.getpid(), threading.get_native_id())
        assert row["family"] == ("ipv6" if kind == "ipv6" else "ipv4")
        assert plain(row["local_ip"]) == plain(row["remote_ip"]) == ADDRESSES[kind][2]
        assert plain(row["listen_ip"]) == ADDRESSES[kind][0]
        assert (row["tcp_state"], row["queue_len"], row["queue_max"]) == ("ESTABLISHED", 1, 128)
        assert 0 < row["handshake_rtt_us"] <= (connected - before) / 1000 + 1
        assert row["netns"] == os.stat("/proc/self/ns/net").st_ino
    assert right >= len(rows) * 0.9  # the rest was preempted between two stamps


def test_queue_length_is_what_ss_shows(start_agent):
    agent = start_agent(ALL, trackers=["tcp_accept"])
    listener, address = listen(backlog=7)
    clients, truth = [], {}
    for _ in range(8):  # one more than the limit: full only then
        clients.append(socket.create_connection(address))
        truth[clients[-1].getsockname()[1]] = ss_queue(address[1])
        assert truth[clients[-1].getsockname()[1]] == queue_of(listener)
    for _ in clients:
        listener.accept()[0].close()
    listener.close()
    agent.stop()
    rows = rows_of(agent, address[1])
    assert {r["remote_port"]: (r["queue_len"], r["queue_max"]) for r in rows} == truth
    assert [q for q, _ in truth.values()] == list(range(1, 9))


def test_each_listener_of_a_shared_port_has_its_queue(start_agent):
    agent = start_agent(ALL, trackers=["tcp_accept"])
    first, address = listen(reuse_port=True, backlog=100)
    second = socket.socket()
    second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    second.bind(address)
    second.listen(50)
    clients, truth, last = [], {}, [(0, 100), (0, 50)]
    for _ in range(40):
        clients.append(socket.create_connection(address))
        now = [queue_of(first), queue_of(second)]
        truth[clients[-1].getsockname()[1]] = now[0] if now[0] != last[0] else now[1]
        last = now
    assert min(last)[0] > 0
    for listener, (n, _) in zip((first, second), last):
        for _ in range(n):
            listener.accept()[0].close()
        listener.close()
    agent.stop()
    assert {r["remote_port"]: (r["queue_len"], r["queue_max"]) for r in rows_of(agent, address[1])} == truth


def test_the_owner_is_the_accepting_thread(start_agent):
    agent = start_agent(ALL, trackers=["tcp_accept"])
    listener, address = listen()
    truth = {}

    def accept():
        for _ in range(25):
            peer, client = listener.accept()
            truth[client[1]] = threading.get_native_id()
            peer.close()
    threads = [threading.Thread(target=accept, name=f"acceptor-{i}") for i in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        socket.create_connection(address).close()
    for thread in threads:
        thread.join()
    listener.close()
    agent.stop()
    rows = rows_of(agent, address[1])
    assert len(rows) == 100 and len(set(truth.values())) > 1
    assert {r["remote_port"]: r["tid"] for r in rows} == truth


def test_workers_of_gunicorn(start_agent, debian_python, tmp_path, cleanup):
    from conftest import GUNICORNS
    agent = start_agent(ALL, trackers=["tcp_accept"])
    gunicorn = Gunicorn(debian_python, GUNICORNS[0], str(tmp_path))
    cleanup.append(gunicorn)
    ports = [get(gunicorn.address, "/")[1] for _ in range(20)]
    gunicorn.stop()
    agent.stop()
    rows = {r["remote_port"]: r for r in agent.rows[TABLE] if r["local_port"] == gunicorn.address[1]}
    assert set(ports) <= set(rows)
    assert {rows[port]["kind"] for port in ports} == {"accepted"}
    assert {rows[port]["host_pid"] for port in ports} <= set(gunicorn.worker_pids)


def run_overflow(netns, *args):
    return subprocess.Popen([*netns.prefix, "/usr/bin/python3", os.path.join(WORKLOADS, "tcp_overflow.py"), *map(str, args)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})


def finish_overflow(process):
    """The namespace's counters, after the agent has read the same."""
    truth = json.loads(process.stdout.readline())
    time.sleep(1.2)
    process.communicate(timeout=20)
    return truth


def check_drops(agent, netns, ports, truth, pid):
    rows = [r for r in agent.rows[TABLE] if r["netns"] == netns.inode and r["kind"] == "dropped"]
    assert truth["ListenOverflows"] > 10
    assert sum(r["overflows"] for r in rows) == truth["ListenOverflows"]
    assert sum(r["drops"] for r in rows) == truth["ListenDrops"]
    assert {r["local_port"] for r in rows} == set(ports)
    assert {(r["host_pid"], plain(r["listen_ip"]), r["tcp_state"]) for r in rows} == {(pid, "127.0.0.1", "LISTEN")}
    assert all(r["duration_ns"] < 5_000_000_000 for r in rows)


@pytest.mark.parametrize("listeners", [1, 3])
def test_overflows_are_what_nstat_shows(listeners, start_agent, cleanup):
    netns = Netns()
    cleanup.append(netns)
    agent = start_agent(ALL, trackers=["tcp_accept"])
    process = run_overflow(netns, listeners, 20)
    cleanup.append(process)
    ports = json.loads(process.stdout.readline())["ports"]
    truth = finish_overflow(process)
    agent.stop()
    check_drops(agent, netns, ports, truth, process.pid)
    accepted = [r for r in agent.rows[TABLE] if r["netns"] == netns.inode and r["kind"] == "accepted"]
    assert sorted(r["local_port"] for r in accepted) == sorted(ports)
    check_sums(agent, "tcp_accept", 0)


def test_a_listener_that_was_there_before(start_agent, cleanup):
    netns = Netns()
    cleanup.append(netns)
    process = run_overflow(netns, 1, 20, "wait")
    cleanup.append(process)
    ports = json.loads(process.stdout.readline())["ports"]
    agent = start_agent(trackers=["tcp_accept"])
    time.sleep(0.5)  # the agent looks for listeners around the message "ready"
    process.stdin.write("\n")
    process.stdin.flush()
    truth = finish_overflow(process)
    agent.stop()
    check_drops(agent, netns, ports, truth, process.pid)


def test_what_is_never_accepted(start_agent):
    agent = start_agent(trackers=["tcp_accept"])
    listener, address = listen()
    clients = [socket.create_connection(address) for _ in range(5)]
    ports = [c.getsockname()[1] for c in clients]
    time.sleep(0.05)
    listener.close()
    agent.stop()
    rows = rows_of(agent, address[1], "never_accepted")
    assert [r["remote_port"] for r in rows] == ports
    assert [r["queue_len"] for r in rows] == [1, 2, 3, 4, 5]
    assert all(50_000_000 <= r["duration_ns"] < 1_000_000_000 and r["tid"] == threading.get_native_id() for r in rows)
    assert rows_of(agent, address[1]) == []


def test_clients_that_left_meanwhile_are_accepted_all_the_same(start_agent):
    agent = start_agent(ALL, trackers=["tcp_accept"])
    listener, address = listen()
    ports = {}
    for state in "CLOSE_WAIT", "CLOSE":
        client = socket.create_connection(address)
        ports[client.getsockname()[1]] = state
        if state == "CLOSE":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    for _ in ports:
        listener.accept()[0].close()
    listener.close()
    agent.stop()
    assert {r["remote_port"]: r["tcp_state"] for r in rows_of(agent, address[1])} == ports


def test_short_waits_are_left_out_and_counted(start_agent):
    agent = start_agent("--tcp_accept.min_duration_us=20000", trackers=["tcp_accept"])
    listener, address = listen()
    for seconds in (0, 0.03) * 10:
        client = socket.create_connection(address)
        time.sleep(seconds)
        listener.accept()[0].close()
        client.close()
    listener.close()
    agent.stop()
    rows = rows_of(agent, address[1])
    assert 10 <= len(rows) < 20 and all(r["duration_ns"] >= 20_000_000 for r in rows)
    check_sums(agent, "tcp_accept", 20 - len(rows))


def accept_some(kind="ipv4", n=5):
    listener, address = listen(kind)
    for _ in range(n):
        client = socket.create_connection(address)
        listener.accept()[0].close()
        client.close()
    listener.close()
    return address[1]


def test_another_network_namespace(start_agent, cleanup):
    netns = Netns()
    cleanup.append(netns)
    agent = start_agent(ALL, trackers=["tcp_accept"])
    ports = []

    def inside():
        enter(netns)
        ports.append(accept_some("ipv6"))
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    agent.stop()
    assert [r["netns"] for r in rows_of(agent, ports[0])] == [netns.inode] * 5


def test_without_the_calls_own_tracepoints(start_agent):
    agent = start_agent(ALL, "--degrade=sys_exit_accept", trackers=["tcp_accept"])
    port = accept_some()
    agent.stop()
    assert len(rows_of(agent, port)) == 5


def test_only_the_chosen_process(start_agent, cleanup):
    sleeper = subprocess.Popen(["sleep", "30"])
    cleanup.append(sleeper)
    agents = [start_agent(ALL, f"--pid={pid}", trackers=["tcp_accept"]) for pid in (sleeper.pid, os.getpid())]
    port = accept_some()
    for agent in agents:
        agent.stop()
    assert agents[0].rows[TABLE] == []
    assert len(rows_of(agents[1], port)) == 5
    assert {r["host_pid"] for r in agents[1].rows[TABLE]} == {os.getpid()}


@pytest.mark.alone
@again  # further accepts of the host take room, and are lost, too
def test_what_finds_no_room_is_counted(start_agent, cleanup):
    """rows + lost = truth, exactly."""
    netns = Netns()
    cleanup.append(netns)
    agent = start_agent(ALL, "--tcp_accept.max_waiting=11", trackers=["tcp_accept"])
    ports = []

    def inside():
        enter(netns)
        listener, address = listen(backlog=200)
        clients = [socket.create_connection(address) for _ in range(97)]
        for client in clients[:50]:
            listener.accept()[0].close()
            client.close()
        listener.close()  # the remaining connections are never accepted
        ports.append(address[1])
        for client in clients:
            client.close()
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    time.sleep(0.2)
    agent.stop()
    rows = [r for r in agent.rows[TABLE] if r["netns"] == netns.inode]
    found = counts.check(agent)["tcp_accept"]
    assert len(rows) <= 11 and {r["local_port"] for r in rows} == set(ports)
    assert len(rows) + found["lost_state"] == 97
