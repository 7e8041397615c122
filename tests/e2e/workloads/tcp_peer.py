# SPDX-License-Identifier: Apache-2.0
"""One end of TCP connections under remote control: each line is a word for a thread of the program (wire.Peer).
Every answer has the thread's ids, begin and end, on the clock of the kernel's events, and the time without a
processor in between."""
import json
import os
import queue
import select
import socket
import struct
import sys
import threading
import time

now = time.monotonic_ns
sockets = {}


def listen(name, family, address, buffer=0, backlog=128):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    s.bind((address, 0))
    s.listen(backlog)
    sockets[name] = s
    return s.getsockname()[1]


def accept(name, listener):
    sockets[name] = sockets[listener].accept()[0]
    return sockets[name].getpeername()[1]


def connect(name, family, address, port, syn_retries=0):
    s = sockets[name] = socket.socket(family)
    if syn_retries:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, syn_retries)
    try:
        s.connect((address, port))
    except OSError as e:
        return -e.errno
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s.getsockname()[1]


def send(name, size):
    sockets[name].sendall(bytes(size))


def pour(name, seconds):
    """Sends as much as the connection takes."""
    end, chunk, sent = time.monotonic() + seconds, bytes(16384), 0
    while time.monotonic() < end:
        sent += sockets[name].send(chunk)
    return sent


def recv(name, size):
    got = 0
    while got < size:
        n = len(sockets[name].recv(min(65536, size - got)))
        if not n:
            break
        got += n
    return got


def drain(name):
    return recv(name, 1 << 60)


def error(name):
    """Waits until the connection breaks; returns the errno."""
    try:
        while sockets[name].recv(65536):
            pass
        return 0
    except OSError as e:
        return e.errno


def shutdown(name):
    sockets[name].shutdown(socket.SHUT_WR)


def close(name):
    sockets.pop(name).close()


def abort(name):
    sockets[name].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    close(name)


def wait(seconds):
    select.select([], [], [], seconds)


WORDS = {f.__name__: f for f in
         (listen, accept, connect, send, pour, recv, drain, error, shutdown, close, abort, wait)}


def run_delay():
    """Total time of this thread's waits for a processor."""
    with open("/proc/thread-self/schedstat") as f:
        return int(f.read().split()[1])


def work(orders):
    while True:
        order = orders.get()
        delay, begin = run_delay(), now()
        result = WORDS[order["do"]](*order["args"])
        answer = {"id": order["id"], "result": result, "begin": begin, "end": now(), "delay": run_delay() - delay,
                  "pid": os.getpid(), "tid": threading.get_native_id()}
        os.write(1, json.dumps(answer).encode() + b"\n")


def main():
    threads = {}
    for line in sys.stdin:
        order = json.loads(line)
        if order["thread"] not in threads:
            threads[order["thread"]] = queue.Queue()
            threading.Thread(target=work, args=(threads[order["thread"]],), daemon=True).start()
        threads[order["thread"]].put(order)


main()
