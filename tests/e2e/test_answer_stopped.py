# SPDX-License-Identifier: Apache-2.0
"""A process that a signal stops in the middle of requests: the time is not that of the call or the code in which it was stopped."""
import http.client
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from agent import Agent, NO_ENGINE, plain_build
from answers import Answers
from host import DEBIAN_PYTHON, wait_until
from servers import free_port
from store_fixture import Store
from test_request import TRACKERS

pytestmark = plain_build(NO_ENGINE)
APP = """
import time

def app(environ, start_response):
    name = environ["PATH_INFO"][1:]
    until = time.thread_time() + 0.3
    if name == "sleep":
        time.sleep(0.3)
    while name == "compute" and time.thread_time() < until:
        pass
    start_response("200 OK", [("Content-Length", "0")])
    return []
"""
STOPPED_MS = 500


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
                for path in "/sleep", "/compute":
                    times = {}
                    client = threading.Thread(target=lambda: times.update(client=get(port, path)))
                    client.start()
                    time.sleep(0.15)
                    begun = time.monotonic()
                    os.kill(worker, signal.SIGSTOP)
                    time.sleep(STOPPED_MS / 1000)
                    os.kill(worker, signal.SIGCONT)
                    times["stopped"] = (time.monotonic() - begun) * 1000
                    client.join()
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


@pytest.mark.parametrize("path", ["/sleep", "/compute"])
def test_the_time_of_a_stopped_process_is_no_calls(stopped, path):
    client_ms, stopped_ms, row = stopped[path]
    assert abs(row["duration_ms"] - client_ms) < 50, (row["duration_ms"], client_ms)
    assert abs(row["other_ms"] - stopped_ms) < 30, (row["other_ms"], stopped_ms)
    [cause] = [c for c in row["causes"] if c["cause"] == "stopped"]
    assert cause["said"].startswith("the thread was stopped by a signal or a debugger, in app (") and "SIGSTOP" in cause["fix"], cause
    [wait] = [w for w in row["waits"] if w["cause"] == "stopped"]
    assert abs(wait["end_us"] - wait["begin_us"] - stopped_ms * 1000) < 30_000, wait
    # asleep until it was stopped: the sleep's time was over when it went on
    before_ms = (wait["begin_us"] - row["handled_us"]) / 1000
    assert before_ms - row["cpu_ms"] - row["runq_ms"] - 5 < row["sleep_ms"] < before_ms if path == "/sleep" else row["sleep_ms"] < 1, (before_ms, row["sleep_ms"])
