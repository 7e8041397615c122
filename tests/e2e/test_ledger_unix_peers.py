# SPDX-License-Identifier: Apache-2.0
"""The service that a handler waited for longest, where it is reached over a unix socket (PostgreSQL, Redis, a sidecar): the row has what the
service gave to bind(), on threads, a sync worker and a loop's pool, beside services over TCP. How long is the handler's own measurement."""
import http.client
import json
import os
import subprocess
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
import asyncio, json, os, socket, threading, time

ODD = "odd\\x1b[31m\\nname.sock"
ADDRESSES = {"db": os.getcwd() + "/db.sock", "cache": os.getcwd() + "/cache.sock", "abstract": "\\0under\\0span-" + os.environ["PORT"], "odd": ODD}
own = threading.local()

def serve(listener):
    def one(connection):
        while ms := connection.recv(16):
            time.sleep(int(ms) / 1000)
            connection.sendall(b"k")
    listener.listen(64)
    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

def ask(name, ms):
    if not hasattr(own, name):  # a connection of the thread, as of a pool of them
        if name == "tcp":
            connection = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])))
        elif name == "pair":
            connection, other = socket.socketpair()
            threading.Thread(target=lambda: [(time.sleep(int(m) / 1000), other.send(b"k")) for m in iter(lambda: other.recv(16), b"")], daemon=True).start()
        else:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(ADDRESSES[name])
        setattr(own, name, connection)
    connection = getattr(own, name)
    connection.send(str(ms).encode())
    assert connection.recv(1) == b"k"

def work(path):
    took = {}
    for step in path.strip("/").split("+"):
        name, _, ms = step.partition("-")
        if ms:
            begin = time.monotonic()
            ask(name, int(ms))
            took[name] = took.get(name, 0) + (time.monotonic() - begin) * 1000
    return json.dumps(took).encode()

def app(environ, start_response):
    body = work(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        body = await asyncio.to_thread(work, scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
        await send({"type": "http.response.body", "body": body})

if __name__ == "__main__":
    for address in ADDRESSES.values():
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        threading.Thread(target=serve, args=(listener,)).start()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(os.environ["PORT"])))
    serve(listener)
