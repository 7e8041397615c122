#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What underspan costs, as ratios within one run: each workload alternates between without and with the agent
(A B A B ...), medians are compared. `make bench` runs this; a busy machine makes the figures worse, not better."""

import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 7
AGENT = os.environ.get("UNDERSPAN", "build/underspan")


class Agent:
    """All trackers, rows thrown away as late as possible: encoded and written to /dev/null."""

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([AGENT, "run", "--stdout", "--governor.cpu_percent=0"], stdout=subprocess.DEVNULL, stderr=self.log)
        while "ready" not in self.said():
            if self.process.poll() is not None:
                sys.exit("the agent ended: " + self.said())
            time.sleep(0.05)
        time.sleep(0.3)
        return self

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def ratio(measure):
    """Median of `measure` with the agent over the median without."""
    without, with_agent = [], []
    for _ in range(ROUNDS):
        without.append(measure())
        with Agent():
            with_agent.append(measure())
    return statistics.median(with_agent) / statistics.median(without), statistics.median(without)


def python_loop(code, seconds=1.0):
    """Operations a second of a Python statement."""
    source = f"""
import os, threading, time
fd = os.open("/dev/zero", os.O_RDONLY)
n, end = 0, time.perf_counter() + {seconds}
while time.perf_counter() < end:
    for _ in range(1000):
        {code}
    n += 1000
print(n / {seconds})
"""
    return float(subprocess.check_output(["/usr/bin/python3", "-c", source]))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Gunicorn:
    """One gthread worker with four threads and the smallest application: the worst case for overhead."""

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        with open(f"{self.dir.name}/app.py", "w") as f:
            f.write('def app(env, start):\n    start("200 OK", [("Content-Length", "2")])\n    return [b"ok"]\n')
        self.port = free_port()
        self.process = subprocess.Popen(
            ["gunicorn", "-k", "gthread", "--threads", "4", "--keep-alive", "5", "-b", f"127.0.0.1:{self.port}",
             "--chdir", self.dir.name, "app:app"], stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                time.sleep(0.05)

    def requests_per_second(self):
        out = subprocess.check_output(["wrk", "-t1", "-c8", "-d2", f"http://127.0.0.1:{self.port}/"], text=True)
        return float(next(line for line in out.splitlines() if "Requests/sec" in line).split()[1])

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.dir.cleanup()


def agent_at_rest():
    """Resident memory in MiB and share of a core of an agent on this host as it is."""
    with Agent() as agent:
        def cpu():
            fields = open(f"/proc/{agent.process.pid}/stat").read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before = cpu()
        time.sleep(5)
        share = (cpu() - before) / 5
        status = open(f"/proc/{agent.process.pid}/status").read()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024, share


def main():
    rows = []
    with Gunicorn() as gunicorn:
        gunicorn.requests_per_second()
        r, base = ratio(gunicorn.requests_per_second)
        rows.append(("gunicorn gthread, smallest application", "requests/s", base, r, ">= 0.99"))
    for name, code in (("uncontended GIL take and drop: os.read(fd, 1)", "os.read(fd, 1)"),
                       ("a system call nobody looks at: os.getppid()", "os.getppid()")):
        r, base = ratio(lambda code=code: python_loop(code))
        rows.append((name, "calls/s", base, r, ""))
    print(f"{'workload':48} {'without':>12} {'':10} {'with/without':>12}  goal")
    for name, unit, base, r, goal in rows:
        print(f"{name:48} {base:12,.0f} {unit:10} {r:12.3f}  {goal}")
    rate = float(subprocess.check_output(["build/tests/bench/bench_rows"]))
    print(f"{'ring-buffer record to HTTP body, one core':48} {rate:12,.0f} rows/s                   >= 1,000,000")
    rss, share = agent_at_rest()
    print(f"{'agent: resident memory':48} {rss:12.1f} MiB                      <= 32")
    print(f"{'agent: share of a core on this host now':48} {100 * share:12.2f} %                        <= 1")


if __name__ == "__main__":
    main()
