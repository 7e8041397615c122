# SPDX-License-Identifier: Apache-2.0
"""peer.py PATH: the service that handlers ask. Answers so many milliseconds after a question as it says, over TCP (the port is printed) and over
a unix socket at PATH. It is a process of its own, with one thread: its delays do not depend on the GIL of another program."""
import heapq
import select
import socket
import sys
import time


class Peer:
    def __init__(self, path):
        self.tcp = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(path)
        self.unix.listen(512)
        self.epoll, self.sockets, self.due = select.epoll(), {}, []  # due: (when, number, socket)
        for s in (self.tcp, self.unix):
            self.add(s)

    def add(self, s):
        self.sockets[s.fileno()] = s
        self.epoll.register(s, select.EPOLLIN)

    def run(self):
        while True:
            wait = max(0, self.due[0][0] - time.perf_counter()) if self.due else None
            for fd, _ in self.epoll.poll(wait):
                self.read(self.sockets[fd])
            while self.due and self.due[0][0] <= time.perf_counter():
                try:
                    heapq.heappop(self.due)[2].sendall(b"ok")
                except OSError:
                    pass  # who asked has left

    def read(self, s):
        if s in (self.tcp, self.unix):
            return self.add(s.accept()[0])
        try:
            question = s.recv(100)
        except OSError:
            question = b""
        if question:
            heapq.heappush(self.due, (time.perf_counter() + int(question) / 1000, id(s), s))
        else:
            del self.sockets[s.fileno()]
            s.close()


if __name__ == "__main__":
    peer = Peer(sys.argv[1])
    print(peer.tcp.getsockname()[1], flush=True)
    peer.run()
