# SPDX-License-Identifier: Apache-2.0
"""Unusual kinds of connections: rows are right or absent, and omissions are counted."""
import ctypes
import errno
import mmap
import os
import socket
import struct
import subprocess
import time

import pytest

import counts
from netns import in_namespace, tcp_counters
from test_tcp_accept import ALL, TABLE as ACCEPT
from test_tcp_connect import CLOSED, TABLE as CONNECT

IPPROTO_MPTCP = 262
PYTHON = "/usr/bin/python3"
QUEUED_SECONDS = 0.02


def rows_of(agent, table, netns, **wanted):
    """In the order of time: a row that waits for a thread's name comes after later ones."""
    return sorted((r for r in agent.rows[table] if r["netns"] == netns.inode and all(r[k] == v for k, v in wanted.items())),
                  key=lambda r: (r["start_time"], r["end_time"]))


@pytest.mark.parametrize("client_protocol", [IPPROTO_MPTCP, socket.IPPROTO_TCP])
def test_mptcp(start_agent, netns, client_protocol):
    """The connection is TCP below; a client without MPTCP is served all the same."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP).close()
    except OSError as e:
        pytest.skip(f"this kernel has no MPTCP: {e}")
    agent = start_agent(ALL, trackers=["tcp_accept", "tcp_connect"])

    def run():
        truth = []
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        for _ in range(7):
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, client_protocol)
            client.connect(listener.getsockname())
            time.sleep(0.02)
            peer = listener.accept()[0]
            client.sendall(b"x" * 1000)
            assert len(peer.recv(1000)) == 1000
            truth.append(client.getsockname()[1])
            client.close()
            peer.close()
        port = listener.getsockname()[1]
        left = socket.socket(socket.AF_INET, socket.SOCK_STREAM, client_protocol)
        left.connect(("127.0.0.1", port))
        time.sleep(0.02)
        listener.close()
        refused = socket.socket(socket.AF_INET, socket.SOCK_STREAM, client_protocol).connect_ex(("127.0.0.1", port))
        nowhere = socket.socket(socket.AF_INET, socket.SOCK_STREAM, client_protocol).connect_ex(("198.51.100.1", 80))
        return truth, left.getsockname()[1], refused, nowhere
    tid, (ports, left, refused, nowhere) = in_namespace(netns, run)
    time.sleep(0.3)
    agent.stop()
    accepted = rows_of(agent, ACCEPT, netns, kind="accepted")
    assert [r["remote_port"] for r in accepted] == ports
    assert {r["host_tid"] for r in accepted} == {tid}
    assert all(15_000_000 < r["duration_ns"] < 500_000_000 for r in accepted)
    assert [r["remote_port"] for r in rows_of(agent, ACCEPT, netns, kind="never_accepted")] == [left]
    connected = rows_of(agent, CONNECT, netns)
    assert [(r["local_port"], r["outcome"]) for r in connected[:8]] == [(p, "success") for p in ports + [left]]
    assert [r["errno"] for r in connected[8:]] == [refused, nowhere] == [errno.ECONNREFUSED, errno.ENETUNREACH]
    assert {r["host_tid"] for r in connected} == {tid}
    counts.check(agent)


def test_fast_open(start_agent, netns):
    """The first data come with the SYN; the server may accept before the handshake is complete."""
    netns.sysctl("net.ipv4.tcp_fastopen", 1 | 2 | 0x200 | 0x400)
    agent = start_agent(ALL, trackers=["tcp_accept", "tcp_connect"])

    def run():
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        truth = []
        for _ in range(11):
            client = socket.socket()
            client.sendto(b"x" * 100, socket.MSG_FASTOPEN, listener.getsockname())
            time.sleep(0.02)
            peer = listener.accept()[0]
            assert len(peer.recv(1000)) == 100
            truth.append(client.getsockname()[1])
            client.close()
            peer.close()
        port = listener.getsockname()[1]
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.socket().sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))
        return truth
    tid, ports = in_namespace(netns, run)
    time.sleep(0.3)
    agent.stop()
    accepted = rows_of(agent, ACCEPT, netns)
    assert [(r["remote_port"], r["kind"], r["queue_len"], r["queue_max"]) for r in accepted] == \
        [(p, "accepted", 1, 128) for p in ports]
    assert all(15_000_000 < r["duration_ns"] < 500_000_000 and r["host_tid"] == tid for r in accepted)
    connected = rows_of(agent, CONNECT, netns)
    assert [(r["local_port"], r["outcome"]) for r in connected[:11]] == [(p, "success") for p in ports]
    assert [(r["outcome"], r["errno"]) for r in connected[11:]] == [("refused", errno.ECONNREFUSED)]
    assert {r["bytes_sent"] for r in rows_of(agent, CLOSED, netns)} == {100}
    counts.check(agent)


class Uring:
    """The minimum of io_uring for one request at a time."""
    SETUP, ENTER, GETEVENTS = 425, 426, 1
    ACCEPT, CONNECT = 13, 16

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        parameters = ctypes.create_string_buffer(120)
        self.fd = self.libc.syscall(self.SETUP, 4, parameters)
        if self.fd < 0:
            pytest.skip(f"this kernel has no io_uring for us: {os.strerror(ctypes.get_errno())}")
        numbers = struct.unpack("30I", parameters.raw)
        self.sq, self.cq = numbers[10:20], numbers[20:30]  # head, tail, mask, ...; array is sq's 7th, cqes cq's 6th
        self.ring = mmap.mmap(self.fd, 4096)
        self.entries = mmap.mmap(self.fd, 4096, offset=0x10000000)

    def _word(self, offset):
        return struct.unpack_from("I", self.ring, offset)[0]

    def do(self, opcode, fd, addr2=0, addr=0):
        """The result, in the form of the system call's."""
        tail = self._word(self.sq[1])
        struct.pack_into("BBHiQQIIQ", self.entries, 0, opcode, 0, 0, fd, addr2, addr, 0, 0, 1)
        struct.pack_into("I", self.ring, self.sq[6] + 4 * (tail & self._word(self.sq[2])), 0)
        struct.pack_into("I", self.ring, self.sq[1], tail + 1)
        assert self.libc.syscall(self.ENTER, self.fd, 1, 1, self.GETEVENTS, None, 0) == 1
        head = self._word(self.cq[0])
        result = struct.unpack_from("Qi", self.ring, self.cq[5] + 16 * (head & self._word(self.cq[2])))[1]
        struct.pack_into("I", self.ring, self.cq[0], head + 1)
        return result


