#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of an operation in BPF, by program: the kernel's statistics of programs before and after a number of operations, less
the cost of the statistics per run, shown by an empty program. Unlike a rate, the result hardly depends on further work of the
machine. Bystanders (redis, nginx) have no Python; the rest is measured. `make bench` runs this.

bench_bpf.py [--workloads=WORD,...] [--trackers=A,B] [--degrade=FEATURE,...] [--short]
"""

import argparse
import contextlib
import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from bench import PYTHON, Agent, Gunicorn, free_port
from bench_switches import programs_of, set_statistics

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


# ---- workloads: each yields a function that does operations and returns the number ----

@contextlib.contextmanager
def server(argv, port, cwd=None):
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                break
            if process.poll() is not None:
                sys.exit(f"{argv[0]} does not run")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


def wrk(port, seconds, connections=16):
    out = subprocess.check_output(["wrk", "-t1", f"-c{connections}", f"-d{seconds}", f"http://127.0.0.1:{port}/"], text=True)
    return int(next(line for line in out.splitlines() if "requests in" in line).split()[0])


@contextlib.contextmanager
def redis(n):
    port = free_port()
    argv = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    benchmark = ["redis-benchmark", "-p", str(port), "-c", "20", "-q", "-t"]
    try:
        while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).stdout != b"PONG\n":
            time.sleep(0.05)
        subprocess.run([*benchmark, "set", "-n", "1000"], check=True, stdout=subprocess.DEVNULL)

        def run():
            subprocess.run([*benchmark, "get", "-n", str(n)], check=True, stdout=subprocess.DEVNULL)
            return n
        yield run
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def nginx(seconds):
    port = free_port()
    with tempfile.TemporaryDirectory() as there:
        os.chmod(there, 0o755)
        with open(f"{there}/nginx.conf", "w") as f:
            f.write(f"daemon off; worker_processes 1; pid {there}/pid; error_log /dev/null; events {{}}\n"
                    f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ return 200 ok; }} }} }}\n")
        with server(["nginx", "-c", f"{there}/nginx.conf"], port):
            yield lambda: wrk(port, seconds)


@contextlib.contextmanager
def gunicorn(seconds):
    smallest = Gunicorn("smallest_app")
    try:
        yield lambda: wrk(smallest.port, seconds)
    finally:
        smallest.stop()


@contextlib.contextmanager
def script(argv, source):
    """A program that does operations on request, and prints the number."""
    program = subprocess.Popen([*argv, source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run():
        print(file=program.stdin, flush=True)
        return int(program.stdout.readline())
    try:
        assert program.stdout.readline() == "ready\n"
        yield run
    finally:
        program.kill()
        program.wait()


GETPPID = 'use POSIX; $| = 1; print "ready\\n"; while (<STDIN>) { getppid() for 1 .. %d; print "%d\\n" }'
COLLECT = """
import gc, threading, time
gc.disable()
for _ in range(400):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
while input() == "":
    for _ in range({0}):
        gc.collect(0)
        calm = time.perf_counter() + 0.003  # as often as a service collects: no count of waiters is recent
        while time.perf_counter() < calm:
            pass
    print({0}, flush=True)
"""

CONTENDED = """
import os, threading
def answer(of, to):
    while True:
        os.read(of, 1)
        os.write(to, b"x")
def ask(of, to, begin, end):
    while True:
        begin.wait()
        for _ in range({0}):
            os.write(to, b"x")
            os.read(of, 1)
        end.wait()
begin, end = threading.Barrier(5), threading.Barrier(5)
for _ in range(4):
    there, back = os.pipe(), os.pipe()
    threading.Thread(target=answer, args=(there[0], back[1]), daemon=True).start()
    threading.Thread(target=ask, args=(back[0], there[1], begin, end), daemon=True).start()
print("ready", flush=True)
while input() == "":
    begin.wait()
    end.wait()
    print(4 * {0}, flush=True)
"""


def workloads(short):
    """By word: title, workload, budget in ns (None: none), and the programs run by an operation ("": all; a rare operation
    excludes runs by unrelated processes in between)."""
    n, seconds = (1, 1) if short else (4, 4)
    return {
        "redis": ("redis GET, 20 connections, no Python", redis(40_000 * n), 400, ""),
        "nginx": ("nginx, 16 connections, no Python", nginx(seconds), 400, ""),
        "getppid": ("getppid() of a program that is no Python", script(["perl", "-e"], GETPPID % ((300_000 * n,) * 2)), 0, ""),
        "collect": ("gc.collect(0), 400 idle threads", script([PYTHON, "-c"], COLLECT.format(300 * n)), 3_000, "gc_pause"),
        "gil": ("contended GIL: 4 pairs of threads, a byte there and back", script([PYTHON, "-c"], CONTENDED.format(2_000 * n)), None,
                "sched_"),
        "gunicorn": ("gunicorn gthread saturated, 16 connections", gunicorn(seconds), 12_000, ""),
    }


# ---- the table ----

def measure(agent, run, empty):
    """Of each program: runs per operation and ns per operation, less the cost of the statistics; the least of some
    rounds, as further work of the machine can only add."""
    run()
    found = {}
    for _ in range(ROUNDS):
        before = programs_of(agent.process.pid)
        n = run()
        after = programs_of(agent.process.pid)
        for name, (ns, runs) in after.items():
            runs -= before[name][1]
            if runs:
                ns = (ns - before[name][0]) / runs - empty
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
            title, workload, budget, programs = every[word]
            if word == "redis" and not shutil.which("redis-server"):
                print("\nredis is not measured: there is no package redis-server here")
                continue
            with workload as run, Agent(*options) as agent:
                time.sleep(WARM_UP)
                print_table(title, measure(agent, run, empty), budget, programs)
    finally:
        set_statistics(before)


if __name__ == "__main__":
    main()
