# SPDX-License-Identifier: Apache-2.0
"""Three incidents whose causes lie outside of Python, on werkzeug's server: a client that does not read, a CPU quota, a disk. The first
screen of `requests --html` names cause and fix, and the largest part of Grafana's panel is the cause's."""
import collections
import http.client
import json
import os
import re
import socket
import subprocess
import time

import pytest

import cgroups
from agent import NO_ENGINE, UNDERSPAN, plain_build
from servers import free_port
from store_fixture import Store
from test_grafana import SQL, expand
from test_incidents import DEMO, command, first_screen

pytestmark = [plain_build(NO_ENGINE), pytest.mark.sole]  # an incident has one cause only on a quiet machine
APP = """
import os, sys, time
from werkzeug.serving import run_simple

def export():
    return [b"x" * (1 << 20)] * 12

def render():
    end = time.thread_time() + 0.15
    while time.thread_time() < end: sum(range(1000))
    return [b"done"]

def save():
    with open(sys.argv[2], "wb") as file:
        for _ in range(40):
            file.write(b"y" * (1 << 20)); file.flush(); os.fsync(file.fileno())
    return [b"done"]

def app(environ, start_response):
    body = {"/export": export, "/render": render, "/save": save}.get(environ["PATH_INFO"], lambda: [b"done"])()
    start_response("200 OK", [("Content-Length", str(sum(map(len, body))))])
    return body

run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True)
"""
# incident: (path, sentence, fix, column of Grafana's panel)
CAUSES = {
    "client": ("/export", r"the client read the answer \(12\d{6} bytes\) more slowly than the server wrote.*; the client is \S+, pid \d+", "find what kept that client from reading", "slow client"),
    "quota": ("/render", r"the CPU quota of us-\w+ was used up \(0\.20 CPUs\)", "a higher CPU limit", "CPU quota"),
    "disk": ("/save", r"the thread waited for a disk, (?:[0-9.]+ ms of it )?in save \(.*app\.py:\d+\)", r"fewer waits for that volume \(fsync", "disk"),
}


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    connection.getresponse().read()
    connection.close()


def read_late(port, path):
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.connect(("127.0.0.1", port))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        time.sleep(1.5)
        while client.recv(1 << 20):
            pass


def measured(ask, path):
    """Milliseconds of each of three requests, as the client saw them."""
    told = []
    for _ in range(3):
        begin = time.monotonic()
        ask(path)
        told.append(1000 * (time.monotonic() - begin))
    return told


def incident(name, store, directory):
    path, port = CAUSES[name][0], free_port()
    quota = cgroups.QuotaCgroup(20_000) if name == "quota" else None
    service = subprocess.Popen(["/usr/bin/python3", directory / "app.py", str(port), directory / "saved"], stderr=subprocess.DEVNULL,
                               preexec_fn=quota and quota.enter, env={**os.environ, "OTEL_SERVICE_NAME": f"web-{name}"})
    try:
        DEMO["until_watched"](port, lambda sql: int(store.ask(sql)))
        told = measured(lambda path: (read_late if name == "client" else get)(port, path), path)
    finally:
        service.terminate()
        service.wait(10)
        if quota:
            quota.kill()
    DEMO["until"](lambda: int(store.ask(f"SELECT count() FROM ebpf_request WHERE server_port = {port} AND path = '{path}'")) == len(told))
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    directory = tmp_path_factory.mktemp("outside")
    (directory / "app.py").write_text(APP)
    with Store(directory / "db") as store:
        command(store, "schema", "--apply")
        agent = subprocess.Popen([UNDERSPAN, "run", f"--clickhouse={store.url}", "--flush_interval=1", "--request.min_duration_us=0", "--request.profile_interval=1",
                                  "--off_cpu.min_duration_us=100",  # a fast disk answers an fsync() in less than a millisecond
                                  f"--spool.directory={directory / 'spool'}", "--governor.cpu_percent=0"],
                                 env={**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}, stderr=subprocess.PIPE, text=True)
        try:
            while "ready" not in agent.stderr.readline():
                assert agent.poll() is None
            found = {name: incident(name, store, directory) for name in CAUSES if name != "quota" or cgroups.find_cpu_controller()}
        finally:
            agent.terminate()
            agent.wait(30)
        yield store, found


@pytest.mark.parametrize("name", CAUSES)
def test_the_first_screen_names_the_cause(told, browser, tmp_path, name):
    store, loads = told
    if name not in loads:
        pytest.skip("no CPU quota can be set here")
    path, said, fix, _ = CAUSES[name]
    choice = ["requests", "--since=1h", f"--service=web-{name}", f"--path={path}"]
    rows = json.loads(command(store, *choice, "--json"))["slowest"]
    assert sorted(r["duration_ns"] / 1e6 for r in rows) == pytest.approx(sorted(loads[name]), rel=0.05, abs=20)
    page = tmp_path / "page.html"
    page.write_text(command(store, *choice, "--html"))
    seen = first_screen(browser, page)
    assert re.search(said, seen) and re.search(f"fix: {fix}", seen), seen
    if name == "client":
        assert f"pid {os.getpid()}" in seen, seen


@pytest.mark.parametrize("name", CAUSES)
def test_grafanas_largest_part_is_the_cause(told, name):
    store, loads = told
    if name not in loads:
        pytest.skip("no CPU quota can be set here")
    now = int(time.time())
    sql = expand(SQL["service", "Parts of the mean request"], now - 3600, now + 60, service=f"web-{name}")
    answer = json.loads(store.ask(sql, default_format="JSON", output_format_json_quote_64bit_integers=0, readonly=2))
    sums = collections.Counter()
    for row in answer["data"]:
        sums.update({part: ms or 0 for part, ms in row.items() if part not in ("time", "CPU", "run queue")})
    assert sums.most_common(1)[0][0] == CAUSES[name][3], sums
