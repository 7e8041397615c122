# SPDX-License-Identifier: Apache-2.0
"""A CPU quota that stops a process while a request waits for it: `explain` names the quota, not the event loop's code, the GIL's holder or other
work on the host. Known rows, and real servers in a cgroup, whose cpu.stat and the client's clock are the truth."""
import http.client
import json
import os
import re
import subprocess
import threading
import time

import pytest

import cgroups
from agent import Agent, NO_ENGINE, plain_build
from answers import Answers, ask, causes, shared  # noqa: F401: fixtures
from host import DEBIAN_PYTHON, wait_until
from servers import free_port
from store_fixture import Store
from test_request import TRACKERS

pytestmark = [plain_build(NO_ENGINE), pytest.mark.engine, pytest.mark.sole]  # the quota is to be the only shortage of CPUs
QUOTA = "the CPU quota of /pod-a (0.20 CPUs) stopped the process about {} ms of that"
LIMIT = "a higher CPU limit (resources.limits.cpu, CPUQuota=)"


def stopped(ask, at, ms, of):
    """A window of `ms` with `of` in which the quota was used up."""
    ask.row("cpu_throttle", at, ms, tid=0, cgroup="/pod-a", quota_us=20_000, period_us=100_000, throttled_ns=of * 1_000_000)


def test_a_loop(ask):
    """Its stall was mostly the quota's, which a stall counts as run queue; one window was before the request, and one is a sum over CPUs."""
    for number, of in enumerate((800, 200)):
        at = 10_000 * number
        ask.row("loop_stall", at, 1500, loop="asyncio", cpu_ns=300_000_000, runq_ns=1_200_000_000, py_stack=["render (/srv/app/shop/api.py:4)"])
        stopped(ask, at - 1000, 900, 900)
        stopped(ask, at, 1000, of)
        stopped(ask, at + 1000, 400, 700 if of == 800 else 100)
        ask.request(at + 500, {"accept_queue": 1000, "cpu": 20}, request_id=100 + number, model="loop")
    [kept], [alone] = (causes(ask, number).values() for number in ("100", "101"))
    assert kept["said"] == ("the connection waited in the listener's accept queue: the event loop did not accept it; of 1000.0 ms in which it did not poll, "
                            + QUOTA.format(800)) and kept["fix"].startswith(LIMIT), kept
    # 200 of 1000 ms are not most of it
    assert "no CPU was free most of the time" in alone["said"] and "quota" not in alone["said"], alone


def test_a_container_and_its_pod(ask):
    """Both quotas stopped the process at the same time: 40 ms each of 80 are not all of them, 30 of 80 are not half."""
    for number, of in enumerate((40, 30)):
        at = 1000 * number
        for cgroup in ("/pod-a", "/pod-a/container"):
            ask.row("cpu_throttle", at + 10, 80, tid=0, cgroup=cgroup, quota_us=20_000, period_us=100_000, throttled_ns=of * 1_000_000)
        ask.request(at + 10, {"queue": 80, "cpu": 5}, request_id=100 + number)
    [kept], [other] = causes(ask, "100").values(), causes(ask, "101").values()
    assert kept["said"] == "the request had arrived, and no thread read it: " + QUOTA.format(40), kept
    assert other["cause"] == "queue" and "quota" not in other["said"], other


def test_a_loop_that_slept_meanwhile(ask):
    """Another process of the container used the quota up: the loop's own code is the cause."""
    ask.row("loop_stall", 0, 1500, loop="asyncio", sleep_ns=1_490_000_000, py_stack=["nap (/srv/app/shop/api.py:9)"])
    stopped(ask, 0, 900, 800)
    ask.request(100, {"accept_queue": 700, "cpu": 2}, model="loop")
    [cause] = causes(ask).values()
    assert cause["fix"].startswith("in nap (shop/api.py:9), which kept the event loop") and "quota" not in cause["said"], cause


def test_a_loop_that_a_quota_kept_in_its_poll(ask):
    """No stall: the loop polled, and did not return from it."""
    stopped(ask, 0, 100, 80)
    ask.request(10, {"queue": 80, "cpu": 2}, model="loop")
    [cause] = causes(ask).values()
    assert cause["cause"] == "cpu_limit_before" and cause["fix"].startswith(LIMIT), cause
    assert cause["said"] == "the request had arrived, and the event loop did not read it: " + QUOTA.format(64), cause


