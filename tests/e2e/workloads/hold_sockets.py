# SPDX-License-Identifier: Apache-2.0
"""hold_sockets.py N CHILDREN: children that connect and accept within the same process, N times each, all open at once;
reports, waits for a word, and closes."""
import os
import resource
import socket
import sys

from workload import listen, tell, warm_up


def hold(n):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    held = []
    for _ in range(n):
        held.append(socket.create_connection(listener.getsockname()))
        held.append(listener.accept()[0])
    return held


def child(n, done, go):
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * n + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    held = hold(n)
    os.write(done, b"x")
    os.read(go, 1)
    del held
    os._exit(0)


def main():
    n, children = map(int, sys.argv[1:])
    if not warm_up():
        return
    done, go = os.pipe(), os.pipe()
    for _ in range(children):
        if os.fork() == 0:
            child(n, done[1], go[0])
    for _ in range(children):
        os.read(done[0], 1)
    tell(held=n * children)
    listen()
    os.write(go[1], b"x" * children)
    for _ in range(children):
        assert os.wait()[1] == 0
    tell(done=True)
    listen()
    os._exit(0)


main()
