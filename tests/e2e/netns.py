# SPDX-License-Identifier: Apache-2.0
"""Private network namespaces for tests: counters and addresses without foreign influence."""
import ctypes
import itertools
import os
import subprocess
import threading

CLONE_NEWNET = 0x40000000
_numbers = itertools.count()


class Netns:
    """A named network namespace with loopback up. kill() removes the namespace with all interfaces."""

    def __init__(self):
        self.name = f"us-e2e-{os.getpid()}-{next(_numbers)}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self.path = f"/run/netns/{self.name}"
        self.inode = os.stat(self.path).st_ino
        self.prefix = ("ip", "netns", "exec", self.name)
        self.ip("link set lo up")

    def ip(self, command):
        subprocess.run(["ip", "-n", self.name, *command.split()], check=True)

    def sysctl(self, key, value):
        subprocess.run([*self.prefix, "sysctl", "-q", "-w", f"{key}={value}"], check=True)

    def connect_to(self, other):
        """A cable between the two: 10.99.0.1, fd99::1 here, .2 and ::2 there."""
        subprocess.run(["ip", "link", "add", "us0", "netns", self.name, "type", "veth",
                        "peer", "name", "us0", "netns", other.name], check=True)
        for number, ns in (1, self), (2, other):
            ns.ip(f"addr add 10.99.0.{number}/24 dev us0")
            ns.ip(f"addr add fd99::{number}/64 dev us0 nodad")
            ns.ip("link set us0 up")

    def kill(self):
        subprocess.run(["ip", "netns", "del", self.name], check=True)


def tcp_counters(pid="self"):
    """The TcpExt* counters of nstat, of the network namespace of a process."""
    with open(f"/proc/{pid}/net/netstat") as f:
        names, values = [line.split()[1:] for line in f if line.startswith("TcpExt:")]
    return dict(zip(names, map(int, values)))


def enter(netns):
    """Moves the calling thread, and sockets made from now on, into the namespace."""
    with open(netns.path) as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def in_namespace(netns, function):
    """Runs function() in a thread inside the namespace; returns (native id, result)."""
    result = []

    def run():
        enter(netns)
        result.append((threading.get_native_id(), function()))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert result, f"{function} failed"
    return result[0]
