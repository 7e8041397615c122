# SPDX-License-Identifier: Apache-2.0
"""Connections that do not begin with a request: behind a load balancer's PROXY head the requests are rows, those in TLS or HTTP/2 are counted,
and the command says so."""
import http.client
import json
import socket
import subprocess
import time

import pytest

import counts
import host
from ledger_clients import SERVERS, head, known, rows_of, send, start, unfollowed
from servers import Server, connect
from test_commands import Command
from test_request import GUNICORN, TRACKERS, total, trace_of

SERVERS.update({
    "proxied": ["proxied.py"],
    "gunicorn behind a proxy": [*GUNICORN, "-k", "gthread", "--threads", "2", "--proxy-protocol", "request_app:wsgi"],
})
V2 = b"\r\n\r\n\0\r\nQUIT\n"
HEADS = {
    "tcp4": b"PROXY TCP4 127.0.0.1 127.0.0.1 40000 80\r\n",
    "tcp6": b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n",
    "unknown": b"PROXY UNKNOWN\r\n",
    "v2": V2 + b"\x21\x11\0\x0c" + bytes([127, 0, 0, 1, 127, 0, 0, 1, 1, 1, 2, 2]),
    "v2 local": V2 + b"\x20\0\0\0",
    "v2 long": V2 + b"\x21\x11\x02\0" + b"GET / HTTP/1.1\r\n" * 32,
}


def answered(s):
    """The status of the next answer, read to its end."""
    answer = http.client.HTTPResponse(s)
    answer.begin()
    answer.read()
    return answer.status


@pytest.mark.parametrize("name", ["proxied", "gunicorn behind a proxy"])
def test_a_proxys_head_before_the_first_request(name, start_agent, cleanup, debian_python):
    """In one read with the request or in its own; then a second request. A head that no request follows is counted."""
    server = start(cleanup, debian_python, name)
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), trackers=TRACKERS)
    heads = [text for key, text in HEADS.items() if name == "proxied" or not key.startswith("v2") and key != "unknown"]

    def is_known():
        send(server.port, [heads[0] + head(b"/known", 0)])
        return agent.select("ebpf_request", lambda r: r["server_port"] == server.port)
    host.wait_until(is_known, 30, "a row")
    sent = {}
    for apart in (False, True):
        for text in heads:
            with socket.create_connection(("127.0.0.1", server.port)) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for more in range(2):
                    i = len(sent) + 1
                    before = b"" if more else text
                    if before and apart:
                        s.sendall(before)
                        time.sleep(0.05)
                        before = b""
                    sent[trace_of(i)] = more, len(before), f"/{i}"
                    s.sendall(before + head(b"/%d" % i, i))
                    assert answered(s) == 200
    send(server.port, [heads[0]])
    send(server.port, [heads[0] + b"\0\1\2\xff\r\n\r\n"])
    send(server.port, [heads[0] + head(b"/last", 0)])
    agent.wait_rows("ebpf_request", lambda r: r["path"] == "/last" and r["server_port"] == server.port)
    agent.stop()
    rows = {r["trace_id"]: r for r in rows_of(agent, server) if r["trace_id"] in sent}
    assert rows.keys() == sent.keys()
    for i, (trace, (more, before, path)) in enumerate(sent.items(), 1):
        row = rows[trace]
        assert (row["method"], row["path"], row["status"], row["outcome"]) == ("GET", path, 200, "answered"), row
        assert row["connection_request"] == more + 1 and row["bytes_in"] == before + len(head(path.encode(), i)), row
        assert total(row) == row["duration_ns"] and not row["not_measured"], row
    assert unfollowed(agent) == {"others": 2}
    counts.check(agent)


CLIENT = """
import http.client, ssl, sys, time
connection = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=ssl._create_unverified_context())
while True:
    connection.request("GET", "/")
    connection.getresponse().read()
    print("asked", file=sys.stderr, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def encrypted(debian_python, cleanup, tmp_path):
    """gunicorn with TLS, and a client that keeps a connection from before any agent begins."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                    "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    SERVERS["in TLS"] = [*GUNICORN, "-k", "gthread", "--threads", "3", "--keep-alive", "600", "--keyfile", str(key), "--certfile",
                         str(certificate), "request_app:wsgi"]
    server = start(cleanup, debian_python, "in TLS")
    server.client = Server([debian_python.path, "-c", CLIENT, str(server.port)])
    cleanup.append(server.client)
    server.client.wait_log("asked")
    return server


def ask_in_tls(server, n):
    for _ in range(n):
        with connect(("127.0.0.1", server.port), tls=True) as s:
            s.sendall(head(b"/", 1))
            assert answered(s) == 200
    server.client.wait_log("asked", len(server.client.log) + 3)


def test_connections_in_tls_are_counted(encrypted, start_agent):
    """One from before the agent's start, and new ones; the client's end of the first is no connection to a server."""
    agent = start_agent("--request.min_duration_us=0", "--pid", str(encrypted.pid), "--pid", str(encrypted.client.pid), trackers=TRACKERS)
    for process in (encrypted, encrypted.client):
        agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == process.pid and r["tracker"] == "request")
    ask_in_tls(encrypted, 4)
    agent.stop()
    assert unfollowed(agent) == {"TLS": 5} and not agent.rows["ebpf_request"]
    counts.check(agent)


@pytest.mark.parametrize("n", [0, 3])
def test_the_command_says_that_connections_are_in_tls(n, encrypted, cleanup):
    """Not only that no request ended."""
    command = Command("requests", "-p", encrypted.pid, "-d", 0, "--json")
    cleanup.append(command)
    command.wait_for(b": 2 s")
    ask_in_tls(encrypted, n)
    found = json.loads(command.stop())
    said = "connections with TLS inside the process" if n else "connection with TLS inside the process"
    assert found["requests"] == 0 and found["notes"] == [f"{n + 1} {said}; their requests have no rows"], found


HTTP2_SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print("Listening at:", listener.getsockname()[1], file=sys.stderr, flush=True)
connection = listener.accept()[0]
while connection.recv(65536):
    connection.sendall(bytes.fromhex("000001 01 05 00000001 88"))
"""
HTTP2_CLIENT = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes.fromhex("000000 04 00 00000000"))
for i in range(1, 1 << 20, 2):
    connection.recv(65536)
    print("asked", file=sys.stderr, flush=True)
    time.sleep(0.1)
    connection.sendall(bytes.fromhex("000003 01 05") + i.to_bytes(4, "big") + bytes.fromhex("828684"))
"""


def test_a_connection_of_http2_from_before_the_agents_start_is_counted(start_agent, cleanup, debian_python):
    """As gRPC's channels are, which live as long as their client. The client's end is no connection to a server, though answers begin alike."""
    server = Server([debian_python.path, "-c", HTTP2_SERVER])
    cleanup.append(server)
    port = server.wait_log(r"Listening at: (\d+)")[0].group(1)
    client = Server([debian_python.path, "-c", HTTP2_CLIENT, port])
    cleanup.append(client)
    client.wait_log("asked", 2)
    agent = start_agent("--request.min_duration_us=0", "--pid", str(server.pid), "--pid", str(client.pid), trackers=TRACKERS)
    for process in (server, client):
        agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == process.pid and r["tracker"] == "request")
    client.wait_log("asked", len(client.log) + 5)
    agent.stop()
    assert unfollowed(agent) == {"HTTP/2": 1} and not agent.rows["ebpf_request"]
    counts.check(agent)
