# SPDX-License-Identifier: Apache-2.0
"""Network interfaces with driver counters that move by exactly the sent packets."""
import ctypes
import os
import socket
import struct
import subprocess

BPF_PROG_LOAD, BPF_LINK_CREATE = 5, 28
BPF_PROG_TYPE_XDP, BPF_XDP = 6, 37
SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]


def bpf(command, attributes):
    fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF, command, attributes, len(attributes))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


class DroppingPair:
    """Two veth ends; packets sent from one end are dropped by an XDP program at the far end, which counts."""

    def __init__(self, name):
        self.names = name + "a", name + "b"
        self._fds = []
        subprocess.run(["ip", "link", "del", self.names[0]], stderr=subprocess.DEVNULL)  # left by a killed run
        subprocess.run(["ip", "link", "add", self.names[0], "type", "veth", "peer", "name", self.names[1]],
                       check=True)
        for end in self.names:
            # no IPv6: router solicitations would be counted too
            path = f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6"
            if os.path.exists(path):
                with open(path, "w") as f:
                    f.write("1")
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
        code = ctypes.create_string_buffer(struct.pack("<QQ", 0x1_0000_00b7, 0x95))  # r0 = XDP_DROP; exit
        licence = ctypes.create_string_buffer(b"GPL")
        program = bpf(BPF_PROG_LOAD, struct.pack("<IIQQ", BPF_PROG_TYPE_XDP, 2, ctypes.addressof(code),
                                                 ctypes.addressof(licence)).ljust(128, b"\0"))
        link = bpf(BPF_LINK_CREATE, struct.pack("<IIII", program, socket.if_nametoindex(self.names[1]), BPF_XDP, 0)
                   .ljust(64, b"\0"))
        self._fds = [program, link]

    def send(self, n):
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
            s.bind((self.names[0], 0))
            for _ in range(n):
                s.send(b"\xff" * 12 + b"\x88\xb5" + bytes(50))

    def kill(self):
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        subprocess.run(["ip", "link", "del", self.names[0]], stderr=subprocess.DEVNULL)
