# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces joined by a wire that drops exactly the chosen packets, and programs inside."""
import collections
import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import threading
import time
import uuid

from host import WORKLOADS

TUNSETIFF = 0x400454ca
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
FIN, SYN, RST, ACK = 1, 2, 4, 16
libc = ctypes.CDLL(None, use_errno=True)

# {family: (address of a, address of b)}
ADDRESSES = {socket.AF_INET: ("10.91.0.1", "10.91.0.2"), socket.AF_INET6: ("fd91::1", "fd91::2")}


class Packet:
    """A TCP packet on the wire."""

    def __init__(self, data, side):
        self.side = side  # 0: sent by a, 1: by b
        self.time = time.monotonic_ns()
        self.is_tcp = False
        if data[0] >> 4 == 4:
            protocol, tcp, end = data[9], (data[0] & 15) * 4, struct.unpack_from(">H", data, 2)[0]
        else:
            protocol, tcp, end = data[6], 40, 40 + struct.unpack_from(">H", data, 4)[0]
        if protocol != 6:
            return
        self.is_tcp = True
        self.source, self.target, self.seq, self.ack, offset, self.flags, self.window = struct.unpack_from(
            ">HHIIBBH", data, tcp)
        self.length = end - tcp - (offset >> 4) * 4  # of the payload


def in_namespace(name, what):
    """Runs what() in a thread inside the network namespace; returns the result."""
    result = []

    def run():
        fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
        try:
            if libc.setns(fd, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            result.append(what())
        finally:
            os.close(fd)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert result, f"{what} failed in {name}"
    return result[0]


def open_tun():
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
    return fd


def ip(*args):
    subprocess.run(["ip", *args], check=True)


class Wire:
    """drop(packet) decides about each TCP packet; sent and dropped packets are recorded."""

    SETTINGS = {"tcp_congestion_control": "reno", "tcp_early_retrans": 3, "tcp_syn_retries": 6,
                "tcp_synack_retries": 5, "tcp_retries2": 15, "tcp_no_metrics_save": 1}

    def __init__(self, **settings):
        self.drop = lambda packet: False
        self.packets, self.dropped = [], []
        self.delay = 0
        self.names = [f"us-{uuid.uuid4().hex[:8]}-{side}" for side in "ab"]
        self._tuns = []
        self._stop = threading.Event()
        for name in self.names:
            ip("netns", "add", name)
        for side, name in enumerate(self.names):
            self._tuns.append(in_namespace(name, open_tun))
            for key, value in {**self.SETTINGS, **settings}.items():
                self.set(side, key, value)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "wire", "mtu", "1500", "up")
            for family, addresses in ADDRESSES.items():
                more = ["nodad"] if family == socket.AF_INET6 else []
                bits = 24 if family == socket.AF_INET else 64
                ip("-n", name, "addr", "add", f"{addresses[side]}/{bits}", "dev", "wire", *more)
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def set(self, side, key, value):
        in_namespace(self.names[side], lambda: subprocess.run(
            ["sysctl", "-qw", f"net.ipv4.{key}={value}"], check=True))

    def inode(self, side):
        return os.stat(f"/run/netns/{self.names[side]}").st_ino

    def _forward(self):
        # the stamps are the truth: no wait for a processor
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(1))
        waiting = collections.deque()  # (due, side, data)
        while not self._stop.is_set():
            timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for fd in select.select(self._tuns, [], [], timeout)[0]:
                side = self._tuns.index(fd)
                data = os.read(fd, 65536)
                packet = Packet(data, side)
                if packet.is_tcp and self.drop(packet):
                    self.dropped.append(packet)
                    continue
                if packet.is_tcp:
                    self.packets.append(packet)
                waiting.append((time.monotonic() + self.delay, side, data))
            while waiting and waiting[0][0] <= time.monotonic():
                _, side, data = waiting.popleft()
                os.write(self._tuns[1 - side], data)

    def counters(self, side):
        """The counters of nstat in the namespace: {"TcpRetransSegs": 1, ...}."""
        def read():
            found = {}
            for name in "snmp", "netstat":
                with open(f"/proc/thread-self/net/{name}") as f:
                    lines = f.read().splitlines()
                for keys, values in zip(lines[::2], lines[1::2]):
                    prefix = keys.split(":")[0]
                    found.update((prefix + k, int(v)) for k, v in zip(keys.split()[1:], values.split()[1:]))
            return found
        return in_namespace(self.names[side], read)

    def kill(self):
        self._stop.set()
        self._thread.join()
        for fd in self._tuns:
            os.close(fd)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name])


class Peer:
    """workloads/tcp_peer.py in one of the wire's namespaces: peer.do(thread, word, ...) executes the word in
    the thread."""

    def __init__(self, python, wire, side):
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", wire.names[side], python, os.path.join(WORKLOADS, "tcp_peer.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self._answers = {}
        self._changed = threading.Condition()
        self._next = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self._changed:
                self._answers[answer["id"]] = answer
                self._changed.notify_all()

    def start(self, thread, word, *args):
        """Starts the word in the thread; answer() of the returned value waits for the end."""
        self._next += 1
        self.process.stdin.write(json.dumps({"id": self._next, "thread": thread, "do": word, "args": args}) + "\n")
        self.process.stdin.flush()
        return self._next

    def answer(self, number, timeout=30):
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._answers, timeout), "the peer is stuck"
            return self._answers.pop(number)

    def do(self, thread, word, *args, timeout=30):
        return self.answer(self.start(thread, word, *args), timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()
