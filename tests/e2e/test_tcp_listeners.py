# SPDX-License-Identifier: Apache-2.0
"""Listeners as in real servers: shared by forked workers or one per worker, of both families, handed over
by another process. The accepting process is right, and the drops of each equal nstat's."""
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from conftest import GUNICORNS
from host import wait_until
from netns import in_namespace, tcp_counters
from servers import Gunicorn, Server, get
from test_tcp_accept import ALL, TABLE
from test_tcp_connect import plain

CONF = """
daemon off; worker_processes 3; pid {dir}/nginx.pid; error_log stderr warn; user root;
events {{ worker_connections 256; accept_mutex {mutex}; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    server {{
        listen 127.0.0.1:8080 backlog=3 {reuseport}; listen [::1]:8080 backlog=4 {reuseport};
        default_type application/json;
        location / {{ return 200 "$pid"; }}
    }}
}}
"""


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


def flood(netns, addresses, n):
    """More clients than the queues hold, in a namespace without accept(); the SYNs and last ACKs are sent
    again."""
    def run():
        clients = []
        for _ in range(n):
            for address in addresses:
                client = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
                client.setblocking(False)
                client.connect_ex(address)
                clients.append(client)
            time.sleep(0.01)
        time.sleep(1.5)
        for client in clients:
            client.close()
    in_namespace(netns, run)


def overflow(agent, netns, server, workers, addresses):
    """Workers are stopped while clients come: rows of kind 'dropped' add up to the namespace's counters."""
    before = tcp_counters(server.pid)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    flood(netns, addresses, 20)
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.3)
    after = tcp_counters(server.pid)
    time.sleep(1.2)  # the agent asks each second
    server.kill()
    agent.stop()
    rows = [r for r in agent.rows[TABLE] if r["netns"] == netns.inode and r["kind"] == "dropped"]
    truth = {name: after[name] - before[name] for name in ("ListenOverflows", "ListenDrops")}
    assert truth["ListenOverflows"] > 10
    found = {"ListenOverflows": sum(r["overflows"] for r in rows), "ListenDrops": sum(r["drops"] for r in rows)}
    assert found == truth, [(r["listen_ip"], r["host_pid"], r["drops"], r["overflows"]) for r in rows]
    assert {(plain(r["listen_ip"]), r["local_port"]) for r in rows} == set(addresses)
    return rows


@pytest.mark.parametrize("reuseport,mutex", [("", "off"), ("", "on"), ("reuseport", "off")])
def test_nginx(start_agent, netns, cleanup, tmp_path, reuseport, mutex):
    agent = start_agent(ALL, trackers=["tcp_accept"])
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF.format(dir=tmp_path, reuseport=reuseport, mutex=mutex))
    nginx = Server([*netns.prefix, "/usr/sbin/nginx", "-e", "stderr", "-c", str(conf), "-p", str(tmp_path)])
    cleanup.append(nginx)
    wait_until(lambda: len(children_of(nginx.pid)) == 3, 10, "three workers")
    workers, addresses = children_of(nginx.pid), [("127.0.0.1", 8080), ("::1", 8080)]

    def ask():
        truth = {}
        for i in range(61):
            address = addresses[i % 2]
            pid, port = get(address)
            truth[address[0], port] = pid
        return truth
    _, truth = in_namespace(netns, ask)
    assert set(truth.values()) <= set(workers)
    rows = overflow(agent, netns, nginx, workers, addresses)
    assert {r["host_pid"] for r in rows} <= {*workers, nginx.pid}
    accepted = [r for r in agent.rows[TABLE] if r["netns"] == netns.inode and r["kind"] == "accepted"]
    found = {(plain(r["listen_ip"]), r["remote_port"]): r["host_pid"] for r in accepted}
    assert {key: found.get(key) for key in truth} == truth
    assert {(plain(r["listen_ip"]), r["queue_max"]) for r in accepted} == {("127.0.0.1", 3), ("::1", 4)}
    assert {r["comm"] for r in accepted} == {"nginx"}


@pytest.mark.parametrize("bind,options", [("127.0.0.1:8080", []), ("[::1]:8080", ["--reuse-port"])])
def test_gunicorn(start_agent, debian_python, netns, cleanup, tmp_path, bind, options):
    agent = start_agent(ALL, trackers=["tcp_accept"])
    gunicorn = Gunicorn(debian_python, GUNICORNS[0], str(tmp_path), "--backlog", "3", *options, bind=bind, workers=2,
                        worker_class="sync", prefix=netns.prefix)
    cleanup.append(gunicorn)
    _, ports = in_namespace(netns, lambda: [get(gunicorn.address)[1] for _ in range(20)])
    rows = overflow(agent, netns, gunicorn, gunicorn.worker_pids, [gunicorn.address])
    assert {r["host_pid"] for r in rows} <= {*gunicorn.worker_pids, gunicorn.pid}
    accepted = {r["remote_port"]: r for r in agent.rows[TABLE] if r["netns"] == netns.inode and r["kind"] == "accepted"}
    assert set(ports) <= set(accepted)
    assert {accepted[port]["host_pid"] for port in ports} <= set(gunicorn.worker_pids)
    assert {r["queue_max"] for r in accepted.values()} == {3}
