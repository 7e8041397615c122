#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent itself: its CPU time for a row of off_cpu, from the ring buffer to the server's answer, with spool, at some rates, with
and without stacks; start, memory and CPU with 500 idle Pythons, and beside a Python with 10,000 threads. Of each CPU time the idle
agent's is subtracted. Rows are counted by the server, which only inflates them. `make bench` runs this.

bench_agent.py [--rates=1000,5000,50000] [--seconds=S]
"""

import argparse
import contextlib
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import time
import zlib

from load_cpu import threads_ns

AGENT = os.environ.get("UNDERSPAN", "build/underspan")
PYTHON = "/usr/bin/python3"
SETTLE, IDLE, DELIVERED = 4, 10, 7  # seconds: until the caches are filled; measured without rows; until the last batch has left
STACKS = {"with 30 frames of Python": [], "without stacks": ["--off_cpu.py_stacks=false", "--off_cpu.user_stacks=false"]}

# RATE sleeps a second for SECONDS, by four processes of eight threads, after a line on stdin
SLEEPS = """
import os, sys, threading, time
rate, seconds, depth, processes, threads = int(sys.argv[1]), float(sys.argv[2]), 27, 4, 8
def deep(n):
    return deep(n - 1) if n else sleep_often()
def sleep_often():
    period, begin = processes * threads / rate, time.monotonic()
    end = turn = begin
    end += seconds
    while turn < end:
        turn += period
        time.sleep(max(turn - time.monotonic(), 1e-6))
pipes = []
for _ in range(processes):
    of, to = os.pipe()
    if not os.fork():
        os.close(to)
        os.read(of, 1)
        started = [threading.Thread(target=deep, args=[depth]) for _ in range(threads)]
        [t.start() for t in started]
        [t.join() for t in started]
        os._exit(0)
    pipes.append(to)
print(flush=True)
sys.stdin.readline()
[os.write(to, b"x") for to in pipes]
[os.wait() for _ in pipes]
print(flush=True)
sys.stdin.readline()
"""
# some hundred Pythons: nine in ten forked, with a second thread
MANY = """
import os, signal, subprocess, sys, threading, time
n = int(sys.argv[1])
threading.Thread(target=time.sleep, args=[1e6], daemon=True).start()
kids = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"]).pid for _ in range(n // 10)]
for _ in range(n - 1 - n // 10):
    kid = os.fork()
    if not kid:
        signal.pause()
    kids.append(kid)
print(flush=True)
sys.stdin.readline()
[os.kill(kid, 9) for kid in kids]
"""
THREADS = """
import sys, threading
over = threading.Event()
threading.stack_size(64 << 10)
for _ in range(int(sys.argv[1])):
    threading.Thread(target=over.wait, daemon=True).start()
print(flush=True)
sys.stdin.readline()
over.set()
"""


class Server(http.server.ThreadingHTTPServer):
    """Answers each INSERT as ClickHouse does, and counts rows."""
    rows = 0

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            self.server.rows += zlib.decompress(body, 31).count(b"\n")
        self.send_response(200)
        self.send_header("X-ClickHouse-Summary", "{}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Process:
    """A program that says when it is ready, and goes on after a line."""

    def __init__(self, text, *args):
        self.process = subprocess.Popen([PYTHON, "-c", text, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.said()

    def said(self):
        if not self.process.stdout.readline():
            sys.exit("bench_agent: the workload ended")

    def go_on(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self):
        self.go_on()
        self.process.wait()


@contextlib.contextmanager
def agent(*options):
    """Yields the pid and the seconds from the start until it was ready."""
    with tempfile.TemporaryDirectory() as spool, tempfile.TemporaryFile("w+") as log:
        begin = time.monotonic()
        process = subprocess.Popen([AGENT, "run", "--governor.cpu_percent=0", f"--spool.directory={spool}", *options], stderr=log)
        try:
            while os.pread(log.fileno(), 1 << 20, 0).find(b"ready:") < 0:
                if process.poll() is not None:
                    sys.exit("the agent ended: " + os.pread(log.fileno(), 1 << 20, 0).decode())
                time.sleep(0.01)
            yield process.pid, time.monotonic() - begin
        finally:
            process.terminate()
            process.wait()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        own = [int(word) for word in f.read().split()]
    return [pid, *(p for child in own for p in children(child))]


def cpu_ns(pid):
    """Of the agent and its readers."""
    return sum(threads_ns(p) for p in children(pid))


def share(pid, seconds):
    """CPU time as a share of a core."""
    before = cpu_ns(pid)
    time.sleep(seconds)
    return (cpu_ns(pid) - before) / 1e9 / seconds


def measure_rows(server, rate, seconds, options):
    load = Process(SLEEPS, rate, seconds)
    with agent(f"--clickhouse={server.url}", "--trackers=off_cpu", "--off_cpu.min_duration_us=0", f"--pid={load.pid}", *options) as (pid, _):
        time.sleep(SETTLE)
        idle = share(pid, IDLE)
        rows, before, begin = server.rows, cpu_ns(pid), time.monotonic()
        load.go_on()
        load.said()
        took = time.monotonic() - begin
        time.sleep(DELIVERED)
        rows, spent = server.rows - rows, (cpu_ns(pid) - before) / 1e9 - idle * (time.monotonic() - begin)
        load.end()
    return rows / took, spent / rows, spent / took


def print_rows(rates, seconds):
    server = Server()
    print(f"{'the agent: rows of off_cpu, spool and server':44} {'rows/s':>8} {'us a row':>9} {'% of a core':>12}", flush=True)
    for title, options in STACKS.items():
        for rate in rates:
            found, each, core = measure_rows(server, rate, seconds, options)
            print(f"{title:44} {found:8,.0f} {each * 1e6:9.2f} {core * 100:12.2f}", flush=True)


def memory_kb(pid, name):
    with open(f"/proc/{pid}/status") as f:
        return int(f.read().split(name + ":")[1].split()[0])


def print_idle(title, text, n):
    server, load = Server(), Process(text, n)
    with agent(f"--clickhouse={server.url}", f"--pid={load.pid}") as (pid, ready):
        time.sleep(SETTLE + 6)
        idle = share(pid, 2 * IDLE)
        print(f"{title:44} {ready:8.2f} {memory_kb(pid, 'VmRSS') / 1024:9.1f} {memory_kb(pid, 'RssAnon') / 1024:9.1f} {idle * 100:12.3f}", flush=True)
    load.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", default="1000,5000,50000")
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    if args.rates:
        print_rows([int(rate) for rate in args.rates.split(",")], args.seconds)
    print(f"\n{'the agent, all trackers, nothing happens':44} {'ready, s':>8} {'RSS, MiB':>9} {'of it own':>9} {'% of a core':>12}", flush=True)
    print_idle("500 Pythons", MANY, 500)
    print_idle("a Python with 10,000 threads", THREADS, 10000)


if __name__ == "__main__":
    main()
