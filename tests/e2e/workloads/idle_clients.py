# SPDX-License-Identifier: Apache-2.0
"""idle_clients.py PORT N EVERY FIRST: N connections, of which each EVERY-th asks once, with trace ids from FIRST; prints how many were answered, and
closes all when a line is written to its standard input."""
import socket
import sys

port, n, every, first = map(int, sys.argv[1:])
idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(n)]
for i, s in enumerate(idle[::every], first):
    s.sendall(b"GET /idle HTTP/1.1\r\nHost: x\r\ntraceparent: 00-%032x-%016x-01\r\n\r\n" % (i, i))
print(sum(s.recv(65536).startswith(b"HTTP/1.1 200") for s in idle[::every]), flush=True)
sys.stdin.readline()