"""
SERVERS = {"gthread": ["gunicorn", "-k", "gthread", "--threads", "3", "peers_app:app"], "sync": ["gunicorn", "peers_app:app"],
           "uvicorn": ["uvicorn", "--log-level=error", "peers_app:asgi"]}
# path of a request: the peer with most of the time
PEERS = {"/db-120": "db", "/cache-60+db-150": "db", "/cache-140+db-50": "cache", "/abstract-100": "abstract", "/odd-100": "odd", "/tcp-120+db-40": "tcp",
         "/tcp-30+cache-90": "cache", "/pair-100": None, "/pair-120+db-40": "db", "/db-40+db-40+cache-60": "db"}
ROUNDS = 2


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return json.loads(body)


def answers(port):
    try:
        return get(port, "/up") == {}
    except OSError:
        return False


class Scene:
    def __init__(self, directory, cleanup):
        (directory / "peers_app.py").write_text(APP)
        self.directory, self.service_port, self.ports = directory, free_port(), {name: free_port() for name in SERVERS}
        self.paths = {"db": f"{directory}/db.sock", "cache": f"{directory}/cache.sock", "abstract": f"@under@span-{self.service_port}",
                      "odd": "odd\x1b[31m\nname.sock", "tcp": "", None: ""}
        environment = {**os.environ, "PORT": str(self.service_port)}
        store = Store(directory / "store")
        cleanup.append(store)
        self.ask = Answers(store)
        self.ask.apply()
        os.environ["UNDERSPAN_CLICKHOUSE_PASSWORD"] = store.password
        cleanup.append(subprocess.Popen([DEBIAN_PYTHON, "peers_app.py"], cwd=directory, env=environment))
        servers = []
        for name, argv in SERVERS.items():
            at = ["--port", str(self.ports[name])] if name == "uvicorn" else ["-b", f"127.0.0.1:{self.ports[name]}"]
            servers.append(subprocess.Popen([DEBIAN_PYTHON, "-m", *argv, *at], cwd=directory, env=environment, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL))
            cleanup.append(servers[-1])
        for port in self.ports.values():
            wait_until(lambda: answers(port), 20, "a server answers")
        wait_until(lambda: b"db.sock" in open("/proc/net/unix", "rb").read() and f"span-{self.service_port}".encode() in open("/proc/net/unix", "rb").read(),
                   20, "the services listen")
        agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", f"--pid={','.join(str(s.pid) for s in servers)}",
                      stdout=False, trackers=[*TRACKERS, "off_cpu"])
        cleanup.append(agent)
        agent.wait_ready()
        time.sleep(1)
        self.truth = self._calls()

    def _calls(self):
        """{(server, path): [the handler's {name: ms}] of each round}"""
        truth = {}
        for name, port in self.ports.items():
            for _ in range(3):  # the threads of a pool are known by earlier work
                get(port, "/up")
            for path in [*PEERS] * ROUNDS:
                truth.setdefault((name, path), []).append(get(port, path))
        wait_until(lambda: len(self.rows()) == len(truth) * ROUNDS, 20, "a row for each request")
        return truth

    def rows(self):
        return [json.loads(line) for line in self.ask.store.ask(
            f"SELECT toString(request_id) AS id, * FROM ebpf_request WHERE path != '/up' AND server_port IN ({','.join(map(str, self.ports.values()))})"
            " ORDER BY start_time FORMAT JSONEachRow").splitlines()]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    cleanup = []
    try:
        yield Scene(tmp_path_factory.mktemp("peers"), cleanup)
    finally:
        for thing in reversed(cleanup):
            thing.kill()
            if hasattr(thing, "wait"):
                thing.wait()


def test_the_row_names_the_service(scene):
    names, seen, linked = {port: name for name, port in scene.ports.items()}, {}, set()
    for row in scene.rows():
        server, path = names[row["server_port"]], row["path"]
        its = seen.setdefault((server, path), [])
        took, peer = scene.truth[server, path][len(its)], PEERS[path]
        its.append(row)
        if row["model"] == "loop":  # a pool's thread that could not be told from others: said so, and nobody is named
            assert server == "uvicorn" and "work_elsewhere" in row["not_measured"] and not row["net_peer_path"], row
            continue
        linked.add((server, path))
        assert row["net_peer_path"] == scene.paths[peer], (server, row)
        assert row["net_peer_port"] == (scene.service_port if peer == "tcp" else 0), (server, row)
        assert row["net_peer_ip"] == ("::ffff:127.0.0.1" if peer == "tcp" else "::"), (server, row)
        # the handler's clock has its own work between the waits, too: what the row has beside `net`
        net, by_peer = int(row["net_ns"]) / 1e6, int(row["net_peer_ns"]) / 1e6
        work = sum(int(row[f"{part}_ns"] or 0) for part in ("cpu", "runq", "gil", "lock", "fault", "throttled", "other", "gc_own", "gc_sibling")) / 1e6
        assert sum(took.values()) - work - 1 < net < sum(took.values()) + 1, (server, took, row)
        assert took.get(peer, 0) - work - 1 < by_peer < took.get(peer, 0) + 1, (server, took, row)
    assert len(linked) >= len(seen) - 2  # of each path at least one, but for two
    assert set(seen) == {(server, path) for server in SERVERS for path in PEERS} and all(len(rows) == ROUNDS for rows in seen.values())


@pytest.mark.parametrize("path", ["/db-120", "/odd-100", "/abstract-100", "/pair-100", "/tcp-120+db-40"])
def test_explain_names_it(scene, path):
    for row in [row for row in scene.rows() if row["path"] == path and row["model"] != "loop"]:
        done = scene.ask.command("explain", row["id"])
        assert done.returncode == 0, done.stderr
        text, peer = "".join(done.stdout.split()), PEERS[path]  # lines are folded within a path
        shown = f"127.0.0.1port{scene.service_port}" if peer == "tcp" else scene.paths[peer].replace("\x1b", "?").replace("\n", "?")
        assert "\x1b" not in done.stdout
        if peer is None:
            assert "ofit:" not in text and "thethreadwaitedforsockets" in text, text
        else:
            assert f"ofit:{shown}" in text and f"ofitfor{shown}" in text, text


def test_requests_names_it(scene):
    done = scene.ask.command("requests", "--since=10m", "--by=net", "--top=60")
    assert done.returncode == 0, done.stderr
    assert f"(mostly {scene.paths['db']})" in done.stdout and "(mostly odd?[31m?name.sock)" in done.stdout, done.stdout
    assert "\x1b" not in done.stdout
