#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The delay until a new process is watched, with all trackers: milliseconds from just before exec until the probes are set
and the kernel side knows the process, the last step (map `processes` of bpf/process.bpf.c, read every tenth of a
millisecond; rows in ebpf_probe_health wait until the process is half a second old). Measured are the first process of a
file, which is read and probed then (each round has a new copy), and a second process of the same file; by the method for
collections, and without symbols by the content of the file. The median of some rounds and the maximum. `make bench` runs
this.

bench_attach.py [ROUNDS]
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import bpf_maps  # noqa: E402
import host  # noqa: E402
from agent import Agent  # noqa: E402

GOAL_MS = 50
PROCESS_PYTHON = 1  # include/events/process.h
WAIT = "import sys; print(1, flush=True); sys.stdin.read()"


def copy(python, folder, stripped):
    """Copied files: the program, the file with the interpreter (the program or the libpython), and the environment."""
    prefix = os.path.dirname(os.path.dirname(python.path))
    program, image = os.path.realpath(python.path), os.path.realpath(python.image)
    for path in {program, image}:
        shutil.copy(path, folder)
    program, image = (os.path.join(folder, os.path.basename(path)) for path in (program, image))
    if stripped:
        subprocess.run(["strip", image], check=True)
        with open(image, "rb+") as f:
            content = f.read().replace(b"python\0gc__", b"pythom\0gc__")
            f.seek(0)
            f.write(content)
    return program, image, {**os.environ, "PYTHONHOME": prefix, "LD_LIBRARY_PATH": folder}


def time_to_probes(agent, known, program, image, env):
    """Of one new process, which continues until the next is measured. A fork of this process, a Python, would be known
    already: a shell calls exec() on request."""
    process = subprocess.Popen(["sh", "-c", 'read go; exec "$@"', "sh", program, "-c", WAIT], env=env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    while known.get(process.pid):
        time.sleep(0.001)
    time.sleep(0.02)
    begin = time.monotonic_ns()
    os.write(process.stdin.fileno(), b"\n")
    while not (known.get(process.pid) or b"\0")[0] & PROCESS_PYTHON:
        if time.monotonic_ns() > begin + 30e9:
            sys.exit(f"{image} is not watched")
        time.sleep(0.0001)
    ms = (time.monotonic_ns() - begin) / 1e6
    process.stdout.readline()
    row = agent.wait_rows("ebpf_probe_health", lambda r: (r["host_pid"], r["binary"], r["tracker"])
                          == (process.pid, image, "gc_pause"), timeout=30)[0]
    if not row["live"]:
        sys.exit(f"{image} is not watched: {row['reason']}")
    return process, ms, row["method"]


def end(process):
    process.stdin.close()
    process.stdout.close()
    process.wait()


def measure(agent, known, python, stripped, rounds):
    first, second = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            files = copy(python, folder, stripped)
            one, ms, method = time_to_probes(agent, known, *files)
            first.append(ms)
            other, ms, _ = time_to_probes(agent, known, *files)
            second.append(ms)
            end(one), end(other)
    return method, first, second


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    agent = Agent().wait_ready()
    known = bpf_maps.Hash(agent.pid, "processes", 8)
    missed = False
    print(f"{'from exec to probes, all trackers':44}{'first process of a file':>28}{'another one':>28}")
    try:
        for python in host.find_pythons():
            for stripped in False, True:
                method, *figures = measure(agent, known, python, stripped, rounds)
                name = f"{python}, {'stripped, ' * stripped}{os.path.getsize(python.image) >> 20} MB, by {method}"
                print(f"  {name:42}" + "".join(f"{statistics.median(ms):13.1f} (most {max(ms):5.1f}) ms" for ms in figures),
                      flush=True)
                missed |= statistics.median(figures[0]) > GOAL_MS
        agent.stop()
    finally:
        agent.kill()
    if missed:
        print(f"  the goal, {GOAL_MS} ms, is missed")


if __name__ == "__main__":
    main()
