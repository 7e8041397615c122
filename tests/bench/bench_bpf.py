#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of an operation in BPF, by program: the kernel's statistics of programs before and after a number of operations, less
the cost of the statistics per run, shown by an empty program. Unlike a rate, the result hardly depends on further work of the
machine. Bystanders (redis, nginx) have no Python; the rest is measured. `make bench` runs this.

bench_bpf.py [--workloads=WORD,...] [--trackers=A,B] [--degrade=FEATURE,...] [--short]
"""

import argparse
import ctypes
import os
import struct
import time

from bench import Agent
from bench_switches import programs_of, set_statistics
from workloads import workloads

ROUNDS, WARM_UP = 3, 1.5  # a service has run for a while; the agent has found the service
NR_BPF, PROG_LOAD, RAW_TRACEPOINT_OPEN, OBJ_GET_INFO_BY_FD = 321 if os.uname().machine == "x86_64" else 280, 5, 17, 15
PROG_TYPE_RAW_TRACEPOINT, RUN_TIME_OFFSET = 17, 192  # of struct bpf_prog_info: run_time_ns, run_cnt


# ---- the price of the statistics ----

def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    ret = ctypes.CDLL(None, use_errno=True).syscall(NR_BPF, command, buffer, 128)
    if ret < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command})")
    return ret


def empty_run_ns():
    """The statistics of an empty program, run at the end of system calls, many times."""
    code = ctypes.create_string_buffer(bytes.fromhex("b700000000000000" "9500000000000000"), 16)
    licence, name = ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(b"sys_exit")
    program = bpf(PROG_LOAD, struct.pack("<IIQQ", PROG_TYPE_RAW_TRACEPOINT, 2, ctypes.addressof(code), ctypes.addressof(licence)))
    link = bpf(RAW_TRACEPOINT_OPEN, struct.pack("<QI", ctypes.addressof(name), program))
    try:
        for _ in range(200_000):
            os.getppid()
        info = ctypes.create_string_buffer(256)
        bpf(OBJ_GET_INFO_BY_FD, struct.pack("<IIQ", program, len(info), ctypes.addressof(info)))
        ns, runs = struct.unpack_from("<QQ", info, RUN_TIME_OFFSET)
        return ns / runs
    finally:
        os.close(link)
        os.close(program)


# ---- the table ----

def measure(agent, run, empty, rounds=ROUNDS, warm_up=True):
    """Of each program: runs per operation and ns per operation, less the cost of the statistics; the least of some
    rounds, as further work of the machine can only add."""
    if warm_up:
        run()
    found = {}
    for _ in range(rounds):
        before = programs_of(agent.process.pid)
        n = run()
        after = programs_of(agent.process.pid)
        for name, (ns, runs) in after.items():
            ns_before, runs_before = before.get(name, (0, 0))
            runs -= runs_before
            if runs:
                ns = (ns - ns_before) / runs - empty
                least = min(ns, found[name][1]) if name in found else ns
                found[name] = (runs / n, least)
    return {name: (runs, runs * ns) for name, (runs, ns) in found.items()}


def print_table(title, found, budget, programs):
    found = {name: figures for name, figures in found.items() if name.startswith(programs)}
    total = sum(ns for _, ns in found.values())
    print(f"\n{title:50} {'runs/op':>9} {'ns/run':>9} {'ns/op':>9}")
    for name, (runs, ns) in sorted(found.items(), key=lambda item: -item[1][1]):
        if runs >= 0.01 or ns >= 1:
            print(f"  {name:48} {runs:9.2f} {ns / runs:9.0f} {ns:9.0f}")
    print(f"  {'all':48} {sum(runs for runs, _ in found.values()):9.2f} {'':9} {total:9.0f}{f'   budget {budget:,}' if budget is not None else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="")
    parser.add_argument("--trackers")
    parser.add_argument("--degrade")
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    every = workloads(args.short)
    wanted = [w for w in args.workloads.split(",") if w] or list(every)
    options = [f"--{key}={value}" for key in ("trackers", "degrade") if (value := getattr(args, key))]
    before = set_statistics("1")
    try:
        empty = empty_run_ns()
        print(f"BPF time by operation, less {empty:.0f} ns a run that the statistics take")
        for word in wanted:
            workload = every[word]
            if lacking := workload.lacks():
                print(f"\n{workload.title}: not measured, there is no {lacking} here")
                continue
            with workload.start as run, Agent(*options) as agent:
                time.sleep(WARM_UP)
                print_table(workload.title, measure(agent, run, empty), workload.budget, workload.programs)
    finally:
        set_statistics(before)


if __name__ == "__main__":
    main()
