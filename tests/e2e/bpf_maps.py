# SPDX-License-Identifier: Apache-2.0
"""Reads (and for a test's fault writes) the BPF maps and programs of a single agent, among several agents on this host."""
import contextlib
import ctypes
import errno
import json
import os
import platform
import shutil
import struct
import subprocess

BPFTOOL = shutil.which("bpftool", path=os.environ["PATH"] + ":/usr/sbin:/sbin")


BPF_CALL = 280 if platform.machine() == "aarch64" else 321
GET_NEXT_ID = {"prog": 11, "map": 12, "link": 31}


def is_in_kernel(kind, number):
    """Does the kernel have the object: pinned, attached, or held by a process? A system call, where bpftool is a process."""
    attributes = ctypes.create_string_buffer(struct.pack("<III", int(number) - 1, 0, 0), 12)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(BPF_CALL, GET_NEXT_ID[kind], attributes, 12) != 0:
        if ctypes.get_errno() == errno.ENOENT:
            return False  # none has a higher number
        raise OSError(ctypes.get_errno(), f"next {kind}")
    return struct.unpack("<III", attributes.raw)[1] == int(number)


def _map_id(pid, name):
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}") as f:
                fields = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        except FileNotFoundError:
            continue  # closed since the listing
        if "map_id" in fields:
            info = json.loads(subprocess.check_output([BPFTOOL, "-j", "map", "show", "id", fields["map_id"]]))
            if info["name"] == name[:15]:
                return fields["map_id"]
    raise AssertionError(f"process {pid} has no map {name}")


def _dump(pid, name):
    entries = json.loads(subprocess.check_output([BPFTOOL, "-j", "map", "dump", "id", _map_id(pid, name)]))
    return [entry["formatted"] for entry in entries]


def per_cpu_sums(pid, name):
    """The fields of the single entry of a per-CPU array, each summed over the CPUs."""
    values = [cpu["value"] for cpu in _dump(pid, name)[0]["values"]]
    return {key: sum(value[key] for value in values) for key in values[0]}


def occupied(pid, name):
    """How many entries a hash has."""
    return len(json.loads(subprocess.check_output([BPFTOOL, "-j", "map", "dump", "id", _map_id(pid, name)])))


def places(pid, name):
    """The entries of an array."""
    return [entry["value"] for entry in _dump(pid, name)]


def value_size(pid, name):
    return json.loads(subprocess.check_output([BPFTOOL, "-j", "map", "show", "id", _map_id(pid, name)]))["bytes_value"]


class Hash:
    """A map with keys of the type `key` and values of `size`, asked without a program between: thousands of times a second."""
    LOOKUP, UPDATE, NEXT_KEY, FD_BY_ID = 1, 2, 4, 14
    EXIST = 2

    def __init__(self, pid, name, size, key="I"):
        self._libc, self._type = ctypes.CDLL(None, use_errno=True), "<" + key
        key_size = struct.calcsize(self._type)
        self._key, self._value, self._next = (ctypes.create_string_buffer(n) for n in (key_size, size, key_size))
        self._fd = self._bpf(self.FD_BY_ID, struct.pack("<III", int(_map_id(pid, name)), 0, 0))
        assert self._fd >= 0
        self._ask = struct.pack("<IIQQQ", self._fd, 0, ctypes.addressof(self._key), ctypes.addressof(self._value), 0)

    def _bpf(self, command, attributes):
        return self._libc.syscall(BPF_CALL, command, ctypes.c_char_p(attributes), len(attributes))

    def get(self, key):
        """The value's bytes, None where there is none."""
        struct.pack_into(self._type, self._key, 0, key)
        return self._value.raw if self._bpf(self.LOOKUP, self._ask) == 0 else None

    def put(self, key, value):
        """Replaces the value; False where there is none."""
        struct.pack_into(self._type, self._key, 0, key)
        self._value.raw = value
        return self._bpf(self.UPDATE, self._ask[:24] + struct.pack("<Q", self.EXIST)) == 0

    def keys(self):
        found, at = [], 0
        while True:
            if found:
                struct.pack_into(self._type, self._key, 0, found[-1])
                at = ctypes.addressof(self._key)
            if self._bpf(self.NEXT_KEY, struct.pack("<IIQQQ", self._fd, 0, at, ctypes.addressof(self._next), 0)) != 0:
                return found
            found.append(struct.unpack(self._type, self._next.raw)[0])

    def close(self):
        os.close(self._fd)


# ---- programs ----

@contextlib.contextmanager
def run_statistics():
    """Within the block, the kernel measures every run of a program."""
    path = "/proc/sys/kernel/bpf_stats_enabled"
    with open(path) as f:
        before = f.read()
    try:
        with open(path, "w") as f:
            f.write("1")
        yield
    finally:
        with open(path, "w") as f:
            f.write(before)


def run_ns(pid):
    """How long the agent's programs have run, by the kernel's statistics."""
    ids = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/fdinfo/{fd}") as f:
            ids.update(int(line.split()[1]) for line in f if line.startswith("prog_id:"))
    every = json.loads(subprocess.check_output([BPFTOOL, "-j", "prog", "show"]))
    return sum(p.get("run_time_ns", 0) for p in every if p["id"] in ids)