@pytest.mark.parametrize("part, words", [("queue", "the request had arrived, and no thread read it"), ("accept_queue", "the connection waited in the listener's accept queue")])
def test_threads(ask, part, words):
    ask.request(-3000, {"cpu": 5}, request_id=76, tid=9)
    stopped(ask, 10, 100, 80)
    ask.row("gil_wait", 12, 75, tid=7, thread_name="MainThread", holder_tid=9, holder_thread_name="pdf")
    ask.request(10, {part: 80, "cpu": 5})
    # for less than half of it
    stopped(ask, 1010, 100, 40)
    ask.request(1010, {part: 80, "cpu": 5}, request_id=78)
    [kept], [other] = causes(ask).values(), causes(ask, "78").values()
    assert kept["cause"] == "cpu_limit_before" and kept["said"] == f"{words}: {QUOTA.format(64)}" and kept["fix"].startswith(LIMIT), kept
    assert other["cause"] == part and "quota" not in other["said"], other


def test_threads_that_other_requests_had(ask):
    """These may have slept: a thread was missing, and a quota may have made it so."""
    for i in range(2):
        ask.request(1000 * i - 20, {"sleep": 700}, request_id=70 + i, tid=8, path="/naps")
        ask.request(1000 * i, {"queue": 680, "cpu": 5}, request_id=77 + i)
    stopped(ask, 0, 700, 600)
    kept, slept = causes(ask)["threads_missing"], causes(ask, "78")["threads_missing"]
    assert kept["said"] == slept["said"] + "; " + QUOTA.format(583) and kept["fix"] == slept["fix"] + "; if those compute, a higher CPU limit first", (kept, slept)


def test_the_gil(ask):
    """Its holder was stopped with it."""
    ask.row("gil_wait", 20, 90, holder_tid=9, holder_thread_name="pdf", holders=[{"tid": 9, "ns": 90_000_000, "thread_name": "pdf"}])
    stopped(ask, 20, 100, 80)
    ask.request(10, {"gil": 95, "cpu": 10})
    gil = causes(ask)["gil"]
    assert gil["said"].endswith("; " + QUOTA.format(72)) and "pdf" in gil["said"] and gil["fix"].startswith(LIMIT), gil


APP = """
import asyncio, time

def work(path):
    end = time.thread_time() + (0.2 if path.startswith("/compute") else 0)
    while time.thread_time() < end:
        sum(range(1000))

def app(environ, start_response):
    work(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "0")])
    return []

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"].endswith("/pool"):
        await asyncio.to_thread(work, scope["path"])
    else:
        work(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
"""
SERVERS = {"gthread": ("gunicorn", "-k", "gthread", "--threads", "4", "quota_app:app"), "sync": ("gunicorn", "quota_app:app"),
           "uvicorn": ("uvicorn", "--log-level=error", "quota_app:asgi")}


def get(port, path):
    """How long it took, ms."""
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    connection.getresponse().read()
    connection.close()
    return (time.monotonic() - begin) * 1000


def answers(port):
    try:
        return get(port, "/") > 0
    except OSError:
        return False


