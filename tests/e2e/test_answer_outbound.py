# SPDX-License-Identifier: Apache-2.0
"""`explain` names the request of another watched server that a request waited for, and never another's: connections that are new, and that
were there before; alone, and with other requests of the process. Each question has a path of its own, which is the truth."""
import concurrent.futures
import http.client
import json
import os
import re
import subprocess
import time

import pytest

from agent import Agent, NO_ENGINE, plain_build
from answers import Answers
from host import DEBIAN_PYTHON, WORKLOADS, wait_until
from servers import free_port
from store_fixture import Store
from test_request import TRACKERS

pytestmark = plain_build(NO_ENGINE)
UPSTREAM = """
import time

def app(environ, start_response):
    time.sleep(0.004 if "-" in environ["PATH_INFO"] or environ["PATH_INFO"] == "/background" else 0.15)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
FRONTS = {"gthread": ("gunicorn", "-k", "gthread", "--threads", "4", "outbound_app:app"), "sync": ("gunicorn", "outbound_app:app"),
          "uvicorn": ("uvicorn", "outbound_app:asgi")}
MANY, SLEPT_MS = 30, 150  # of outbound_app.py, of UPSTREAM


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    assert connection.getresponse().read() == b""
    connection.close()


def listens(port):
    try:
        http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()
    except OSError:
        return False
    return True


class Scene:
    def __init__(self, directory, cleanup, monkeypatch):
        (directory / "upstream_app.py").write_text(UPSTREAM)
        self.ports = {name: free_port() for name in (*FRONTS, "upstream")}
        self.environment = {**os.environ, "UPSTREAM_PORT": str(self.ports["upstream"]), "OUTBOUND_BACKGROUND": "yes"}
        store = Store(directory / "db")
        cleanup.append(store)
        self.ask = Answers(store)
        self.ask.apply()
        monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
        servers = [self._start(cleanup, directory, "upstream", "gunicorn", "-k", "gthread", "--threads", "16", "--keep-alive", "60", "upstream_app:app")]
        wait_until(lambda: listens(self.ports["upstream"]), 20, "the upstream server")
        servers += [self._start(cleanup, WORKLOADS, name, *argv) for name, argv in FRONTS.items()]
        for name in FRONTS:
            wait_until(lambda: listens(self.ports[name]), 20, name)
        self.agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0",
                           f"--pid={','.join(str(server.pid) for server in servers)}", stdout=False, trackers=[*TRACKERS, "off_cpu", "tcp_connect"])
        cleanup.append(self.agent)
        self.agent.wait_ready()
        time.sleep(1)

    def _start(self, cleanup, directory, name, module, *argv):
        at = ("--port", str(self.ports[name])) if module == "uvicorn" else ("-b", f"127.0.0.1:{self.ports[name]}")
        cleanup.append(subprocess.Popen([DEBIAN_PYTHON, "-m", module, *at, *argv], cwd=directory, env=self.environment, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL))
        return cleanup[-1]

    def explained(self):
        """{(server, path): its row of explain --json}"""
        ports = {port: name for name, port in self.ports.items()}
        rows = self.ask.store.ask("SELECT toString(request_id) AS id FROM ebpf_request WHERE server_port IN "
                                  f"({','.join(str(self.ports[name]) for name in FRONTS)}) FORMAT JSONEachRow").splitlines()
        found = {}
        for row in rows:
            done = self.ask.command("explain", "--json", json.loads(row)["id"])
            assert done.returncode == 0, done.stderr
            [request] = json.loads(done.stdout)["requests"]
            found[ports[request["server_port"]], request["path"]] = request
        return found


def upstream_rows(scene):
    """{path: request id}"""
    text = scene.ask.store.ask(f"SELECT path, toString(request_id) AS id FROM ebpf_request WHERE server_port = {scene.ports['upstream']} FORMAT JSONEachRow")
    return {row["path"]: row["id"] for row in map(json.loads, text.splitlines())}


def test_the_request_that_it_waited_for_is_named(tmp_path, cleanup, monkeypatch):
    scene = Scene(tmp_path, cleanup, monkeypatch)
    sent = []

    def send(name, kind):
        sent.append((name, kind, len(sent)))
        return scene.ports[name], f"/{kind}/{sent[-1][2]}"

    for name in FRONTS:
        get(*send(name, "kept"))  # the connections are there
    time.sleep(2)
    for name in FRONTS:
        for kind in ("new", "kept") * 4 + (("many",) if name != "uvicorn" else ()):
            get(*send(name, kind))
    crowd = len(sent)
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        list(clients.map(lambda a: get(*a), [send(name, kind) for name in FRONTS for kind in ("new", "kept") * 6]))
    wait_until(lambda: scene.ask.store.ask(f"SELECT count() FROM ebpf_request WHERE server_port != {scene.ports['upstream']} AND path != '/'") == f"{len(sent)}\n", 30,
               "all rows")
    ids, rows = upstream_rows(scene), scene.explained()
    linked = {}
    for name, kind, n in sent[len(FRONTS):]:
        row = rows[name, f"/{kind}/{n}"]
        lines = row.get("outbound", [])
        if kind == "many":
            [line] = lines
            assert MANY * 0.9 <= line["requests"] <= MANY and line["path"].startswith(f"/{n}-"), line
            [cause] = [c for c in row["causes"] if c["cause"] == "net"]
            assert f"{line['requests']:.0f} requests" in cause["said"] and "at once" in cause["fix"], cause
            continue
        # never another's request, nor the background's
        assert not lines or ([line["path"] for line in lines] == [f"/{n}"] and lines[0]["request_id"] == ids[f"/{n}"]), (name, kind, n, lines)
        if lines:
            [cause] = [c for c in row["causes"] if c["cause"] in ("net", "await")]
            assert f"underspan explain {ids[f'/{n}']}" in cause["fix"], cause
            assert SLEPT_MS - 2 <= float(re.search(r"the largest parts there: sleep ([\d.]+)", cause["said"])[1]) <= lines[0]["ms"] <= row["duration_ms"], cause
        linked.setdefault((name, kind, "alone" if n < crowd else "crowd"), []).append(bool(lines))
    shares = {key: sum(found) / len(found) for key, found in linked.items()}
    print(shares)
    for (name, kind, when), share in shares.items():
        if name == "sync" or when == "alone" or (name == "gthread" and kind == "new"):
            assert share >= (0.75 if kind == "new" else 0.5), shares
