#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent under full load for ten minutes (or SECONDS), delivering to a store that goes away now and then: does
anything grow? `make soak` runs this. Memory, descriptors, BPF maps and links and the spool are read each tenth of the
time; the second half must not have more than the first."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
AGENT = os.environ.get("UNDERSPAN", os.path.join(HERE, "..", "..", "build", "underspan"))
WORK = os.path.join(HERE, "..", "e2e", "workloads", "everything.py")
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 600
SAMPLES = 20
# how much more the second half may have than the first, of each column; the heap settles late
# and the host's other Pythons come and go, each with a few links
ALLOWED = {"rss_kb": 1.10, "fds": 1.05, "maps": 1.0, "links": 1.5, "spool_mb": 4.0, "memory_mb": 4.0}


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Load:
    """Everything at once, with processes that come and go."""

    def __init__(self):
        self.processes = []

    def tend(self):
        self.processes = [p for p in self.processes if p.poll() is None]
        while len(self.processes) < 3:
            process = subprocess.Popen(["/usr/bin/python3", WORK, str(SECONDS / SAMPLES)], stdin=subprocess.PIPE,
                                       stdout=subprocess.DEVNULL)
            process.stdin.write(b"go")
            process.stdin.close()  # it goes, and ends when it is done
            self.processes.append(process)
        for _ in range(20):  # short lives
            subprocess.run(["/bin/true"], check=True)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in text.splitlines() if not line.startswith("#")}


def sample(pid, port):
    with open(f"/proc/{pid}/status") as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    kinds = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            kinds.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    counts = metrics(port)
    fate = {name: sum(v for k, v in counts.items() if k.startswith(f"underspan_{name}"))
            for name in ("rows_total", "inserted_total", "lost_", "dropped_")}
    links = sum("bpf_link" in k or "perf_event" in k for k in kinds)
    return {"rss_kb": rss, "fds": len(kinds) - links, "maps": sum("bpf-map" in k for k in kinds), "links": links,
            "memory_mb": counts["underspan_memory_bytes"] / 1e6, "spool_mb": counts["underspan_spool_bytes"] / 1e6,
            "rows": fate["rows_total"], "inserted": fate["inserted_total"], "lost": fate["lost_"],
            "dropped": fate["dropped_"], "cpu_s": counts["underspan_process_cpu_seconds"]}


class Store:
    """The embedded store at a fixed port; stopped and started again while the agent delivers."""

    def __init__(self, directory, port):
        self.argv = [AGENT, "store", f"--path={directory}", f"--listen=127.0.0.1:{port}"]
        self.process = None
        self.start()

    def start(self):
        read, write = os.pipe()
        self.process = subprocess.Popen([*self.argv, f"--ready_fd={write}"], pass_fds=[write],
                                        stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as ready:
            word = ready.readline()
        if not word.startswith("ready"):
            sys.exit("soak: the store does not start: " + word)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def verdict(samples):
    """Compares the worst of both halves; the first tenth is start-up."""
    rest = samples[len(samples) // 10 + 1:]
    half = len(rest) // 2
    wrong = []
    for column, factor in ALLOWED.items():
        first, second = (max(s[column] for s in part) for part in (rest[:half], rest[half:]))
        if second > first * factor + (2 if column in ("fds", "links", "spool_mb", "memory_mb") else 0):
            wrong.append(f"{column} grows: {first:g}, then {second:g}")
    return wrong


def wait_ready(agent, path):
    for _ in range(600):
        with open(path) as f:
            text = f.read()
        if "ready:" in text:
            return
        if agent.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit("soak: the agent does not start: " + text)


def main():
    directory = tempfile.mkdtemp(prefix="underspan-soak-")
    port, metrics_port = free_port(), free_port()
    store = Store(directory + "/db", port)
    with open(directory + "/db/password") as f:
        os.environ["UNDERSPAN_CLICKHOUSE_PASSWORD"] = f.read().strip()
    where = [f"--clickhouse=http://127.0.0.1:{port}"]
    subprocess.run([AGENT, "schema", *where, "--apply"], check=True, stdout=subprocess.DEVNULL)
    log = open(directory + "/agent.log", "w+")
    agent = subprocess.Popen([AGENT, "run", *where, f"--spool.directory={directory}/spool", "--flush_interval=1",
                              f"--metrics.listen=127.0.0.1:{metrics_port}", "--off_cpu.min_duration_us=1000"],
                             stderr=log)
    load, samples = Load(), []
    try:
        wait_ready(agent, directory + "/agent.log")
        print("     s " + " ".join(f"{c:>9}" for c in sample(agent.pid, metrics_port)), flush=True)
        begin = time.monotonic()
        for i in range(SAMPLES):
            away = i % 7 == 3  # the store, for one sample in seven
            if away:
                store.stop()
            until = begin + SECONDS * (i + 1) / SAMPLES
            while time.monotonic() < until:
                load.tend()
                time.sleep(0.2)
            samples.append(sample(agent.pid, metrics_port))
            print(f"{time.monotonic() - begin:6.0f} " + " ".join(f"{v:9.6g}" for v in samples[-1].values()) +
                  (" (store away)" if away else ""), flush=True)
            if away:
                store.start()
    finally:
        load.end()
        agent.send_signal(signal.SIGTERM)
        code = agent.wait(30)
        store.stop()
    log.seek(0)
    text = log.read()
    wrong = verdict(samples)
    if code:
        wrong.append(f"the agent ended with {code}: {text[-500:]}")
    if "do not add up" in text:
        wrong.append(re.search(".*do not add up.*", text)[0])
    print(json.dumps({"seconds": SECONDS, "rows": samples[-1]["rows"], "wrong": wrong}))
    sys.exit(1 if wrong else 0)


main()
