# SPDX-License-Identifier: Apache-2.0
"""Who had the CPU while a request waited for one: programs of one CPU, beside a server that computes there. `explain` names a Python, and tells of
another program where there is none. The programs' own CPU clocks are the truth."""
import http.client
import json
import os
import subprocess
import time

import pytest

import servers
from agent import NO_ENGINE, plain_build
from answer_watched import watched
from test_request import trace_of

pytestmark = [plain_build(NO_ENGINE), pytest.mark.sole]  # no other test has the CPUs
APP = r'''
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        until = time.thread_time() + (0.6 if self.path == "/compute" else 0)
        while time.thread_time() < until: sum(range(1000))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''
# name: (how many, command)
HOGS = {"shells": (3, ["sh", "-c", "while :; do :; done"]), "Python": (1, ["/usr/bin/python3", "-c", "def crunch():\n  while True: sum(range(1000))\ncrunch()"])}


def cpu_ms(pid):
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0]) / 1e6


def get(port, path, i):
    connection, begun = http.client.HTTPConnection("127.0.0.1", port), time.monotonic()
    connection.request("GET", path, headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
    connection.getresponse().read()
    connection.close()
    return (time.monotonic() - begun) * 1000


@pytest.mark.parametrize("name", HOGS)
def test_who_had_the_cpu(name, tmp_path, cleanup, debian_python, monkeypatch):
    (tmp_path / "app.py").write_text(APP)
    port, cpu = servers.free_port(), max(os.sched_getaffinity(0))
    server = servers.Server(["taskset", "-c", str(cpu), debian_python.path, str(tmp_path / "app.py"), str(port)], cwd="/tmp")
    ask, agent = watched(server, tmp_path, cleanup, monkeypatch, lambda: get(port, "/", 10**6), ["on_cpu"])
    n, command = HOGS[name]
    hogs = [subprocess.Popen(["taskset", "-c", str(cpu), *command]) for _ in range(n)]
    try:
        time.sleep(2)
        get(port, "/", 10**6 + 1)
        before = [cpu_ms(hog.pid) for hog in hogs]
        ms = get(port, "/compute", 1)
        had = sum(cpu_ms(hog.pid) for hog in hogs) - sum(before)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    agent.stop()
    done = ask.command("explain", "--json", trace_of(1))
    assert done.returncode == 0, done.stderr
    [row] = [r for r in json.loads(done.stdout)["requests"] if r["server_port"] == port]
    [missing] = [c for c in row["causes"] if c["cause"] == "cpu_missing"]
    print(f"{name}: {ms:.0f} ms, of which the programs had {had:.0f}; run queue {row['runq_ms']:.0f}; {missing['said']}; {row['crowd_total']}")
    assert row["runq_ms"] > 350 and had > 0.7 * row["runq_ms"], (row["runq_ms"], had)
    if name == "shells":
        assert "another program had the CPU, or the hypervisor" in missing["said"], missing
    else:
        [total] = row["crowd_total"]
        assert "another program" not in missing["said"] and total["computed_ms"] > 0.6 * had and f"; meanwhile python3, pid {hogs[0].pid} computed" in missing["said"] and "in crunch" in missing["said"], (missing, total, had)
