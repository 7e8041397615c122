# SPDX-License-Identifier: Apache-2.0
"""Workloads of the bench: each yields a function that does operations and returns their number. Bystanders have no Python."""

import contextlib
import dataclasses
import glob
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from bench import PYTHON, Gunicorn, free_port

POSTGRES = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda d: int(d.split("/")[4]), default=None)  # Debian's place
DESCRIPTORS = min(30_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
IDLE = min(10_000, DESCRIPTORS - 1_000)


@dataclasses.dataclass
class Workload:
    title: str
    start: contextlib.AbstractContextManager  # used once; yields a function that does operations and returns their number
    budget: int | None = None  # ns of BPF an operation
    programs: str = ""  # only these count: a rare operation excludes runs by unrelated processes in between
    waits: bool = False  # computes between the operations: its CPU time says nothing
    needs: tuple = ()

    def lacks(self):
        return next((program for program in self.needs if not program or not shutil.which(program)), None)


# ---- servers ----

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
def postgres(n):
    """pgbench's reads by key over loopback. The server refuses to be root."""
    port = free_port()
    client = [f"{POSTGRES}/pgbench", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
    drop = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "env", "LC_ALL=C"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
    with tempfile.TemporaryDirectory() as there:
        shutil.chown(there, "postgres", "postgres")
        subprocess.run([*drop, f"{POSTGRES}/initdb", "-D", there, "-U", "postgres", "-A", "trust", "--no-sync"], cwd="/", **quiet)
        server = subprocess.Popen([*drop, f"{POSTGRES}/postgres", "-D", there, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
                                   "-c", "unix_socket_directories=", "-c", "fsync=off"], cwd="/", stderr=subprocess.DEVNULL)
        try:
            while subprocess.run([f"{POSTGRES}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode:
                if server.poll() is not None:
                    raise RuntimeError("postgres does not run")
                time.sleep(0.05)
            subprocess.run([*client, "-i", "postgres"], **quiet)

            def run():
                subprocess.run([*client, "-S", "-n", "-c", "8", "-t", str(n), "postgres"], **quiet)
                return 8 * n
            yield run
        finally:
            server.send_signal(subprocess.signal.SIGINT)  # at once
            server.wait()


@contextlib.contextmanager
def gunicorn(seconds, app="smallest_app"):
    smallest = Gunicorn(app)
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

EXECUTE = 'use POSIX; $| = 1; print "ready\n"; while (<STDIN>) {{ system({}) for 1 .. {}; print "{}\n" }}'
SLEEPERS = """
import sys, threading, time
threading.stack_size(1 << 16)
begin, end = threading.Barrier(401), threading.Barrier(401)
def run():
    while True:
        begin.wait()
        for _ in range({0}):
            time.sleep(0.02)
        end.wait()
for _ in range(400):
    threading.Thread(target=run, daemon=True).start()
print("ready", flush=True)
while input() == "":
    begin.wait()
    end.wait()
    print(400 * {0}, flush=True)
"""
CONNECTS = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=512)
def accept():
    while True:
        listener.accept()[0].close()
threading.Thread(target=accept, daemon=True).start()
print("ready", flush=True)
while input() == "":
    for _ in range({0}):
        with socket.create_connection(listener.getsockname()) as s:
            s.recv(1)
    print({0}, flush=True)
"""
LOOP_SERVER = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
class Answer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def main():
    await (await asyncio.get_running_loop().create_server(Answer, "127.0.0.1", int(sys.argv[1]), backlog=4096)).serve_forever()
asyncio.run(main())
"""
IDLE_CLIENT = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]), int(sys.argv[3])))
kept = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
for s in kept:
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    s.recv(100)
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def idle_connections(seconds):
    """An event loop that serves some connections beside many that are idle."""
    port = free_port()
    with server([PYTHON, "-c", LOOP_SERVER, str(port), str(DESCRIPTORS)], port):
        client = subprocess.Popen([PYTHON, "-c", IDLE_CLIENT, str(port), str(IDLE), str(DESCRIPTORS)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            if client.stdout.readline() != b"ready\n":
                raise RuntimeError("the idle connections were not made")
            yield lambda: wrk(port, seconds)
        finally:
            client.kill()
            client.wait()


def workloads(short):
    """By word."""
    n, seconds = (1, 1) if short else (3, 2)

    def python(source, times):
        return script([PYTHON, "-c"], source.format(times))

    def perl(source, *of):
        return script(["perl", "-e"], source.format(*of))

    postgresql = (POSTGRES and f"{POSTGRES}/pgbench", "setpriv")
    return {
        "gunicorn": Workload("gunicorn gthread saturated, 16 connections", gunicorn(seconds), 12_000, needs=("wrk",)),
        "django": Workload("the same with Django", gunicorn(seconds, "django_app"), needs=("wrk",)),
        "gil": Workload("contended GIL: 4 pairs of threads, a byte there and back", python(CONTENDED, 2_000 * n)),
        "collect": Workload("gc.collect(0), 400 idle threads", python(COLLECT, 300 * n), 3_000, "gc_pause", waits=True),
        "threads": Workload("400 threads, a sleep of 20 ms", python(SLEEPERS, 20 * n)),
        "idle": Workload(f"asyncio, 16 connections beside {IDLE:,} idle ones", idle_connections(seconds), needs=("wrk",)),
        "connect": Workload("connect, accept, close in a Python", python(CONNECTS, 2_000 * n)),
        "start": Workload("start and end of a Python", perl(EXECUTE, f"'{PYTHON}', '-S', '-c', ''", 30 * n, 30 * n)),
        "exec": Workload("start and end of /bin/true", perl(EXECUTE, "'/bin/true'", 200 * n, 200 * n)),
        "getppid": Workload("getppid(), no Python", script(["perl", "-e"], GETPPID % ((300_000 * n,) * 2)), 0),
        "redis": Workload("redis GET, 20 connections, no Python", redis(40_000 * n), 400, needs=("redis-server", "redis-benchmark")),
        "nginx": Workload("nginx, 16 connections, no Python", nginx(seconds), needs=("nginx", "wrk")),
        "postgres": Workload("PostgreSQL, pgbench -S, 8 clients, no Python", postgres(1_500 * n), needs=postgresql),
    }
