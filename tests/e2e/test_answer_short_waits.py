# SPDX-License-Identifier: Apache-2.0
"""Waits that are too short for rows, of two endpoints that one thread serves in turn: the sums of the thread name a line for requests of the endpoint
that has nearly all such time, and none for the other's, whose own line is another."""
import http.client
import json
import time

import servers
from agent import NO_ENGINE, plain_build
from answer_watched import watched
from test_request import trace_of

pytestmark = plain_build(NO_ENGINE)
APP = r'''
import http.server, sys, time

def wait_often():
    for _ in range(60): time.sleep(0.0003)

def wait_elsewhere():
    for _ in range(60): time.sleep(0.0003)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        {"/often": wait_often, "/elsewhere": wait_elsewhere}[self.path]()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''


def get(port, path, i):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path, headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
    connection.getresponse().read()
    connection.close()
    return trace_of(i)


def test_a_line_of_another_endpoint_is_not_named(tmp_path, cleanup, debian_python, monkeypatch):
    (tmp_path / "app.py").write_text(APP)
    port = servers.free_port()
    server = servers.Server([debian_python.path, str(tmp_path / "app.py"), str(port)], cwd="/tmp")
    ask, agent = watched(server, tmp_path, cleanup, monkeypatch, lambda: get(port, "/often", 10**6), ["off_cpu"])
    time.sleep(1)
    of = {"/often": [], "/elsewhere": []}
    for i in range(1, 133):
        path = "/elsewhere" if i % 12 == 6 else "/often"
        of[path].append(get(port, path, i))
    agent.stop()
    named = {path: [] for path in of}
    for path, traces in of.items():
        for trace in traces[2:8]:
            done = ask.command("explain", "--json", trace)
            assert done.returncode == 0, done.stderr
            [row] = [r for r in json.loads(done.stdout)["requests"] if r["pid"] == server.pid]
            if row["places"]:  # one of its waits was long enough for a row
                continue
            [slept] = [c["said"] for c in row["causes"] if c["cause"] == "sleep"]
            named[path].append("wait_often" if "in wait_often (" in slept else "wait_elsewhere" if "in wait_elsewhere (" in slept else "")
    print(named)
    assert len(named["/often"]) > 1 < len(named["/elsewhere"]), named
    assert set(named["/often"]) == {"wait_often"} and set(named["/elsewhere"]) == {""}, named
