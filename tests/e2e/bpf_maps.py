# SPDX-License-Identifier: Apache-2.0
"""Reads the BPF maps of one agent, and of no other that runs on this host."""
import json
import os
import shutil
import subprocess

BPFTOOL = shutil.which("bpftool", path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def _map_id(pid, name):
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}") as f:
                fields = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        except FileNotFoundError:
            continue  # closed meanwhile
        if "map_id" in fields:
            info = json.loads(subprocess.check_output([BPFTOOL, "-j", "map", "show", "id", fields["map_id"]]))
            if info["name"] == name[:15]:
                return fields["map_id"]
    raise AssertionError(f"process {pid} has no map {name}")


def _dump(pid, name):
    entries = json.loads(subprocess.check_output([BPFTOOL, "-j", "map", "dump", "id", _map_id(pid, name)]))
    return [entry["formatted"] for entry in entries]


def per_cpu_sums(pid, name):
    """The fields of the one entry of a per-CPU array, each summed over the CPUs."""
    values = [cpu["value"] for cpu in _dump(pid, name)[0]["values"]]
    return {key: sum(value[key] for value in values) for key in values[0]}


def places(pid, name):
    """The entries of an array."""
    return [entry["value"] for entry in _dump(pid, name)]
