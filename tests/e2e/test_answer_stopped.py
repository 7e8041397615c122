# SPDX-License-Identifier: Apache-2.0
"""A process that a signal stops, or a cgroup freezes, in the middle of requests: the time is not that of the call or the code in which
it was held. Version 1 freezes a sleeping thread without waking it since Linux 6.1, so such a sleep is longer: only a computation is tested."""
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

import cgroups
from agent import Agent, NO_ENGINE, plain_build
from answers import Answers
from host import DEBIAN_PYTHON, wait_until
from servers import free_port
from store_fixture import Store
from test_request import TRACKERS

pytestmark = [plain_build(NO_ENGINE), pytest.mark.sole]  # milliseconds beside a stop of half a second
APP = """
import socket, threading, time

def app(environ, start_response):
    name = environ["PATH_INFO"].split("/")[1]
    until = time.thread_time() + 0.3
    if name == "sleep":
        time.sleep(0.3)
    if name == "wait":  # poll() of a socket, which goes on as restart_syscall() afterwards
        late, reader = socket.socketpair()
        reader.settimeout(10)
        threading.Timer(1, late.send, [b"x"]).start()
        reader.recv(1)
    while name == "compute" and time.thread_time() < until:
        pass
    start_response("200 OK", [("Content-Length", "0")])
    return []
"""
STOPPED_MS = 500
V2 = next((root for root in (f"{cgroups.ROOT}/unified", cgroups.ROOT) if os.path.exists(f"{root}/cgroup.procs")), "")
V1 = f"{cgroups.ROOT}/freezer" if os.path.isdir(f"{cgroups.ROOT}/freezer") else ""


class Freezer:
    """A cgroup of either version with one process, which is given back at the end."""

    def __init__(self, root, line, file, states, pid):
        self.directory, self.file, self.states, self.pid = f"{root}/underspan-frozen-{os.getpid()}", file, states, pid
        with open(f"/proc/{pid}/cgroup") as f:
            [was] = re.findall(rf"(?m)^\d+:{line}:(.*)$", f.read())
        self.was = root + was
        os.mkdir(self.directory)
        cgroups.write(f"{self.directory}/cgroup.procs", str(pid))

    def hold(self, on):
        cgroups.write(f"{self.directory}/{self.file}", self.states[on])

    def kill(self):
        cgroups.write(f"{self.was}/cgroup.procs", str(self.pid))
        cgroups.end(self.directory)


class Signals:
    def __init__(self, pid):
        self.pid = pid

    def hold(self, on):
        os.kill(self.pid, signal.SIGSTOP if on else signal.SIGCONT)

    def kill(self):
        pass


HOW = {"signal": Signals, "cgroup v2": lambda pid: Freezer(V2, "", "cgroup.freeze", "01", pid),
       "cgroup v1": lambda pid: Freezer(V1, "freezer", "freezer.state", ["THAWED", "FROZEN"], pid)}
CASES = {"/sleep/signal": ("signal", "/sleep"), "/compute/signal": ("signal", "/compute"), "/wait/signal": ("signal", "/wait"),
         **({"/sleep/v2": ("cgroup v2", "/sleep"), "/compute/v2": ("cgroup v2", "/compute"), "/wait/v2": ("cgroup v2", "/wait")} if V2 else {}),
         **({"/compute/v1": ("cgroup v1", "/compute")} if V1 else {})}


