# SPDX-License-Identifier: Apache-2.0
"""Listeners that do not accept while more clients come than the queues hold; then some are accepted and all are
closed. Prints the network namespace's counters. To be run in a private namespace. Arguments: number of listeners,
clients of each; with "wait", each step waits for a line."""
import json
import socket
import sys
import time

from netns import tcp_counters

n_listeners, n_clients = int(sys.argv[1]), int(sys.argv[2])
before = tcp_counters()
listeners = [socket.create_server(("127.0.0.1", 0), backlog=2 + i) for i in range(n_listeners)]
ports = [s.getsockname()[1] for s in listeners]
print(json.dumps({"ports": ports}), flush=True)
if sys.argv[3:] == ["wait"]:
    sys.stdin.readline()
clients = []
for i in range(n_clients):
    for port in ports:
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        clients.append(client)
    time.sleep(0.01)
time.sleep(2.5)  # SYNs and last ACKs come again
for listener in listeners:
    listener.accept()
for client in clients:
    client.close()
for listener in listeners:
    listener.close()
after = tcp_counters()
print(json.dumps({name: after[name] - before[name] for name in ("ListenOverflows", "ListenDrops")}), flush=True)
sys.stdin.readline()
