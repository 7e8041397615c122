#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py SECONDS [LEAK]: the agent under full load, in ten rounds: does anything grow? `make soak` runs this.

A round is three quarters load: Pythons of all kinds that come, fork, connect and go, one from a new binary, and a
store that is stopped or killed in the middle. Then all programs end: the agent must return to the initial state.
Compared with the earlier rounds are descriptors, BPF maps, links, programs and threads, which must not grow; the
least memory of each round; the spool, which must be empty; and the rows, each of which must be in the database once.
With LEAK (memory, fds, maps) the agent has such a leak, and the soak must fail.
"""
import base64
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import host  # noqa: E402

AGENT = os.environ.get("UNDERSPAN", os.path.join(HERE, "..", "..", "build", "underspan"))
WORK = os.path.join(HERE, "..", "e2e", "workloads", "everything.py")
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 600
LEAK = sys.argv[2] if len(sys.argv) > 2 else ""
ROUNDS = 10
ROUND = SECONDS / ROUNDS
# a larger growth is a leak, from the least in the first third of the rounds to the least in the last. Probes in a
# binary are kept for a while after the last process, and connections come and go.
ALLOWED = {"fds": 4, "links": 4, "maps": 0, "progs": 0, "threads": 0}
MEMORY_KB = 1024
WARM_UP = 150  # seconds: caches of symbols, names and lines fill, the allocator's heaps reach their size
SHORT = """
import gc, os, socket, threading
threads = [threading.Thread(target=gc.collect) for _ in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
try:
    socket.create_connection(("127.0.0.1", 1))
except OSError:
    pass
if os.fork() == 0:
    gc.collect()
"""


class Load:
    """Processes that stay for a round, and short-lived processes, until end()."""

    def __init__(self, directory, seconds):
        self.over, self.started = threading.Event(), 0
        self.pythons = [python.path for python in host.find_pythons()]
        self.copy = os.path.join(directory, "python")
        shutil.copy(self.pythons[0], self.copy)
        self.long = [subprocess.Popen([python, WORK, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
                     for python in (self.pythons[0], self.pythons[0], self.pythons[-1])]
        for process in self.long:
            process.stdin.write(b"go")
            process.stdin.close()  # ends the process when done
        self.threads = [threading.Thread(target=self.churn, args=[i]) for i in range(2)]
        for thread in self.threads:
            thread.start()

    def churn(self, i):
        while not self.over.is_set():
            i += 1
            python = self.copy if i % 8 == 0 else self.pythons[i % len(self.pythons)]
            subprocess.run([python, "-c", SHORT], stderr=subprocess.DEVNULL)
            for _ in range(5):
                subprocess.run(["/bin/true"])
            self.started += 1

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        for process in self.long:
            process.kill()
            process.wait()
        os.unlink(self.copy)


class Store:
    """The embedded store at a fixed port."""

    def __init__(self, directory, port):
        self.argv = [AGENT, "store", f"--path={directory}", f"--listen=127.0.0.1:{port}"]
        self.url = f"http://127.0.0.1:{port}"
        self.start()
        with open(directory + "/password") as f:
            self.password = f.read().strip()

    def start(self):
        read, write = os.pipe()
        self.process = subprocess.Popen([*self.argv, f"--ready_fd={write}"], pass_fds=[write], stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as ready:
            word = ready.readline()
        if not word.startswith("ready"):
            sys.exit("soak: the store does not start: " + word)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait()

    def ask(self, sql):
        key = base64.b64encode(f"default:{self.password}".encode()).decode()
        request = urllib.request.Request(self.url, sql.encode(), {"Authorization": "Basic " + key})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    def rows(self):
        tables = self.ask("SELECT name FROM system.tables WHERE database = 'default' AND name LIKE 'ebpf_%' "
                          "AND engine LIKE '%MergeTree'").split()
        return sum(int(self.ask(f"SELECT count() FROM {table}")) for table in tables)


class Agent:
    def __init__(self, directory, store):
        self.log, self.port = open(directory + "/agent.log", "w+"), free_port()
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}
        target = f"--clickhouse={store.url}"
        subprocess.run([AGENT, "schema", target, "--apply"], check=True, stdout=subprocess.DEVNULL, env=env)
        if LEAK:
            env |= {"SOAK_LEAK": LEAK, "LD_PRELOAD": build_leak(directory)}
        # watches processes started here, not unrelated Pythons of the host
        self.process = subprocess.Popen(
            [AGENT, "run", target, f"--pid={os.getpid()}", f"--spool.directory={directory}/spool", "--flush_interval=1",
             "--report_interval=5", f"--metrics.listen=127.0.0.1:{self.port}", "--off_cpu.min_duration_us=1000",
             "--governor.cpu_percent=0", "--governor.tracker_cpu_percent=0"],  # the governor would take the load away
            stderr=self.log, env=env)
        host.wait_until(lambda: "ready:" in self.said() or self.process.poll() is not None, 60, "the agent is ready")
        self.least = None
        threading.Thread(target=self.watch_memory, daemon=True).start()

    def said(self):
        with open(self.log.name) as f:
            return f.read()

    def status(self, field):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(rf"^{field}:\s*(\d+)", f.read(), re.M)[1])

    def watch_memory(self):
        """The least in a round: free memory held by the allocator comes and goes."""
        try:
            while True:
                now = self.status("RssAnon")
                self.least = min(now, self.least or now)
                time.sleep(0.2)
        except (OSError, TypeError):
            pass  # the process has ended

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as reply:
            lines = [line.rpartition(" ") for line in reply.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def total(self, prefix):
        return sum(v for k, v in self.metrics().items() if k.startswith("underspan_" + prefix))

    def holds(self):
        kinds = []
        for fd in os.listdir(f"/proc/{self.process.pid}/fd"):
            try:
                kinds.append(os.readlink(f"/proc/{self.process.pid}/fd/{fd}"))
            except OSError:
                pass
        links = sum("bpf_link" in k or "bpf-link" in k or "perf_event" in k for k in kinds)
        return {"fds": len(kinds), "links": links, "maps": sum("bpf-map" in k for k in kinds),
                "progs": sum("bpf-prog" in k for k in kinds), "threads": self.status("Threads")}

    def sample(self):
        rss, self.least = self.least, None
        return {"rss_kb": rss, "peak_kb": self.status("VmHWM"), **self.holds(),
                "spool": int(self.total("spool_bytes")), "rows": int(self.total("rows_total")),
                "lost": int(self.total("lost_")), "dropped": int(self.total("dropped_")),
                "cpu_s": round(self.total("process_cpu_seconds"), 1)}


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def build_leak(directory):
    compiler = next(c for c in ("clang-19", "clang", "cc") if shutil.which(c))
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", f"{directory}/leak.so", f"{HERE}/leak.c", "-ldl"], check=True)
    return f"{directory}/leak.so"


def one_round(i, directory, agent, store):
    begin = time.monotonic()

    def until(share):
        time.sleep(max(0, begin + share * ROUND - time.monotonic()))

    load = Load(directory, ROUND * 0.75)
    until(0.3)
    store.stop(signal.SIGKILL if i % 2 else signal.SIGTERM)
    until(0.5)
    store.start()
    until(0.75)
    load.end()
    until(1)
    host.wait_until(lambda: agent.total("spool_bytes") == 0, 300, "the spool is empty")
    return load.started


def check_rows(agent, store):
    """More may come at any moment: the agent's own."""
    before, there, after = agent.total("inserted_total"), store.rows(), agent.total("inserted_total")
    return [] if before <= there <= after else [f"{before:g} to {after:g} rows inserted, {there} in the database"]


def verdict(samples):
    """The first rounds are warm-up, at most half of them. The last third of the remaining rounds is compared with the first."""
    rest = samples[min(ROUNDS // 2, max(1, math.ceil(WARM_UP / ROUND))):]
    third = max(1, len(rest) // 3)
    first, last = rest[:third], rest[-third:]
    wrong = []
    for column, more in ALLOWED.items():
        a, b = (min(s[column] for s in part) for part in (first, last))
        if b > a + more:
            wrong.append(f"{column} grows: {a}, then {b}")
    a, b = (sorted(s["rss_kb"] for s in part)[third // 2] for part in (first, last))
    if b > a + MEMORY_KB:
        wrong.append(f"memory grows: {a} kB, then {b} kB")
    return wrong + ([f"{last[-1]['dropped']} rows are dropped"] if last[-1]["dropped"] else [])


def main():
    directory = tempfile.mkdtemp(prefix="underspan-soak-")
    os.chmod(directory, 0o755)
    store = Store(directory + "/db", free_port())
    agent = Agent(directory, store)
    samples, wrong, started = [], [], 0
    try:
        for i in range(ROUNDS):
            started += one_round(i, directory, agent, store)
            samples.append(agent.sample())
            if i == 0:
                print(" round " + " ".join(f"{c:>8}" for c in samples[0]))
            print(f"{i:6} " + " ".join(f"{v:8}" for v in samples[-1].values()), flush=True)
        wrong = verdict(samples) + check_rows(agent, store)
    finally:
        agent.process.send_signal(signal.SIGTERM)
        code = agent.process.wait(30)
        store.stop()
    text = agent.said()
    if code:
        wrong.append(f"the agent ended with {code}: {text[-500:]}")
    wrong += re.findall(".*do not add up.*", text)
    print(json.dumps({"seconds": SECONDS, "programs": started, "rows": samples[-1]["rows"], "wrong": wrong}))
    shutil.rmtree(directory)
    sys.exit(1 if wrong else 0)


main()