def get(port, path):
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    connection.getresponse().read()
    connection.close()
    return (time.monotonic() - begun) * 1000


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """{path: (ms of the client, ms stopped, the request of explain --json)}"""
    directory, port, told = tmp_path_factory.mktemp("stopped"), free_port(), {}
    (directory / "stopped_app.py").write_text(APP)
    server = subprocess.Popen([DEBIAN_PYTHON, "-m", "gunicorn", "-k", "gthread", "--threads", "2", "-b", f"127.0.0.1:{port}", "stopped_app:app"],
                              cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Store(directory / "db") as store, pytest.MonkeyPatch.context() as patch:
            ask = Answers(store)
            ask.apply()
            patch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
            [worker] = wait_until(lambda: children_of(server.pid), 20, "gunicorn's worker")
            agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", f"--pid={server.pid}", stdout=False,
                          trackers=[*TRACKERS, "off_cpu"])
            try:
                agent.wait_ready()
                time.sleep(1)
                for path, (how, _) in CASES.items():
                    times, holder = {}, HOW[how](worker)
                    client = threading.Thread(target=lambda: times.update(client=get(port, path)))
                    client.start()
                    time.sleep(0.15)
                    begun = time.monotonic()
                    try:
                        holder.hold(True)
                        time.sleep(STOPPED_MS / 1000)
                    finally:
                        holder.hold(False)
                    times["stopped"] = (time.monotonic() - begun) * 1000
                    client.join()
                    holder.kill()
                    told[path] = times
                time.sleep(1)
            finally:
                agent.stop()
            rows = [json.loads(line) for line in store.ask("SELECT toString(request_id) AS id, path FROM ebpf_request FORMAT JSONEachRow").splitlines()]
            assert sorted(r["path"] for r in rows) == sorted(told), rows
            return {r["path"]: (told[r["path"]]["client"], told[r["path"]]["stopped"], json.loads(ask.command("explain", "--json", r["id"]).stdout)["requests"][0])
                    for r in rows}
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("path", CASES)
def test_the_time_of_a_stopped_process_is_no_calls(stopped, path):
    client_ms, stopped_ms, row = stopped[path]
    how, kind = CASES[path]
    word, by, fix = ("stopped", "a signal or a debugger", "SIGSTOP") if how == "signal" else ("frozen", "the freezer of its cgroup", "docker pause")
    assert abs(row["duration_ms"] - client_ms) < 50, (row["duration_ms"], client_ms)
    assert abs(row["other_ms"] - stopped_ms) < 30, (row["other_ms"], stopped_ms)
    [cause] = [c for c in row["causes"] if c["cause"] == word]
    assert cause["said"].startswith(f"the thread was {word} by {by}, in app (") and fix in cause["fix"], cause
    [wait] = [w for w in row["waits"] if w["cause"] == word]
    assert abs(wait["end_us"] - wait["begin_us"] - stopped_ms * 1000) < 30_000, wait
    # asleep until it was stopped: the sleep's time was over when it went on
    before_ms = (wait["begin_us"] - row["handled_us"]) / 1000
    waited_ms, at_least, at_most = {"/sleep": (row["sleep_ms"], before_ms - row["cpu_ms"] - row["runq_ms"] - 5, before_ms), "/compute": (row["sleep_ms"], -1, 1),
                                    "/wait": (row["net_ms"], 1000 - stopped_ms - 30, 1000 - stopped_ms + 30)}[kind]
    assert at_least < waited_ms < at_most, (before_ms, row)


LOOP = """
import asyncio, time
async def blocks():
    while True:
        print(flush=True)
        time.sleep(0.3)
        await asyncio.sleep(0.05)
asyncio.run(blocks())
"""


@pytest.mark.parametrize("how", ["signal"] + ["cgroup v2"] * bool(V2))
def test_the_time_of_a_stopped_loop_is_no_calls(start_agent, cleanup, how):
    loop = subprocess.Popen([DEBIAN_PYTHON, "-c", LOOP], stdout=subprocess.PIPE)
    cleanup.append(loop)
    agent = start_agent(f"--pid={loop.pid}", trackers=["loop_stall"])

    def rows(longer_than_ms=0):
        return [row for row in agent.rows["ebpf_loop_stall"] if row["sleep_ns"] is not None and row["duration_ns"] > longer_than_ms * 1e6]
    wait_until(lambda: (loop.stdout.readline(), rows())[1], 30, "the split of a stall")
    holder = HOW[how](loop.pid)
    loop.stdout.readline()
    time.sleep(0.1)
    begun = time.monotonic()
    holder.hold(True)
    time.sleep(STOPPED_MS / 1000)
    holder.hold(False)
    stopped_ms = (time.monotonic() - begun) * 1000
    holder.kill()
    [row] = wait_until(lambda: rows(550), 30, "the row")
    assert abs(row["other_ns"] / 1e6 - stopped_ms) < 30 and 50 < row["sleep_ns"] / 1e6 < 200, (row, stopped_ms)