class Scene:
    """Each server computes for 0.2 s, a second of time, and has another request meanwhile."""

    def __init__(self, directory, cleanup):
        (directory / "quota_app.py").write_text(APP)
        self.store, self.quota = Store(directory / "db"), cgroups.QuotaCgroup(None)
        cleanup += [self.store, self.quota]
        self.ask = Answers(self.store)
        self.ask.apply()
        self.ports, servers = {name: free_port() for name in SERVERS}, []
        for name, (module, *argv) in SERVERS.items():
            at = ("--port", str(self.ports[name])) if module == "uvicorn" else ("-b", f"127.0.0.1:{self.ports[name]}")
            servers.append(subprocess.Popen([DEBIAN_PYTHON, "-m", module, *at, *argv], cwd=directory, preexec_fn=self.quota.enter,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            cleanup.append(servers[-1])
        for port in self.ports.values():
            wait_until(lambda: answers(port), 20, "a server answers")
        os.environ["UNDERSPAN_CLICKHOUSE_PASSWORD"] = self.store.password
        self.agent = Agent(f"--clickhouse={self.store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", f"--pid={','.join(str(s.pid) for s in servers)}",
                           stdout=False, trackers=[*TRACKERS, "off_cpu", "loop_stall", "cpu_throttle"])
        cleanup.append(self.agent)
        self.agent.wait_ready()
        time.sleep(1)
        for port in self.ports.values():
            for path in ("/", "/pool") * 3:
                get(port, path)
        self.quota.set_quota(20_000)
        self.took, self.throttled = {}, {}
        for name in SERVERS:
            self.pair(name, "/compute", "/late")
        self.pair("uvicorn", "/compute/pool", None)
        self.quota.set_quota(None)
        time.sleep(12)  # the sums of a pool's threads are of ten seconds

    def pair(self, name, path, late):
        before = self.quota.stat()["throttled_ns"]
        first = threading.Thread(target=lambda: self.took.__setitem__((name, path), get(self.ports[name], path)))
        first.start()
        time.sleep(0.25)
        if late:
            self.took[name, late] = get(self.ports[name], late)
        first.join()
        self.throttled[name, path] = (self.quota.stat()["throttled_ns"] - before) / 1e6
        time.sleep(0.3)

    def explained(self, name, path):
        [number] = self.store.ask(f"SELECT toString(request_id) FROM ebpf_request WHERE server_port = {self.ports[name]} AND path = '{path}' FORMAT TSV").split()
        done = self.ask.command("explain", "--json", number)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["requests"][0]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    if not cgroups.find_cpu_controller():
        pytest.skip("no CPU quota can be set here")
    cleanup = []
    try:
        yield Scene(tmp_path_factory.mktemp("quota"), cleanup)
    finally:
        for thing in reversed(cleanup):
            thing.kill()


def about(said):
    """The estimate: of a quota of 0.2 CPUs, and none of other work on the host."""
    assert re.search(r"the CPU quota of us-\w+ \(0\.20 CPUs\) stopped the process about \d+ ms of that", said), said
    assert "no CPU was free" not in said, said
    return float(re.search(r"about (\d+) ms", said).group(1))


@pytest.mark.parametrize("name", SERVERS)
def test_the_request_that_a_quota_stopped(scene, name):
    row = scene.explained(name, "/compute")
    largest = row["causes"][0]
    assert largest["cause"] == "cpu_limit" and largest["ms"] == pytest.approx(scene.throttled[name, "/compute"], rel=0.25), (largest, scene.throttled)
    assert row["duration_ms"] == pytest.approx(scene.took[name, "/compute"], abs=30)


def test_a_loop_in_a_cgroup(scene):
    """The next request waits until the loop has computed; most of that the quota stopped it."""
    row = scene.explained("uvicorn", "/late")
    cause = row["causes"][0]
    waited = (row["accept_queue_ms"] or 0) + (row["queue_ms"] or 0)
    assert waited > 300 and waited == pytest.approx(scene.took["uvicorn", "/late"], abs=40), row
    assert cause["cause"] == "loop_blocked" and cause["fix"].startswith(LIMIT) and 0.5 * waited < about(cause["said"]) <= waited + 1, cause


def test_a_worker_that_is_busy_in_a_cgroup(scene):
    """gunicorn's sync worker serves one request at a time."""
    row = scene.explained("sync", "/late")
    cause = row["causes"][0]
    assert row["accept_queue_ms"] > 300 and cause["cause"] == "workers_missing" and cause["fix"].endswith("if those compute, a higher CPU limit first"), cause
    assert 0.5 * row["accept_queue_ms"] < about(cause["said"]) <= row["accept_queue_ms"] + 1, cause


def test_a_pool_in_a_cgroup(scene):
    """The loop awaits a thread of its pool, which is ready and may not run."""
    row = scene.explained("uvicorn", "/compute/pool")
    [awaited] = [cause for cause in row["causes"] if cause["cause"] == "await"] if row["model"] == "loop" else [row["causes"][0]]
    assert (row["model"] == "loop" and about(awaited["said"]) and awaited["fix"].startswith(LIMIT)) or awaited["cause"] == "cpu_limit", row["causes"]
