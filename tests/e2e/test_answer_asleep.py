# SPDX-License-Identifier: Apache-2.0
"""What `explain` says of a request that waited for the only thread of its process, while that thread waited for the next bytes of another
client: a browser that connects ahead and sends nothing, a kept connection that is idle. The clients' clocks are the truth."""
import contextlib
import json
import socket
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

pytestmark = [plain_build(NO_ENGINE), pytest.mark.sole]  # milliseconds beside a wait of half a second
APP = """
from http.server import BaseHTTPRequestHandler, HTTPServer

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

if __name__ == "__main__":
    import sys
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
HELD_MS = 600
# how to start, what the other client sends first, the function in which the thread waits
SERVERS = {"gunicorn sync": (["-m", "gunicorn", "--workers", "1", "-b", "127.0.0.1:{port}", "asleep_app:app"], "", "unreader.py"),
           "http.server": (["asleep_app.py", "{port}"], "/first", "socket.py")}


def connect(port):
    return contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=20))


def get(client, path):
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    assert client.recv(4096).startswith(b"HTTP/1.1 200")


def get_late(port, path, times):
    begun = time.monotonic()
    with connect(port) as client:
        get(client, path)
        times.append((time.monotonic() - begun) * 1000)


@pytest.mark.parametrize("server", SERVERS)
def test_the_only_thread_waited_for_another_client(server, tmp_path, monkeypatch):
    (words, first, where), port, times = SERVERS[server], free_port(), []
    (tmp_path / "asleep_app.py").write_text(APP)
    process = subprocess.Popen([DEBIAN_PYTHON, *(word.format(port=port) for word in words)], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Store(tmp_path / "db") as store:
            ask = Answers(store)
            ask.apply()
            monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
            wait_until(lambda: subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True).stdout, 20, "the server")
            agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", f"--pid={process.pid}", stdout=False,
                          trackers=[*TRACKERS, "off_cpu", "tcp_accept"])
            try:
                agent.wait_ready()
                time.sleep(1)
                with connect(port) as other:
                    if first:
                        get(other, first)
                    time.sleep(0.1)
                    begun, client = time.monotonic(), threading.Thread(target=get_late, args=(port, "/late", times))
                    client.start()
                    time.sleep(HELD_MS / 1000)
                    held_ms = (time.monotonic() - begun) * 1000
                client.join()
                time.sleep(1)
            finally:
                agent.stop()
            id = store.ask("SELECT toString(request_id) FROM ebpf_request WHERE path = '/late'").strip()
            [row] = json.loads(ask.command("explain", "--json", id).stdout)["requests"]
    finally:
        process.terminate()
        process.wait()
    assert abs(row["duration_ms"] - times[0]) < 20 and abs(row["accept_queue_ms"] - held_ms) < 20, (row["duration_ms"], row["accept_queue_ms"], times, held_ms)
    [cause] = [c for c in row["causes"] if c["ms"] > HELD_MS / 2]
    assert cause["cause"] == "thread_asleep" and "which accepts connections, waited for the network, in " in cause["said"], cause
    assert where in cause["said"] and "a proxy in front that takes whole requests" in cause["fix"], cause
    assert abs(float(cause["said"].rsplit(", ", 1)[1].split(" ms of that")[0]) - held_ms) < 20, (cause, held_ms)