def test_io_uring(start_agent, netns):
    """Connects and accepts by io_uring have rows."""
    agent = start_agent(ALL, trackers=["tcp_accept", "tcp_connect"])

    def connect(uring, port):
        s = socket.socket()
        address = ctypes.create_string_buffer(struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), bytes([127, 0, 0, 1])))
        return s, uring.do(uring.CONNECT, s.fileno(), 16, ctypes.addressof(address))

    def run():
        uring, ports = Uring(), []
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        for i in range(13):
            client, result = connect(uring, port)
            assert result == 0
            ports.append(client.getsockname()[1])
            time.sleep(QUEUED_SECONDS)
            fd = uring.do(uring.ACCEPT, listener.fileno())
            assert fd > 0
            peer = socket.socket(fileno=fd)
            for s in (client, peer) if i % 2 else (peer, client):
                s.close()
        listener.close()
        assert connect(uring, port)[1] == -errno.ECONNREFUSED
        return ports
    tid, ports = in_namespace(netns, run)
    time.sleep(0.3)
    agent.stop()
    accepted = rows_of(agent, ACCEPT, netns)
    assert [(r["kind"], r["remote_port"]) for r in accepted] == [("accepted", p) for p in ports]
    assert {(r["host_pid"], r["host_tid"]) for r in accepted} == {(os.getpid(), tid)}
    assert all(r["duration_ns"] >= QUEUED_SECONDS * 1e9 for r in accepted)
    connected = rows_of(agent, CONNECT, netns)
    assert [(r["local_port"], r["outcome"]) for r in connected[:13]] == [(p, "success") for p in ports]
    assert [r["errno"] for r in connected[13:]] == [errno.ECONNREFUSED]
    assert {r["host_pid"] for r in connected} == {os.getpid()}
    counts.check(agent)


# accepts a number of connections of descriptor 3, or of a received descriptor, and prints the pid
ACCEPTOR = """if True:
    import os, socket, sys
    if sys.argv[2:] == ["sent"]:
        listener = socket.socket(fileno=socket.recv_fds(socket.socket(fileno=3), 1, 1)[1][0])
    else:
        listener = socket.socket(fileno=3)
    for _ in range(int(sys.argv[1])):
        peer = listener.accept()[0]
        peer.sendall(b"%d" % os.getpid())
        peer.close()
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["activation", "sent", "forked"])
def test_a_listener_of_another_process(start_agent, netns, cleanup, how):
    """A listener made by systemd, received through a unix socket, or shared by children: the accepting process
    is the owner, also of later drops, and also after the exit of the maker."""
    agent = start_agent(ALL, trackers=["tcp_accept"])
    n_children = 3 if how == "forked" else 1

    def run():
        maker_end, child_end = socket.socketpair()
        listener = socket.create_server(("127.0.0.1", 0), backlog=2)
        children = []
        for _ in range(n_children):
            inherited = child_end if how == "sent" else listener
            children.append(subprocess.Popen([PYTHON, "-c", ACCEPTOR, str(5), *(["sent"] if how == "sent" else [])],
                                             stdin=subprocess.PIPE, pass_fds=[3],
                                             preexec_fn=lambda: os.dup2(inherited.fileno(), 3)))
            cleanup.append(children[-1])
        if how == "sent":
            socket.send_fds(maker_end, [b"x"], [listener.fileno()])
        address, truth = listener.getsockname(), {}
        listener.close()
        for _ in range(5 * n_children):
            client = socket.create_connection(address)
            truth[client.getsockname()[1]] = int(client.recv(100))
            client.close()
        time.sleep(1.2)
        before = tcp_counters("thread-self")
        clients = [socket.socket() for _ in range(12)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(address)
        time.sleep(2.2)
        after = tcp_counters("thread-self")
        for child in children:
            child.communicate(b"\n")
        return truth, after["ListenOverflows"] - before["ListenOverflows"]
    tid, (truth, overflows) = in_namespace(netns, run)
    agent.stop()
    accepted = rows_of(agent, ACCEPT, netns, kind="accepted")
    assert {r["remote_port"]: r["host_pid"] for r in accepted} == truth
    assert len(set(truth.values())) == n_children
    dropped = rows_of(agent, ACCEPT, netns, kind="dropped")
    assert sum(r["overflows"] for r in dropped) >= overflows > 5
    assert {r["host_pid"] for r in dropped} <= set(truth.values())
