# SPDX-License-Identifier: Apache-2.0
"""A gunicorn configuration and WSGI application that measure the hand-off, for all three generations of gthread. Each line
of the file $HANDOFF_TRUTH is one pickup: when the main thread had accepted the connection, and when a worker thread first
touched the connection, and with which Python stack. A system call lies between two stamps, so both are noted; all are
CLOCK_MONOTONIC."""
import gc
import json
import os
import select
import socket
import sys
import threading
import time

from workload import frames

assert time.get_clock_info("perf_counter").implementation == "clock_gettime(CLOCK_MONOTONIC)"
now = time.perf_counter_ns

thread = threading.local()
accepted = {}  # fd of a connection -> stamps; an fd is reused only after the close


def peer_port(address):
    return address[1] if isinstance(address, tuple) else 0


def write(line):
    os.write(truth_fd, json.dumps(line).encode() + b"\n")


def wrap_accept(listener):
    accept = listener.accept

    def stamping_accept():
        before = now()
        sock, address = accept()
        after = now()
        accepted[sock.fileno()] = {"accept": [before, after], "fd": sock.fileno(), "peer_port": peer_port(address),
                                   "main_tid": threading.get_native_id(), "requests": 0}
        return sock, address

    listener.accept = stamping_accept


def stamping(function):
    """Notes when a worker thread's first such call of a pickup began and ended."""
    def touch(*args):
        before = now()
        try:
            return function(*args)
        finally:
            if getattr(thread, "touch", 0) is None:
                thread.touch = [before, now()]
    return touch


def note_stack():
    if getattr(thread, "stack", 0) is None:
        thread.stack = frames(sys._getframe(1))


def noting(function):
    """Notes the stack of a worker thread's first such call of a pickup: on the line of the call."""
    def noted(*args):
        return (note_stack(), function(*args))[1]
    return noted


def wrap_calls():
    """Each method that is one system call on the connection, and the first of some generation's pickups."""
    import selectors

    class Epoll:
        def __init__(self):
            self.epoll = select.epoll()
            self.register = noting(self.epoll.register)

        def __getattr__(self, name):
            return getattr(self.epoll, name)

    selectors.EpollSelector._selector_cls = Epoll
    for name in "recv", "setblocking", "settimeout":
        setattr(socket.socket, name, noting(getattr(socket.socket, name)))


def wrap_touches():
    """A worker's first touch is the private epoll of newer generations, or the first read."""
    import selectors
    from gunicorn.http import unreader

    class Selector(selectors.DefaultSelector):
        register = stamping(selectors.DefaultSelector.register)

    selectors.DefaultSelector = Selector
    unreader.SocketUnreader.chunk = stamping(unreader.SocketUnreader.chunk)


def wrap_handle(worker):
    handle = worker.handle

    def stamping_handle(conn):
        start = now()
        record = accepted[conn.sock.fileno()]
        record["requests"] += 1
        thread.touch = thread.stack = None
        try:
            return handle(conn)
        finally:
            write({**record, "handle": start, "touch": thread.touch, "stack": thread.stack, "pid": os.getpid(),
                   "tid": threading.get_native_id()})

    worker.handle = stamping_handle


def post_worker_init(worker):
    global truth_fd
    truth_fd = os.open(os.environ["HANDOFF_TRUTH"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    wrap_calls()
    wrap_touches()
    wrap_handle(worker)
    for listener in worker.sockets:
        wrap_accept(listener)


def app(environ, start_response):
    """/sleep/SECONDS answers after the time; /gc collects; unknown paths answer at once."""
    words = environ["PATH_INFO"].split("/")
    if words[1] == "sleep":
        time.sleep(float(words[2]))
    elif words[1] == "gc":
        gc.collect()
    body = json.dumps({"pid": os.getpid(), "tid": threading.get_native_id(),
                       "thread_name": threading.current_thread().name}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
