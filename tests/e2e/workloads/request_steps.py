# SPDX-License-Identifier: Apache-2.0
"""Requests composed of known steps: /sleep-60/cpu-40 sleeps 60 ms, then computes for 40 ms. Each step reports the kind and duration of
waits, by clocks not read by the agent; `Truth` joins the reports for the answer's body."""
import asyncio
import ctypes
import gc
import json
import os
import queue
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time

MS = 1_000_000
SHORT_NS = 100_000  # a sleep may be so short, and too short for a row of off_cpu
holding = ctypes.PyDLL(None)  # a call by PyDLL keeps the GIL
ballast = [[] for _ in range(400_000)]  # objects for a full collection to visit
accepts = {}  # by the client's port: [accept() was called, accept() had returned], of the newest connection
collections = []  # [begin, end, tid, CPU time] of each full collection, end 0 during the collection
lock = threading.Lock()
scratch = tempfile.TemporaryFile(dir="/var/tmp")  # /tmp may have no disk below
now = time.time_ns


def noting(accept):
    def call(listener):
        begin = now()
        connection, address = accept(listener)
        if listener.family == socket.AF_INET:
            accepts[address[1]] = [begin, now()]
        return connection, address
    return call


def note_collection(phase, info):
    if info["generation"] < 2:
        return
    if phase == "start":
        collections.append([now(), 0, threading.get_native_id(), -time.thread_time_ns()])
    else:
        collections[-1][3] += time.thread_time_ns()
        collections[-1][1] = now()


def collected(begin, end):
    """How long full collections lasted between two moments."""
    return sum(max(0, min(end, stop) - max(begin, start)) for start, stop, *_ in collections)


def run_delay():
    with open("/proc/thread-self/schedstat") as f:
        return int(f.read().split()[1])


def spin(ms):
    until = time.thread_time_ns() + ms * MS
    while time.thread_time_ns() < until:
        pass


class Sibling:
    """A second thread of the process. ask() returns an event that is set when done."""

    def __init__(self):
        self.todo = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True, name="sibling").start()

    def run(self):
        while True:
            what, done = self.todo.get()
            what()
            done.set()

    def ask(self, what):
        done = threading.Event()
        self.todo.put((what, done))
        return done


# Each step returns {kind: nanoseconds of waiting}; "unsure": upper bound of time taken by the hypervisor, or
# of waits too short for a row.

def step_sleep(ms):
    time.sleep(ms / 1000)
    return {"sleep": ms * MS}


def step_cpu(ms):
    spin(ms)
    return {}


def step_net(ms):
    """A peer that answers after the given time, and reports the time of the answer."""
    with socket.create_connection(("127.0.0.1", int(os.environ["PEER_PORT"]))) as s:
        s.sendall(b"%d\n" % ms)
        begin = now()
        return {"net": int(s.recv(100)) - begin}


def step_itself(ms):
    """A request to this server, which another thread serves."""
    with socket.create_connection(("127.0.0.1", int(os.environ["OWN_PORT"]))) as s:
        s.sendall(b"GET /sleep-%d HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n" % ms)
        begin, cpu, delay = now(), time.thread_time_ns(), run_delay()
        while s.recv(65536):
            pass
        waited = now() - begin - (time.thread_time_ns() - cpu) - (run_delay() - delay)
        return {"net": waited, "unsure": max(0, waited - ms * MS)}  # it waits for the GIL, too


def step_lock(ms):
    held, released = threading.Event(), []

    def hold():
        with lock:
            held.set()
            time.sleep(ms / 1000)
            released.append(now())
    sibling.ask(hold)
    held.wait()
    begin = now()
    with lock:
        return {"lock": released[0] - begin}


def step_gc(_):
    gc.collect()
    return {}  # collections are told by themselves


def step_siblinggc(ms):
    """A second thread collects while this thread sleeps."""
    done = sibling.ask(gc.collect)
    begin = now()
    time.sleep(ms / 1000)
    done.wait()
    return {"sleep": ms * MS - collected(begin, begin + ms * MS)}


def step_gil(ms):
    """A second thread enters C code that keeps the GIL, 20 ms before this thread needs the GIL again; on a busy machine it may be late:
    this thread then waits for its end, a lock."""
    begins = []

    def hold():
        begins.append(now())
        holding.usleep((ms + 20) * 1000)
    done = sibling.ask(hold)
    begin = now()
    time.sleep(0.02)
    woken = now()
    done.wait()
    end = begins[0] + (ms + 20) * MS
    if woken < begins[0]:
        return {"sleep": 20 * MS, "lock": end - woken}
    return {"sleep": 20 * MS, "gil": end - (begin + 20 * MS)}


def step_share(ms):
    """Both compute: time in which this thread was neither running nor runnable was a wait for the GIL."""
    done = sibling.ask(lambda: spin(ms))
    begin, cpu, delay = now(), time.thread_time_ns(), run_delay()
    spin(ms)
    gil = now() - begin - (time.thread_time_ns() - cpu) - (run_delay() - delay)
    done.wait()
    return {"gil": gil, "unsure": gil // 5}


def step_disk(ms):
    until = now() + ms * MS
    slept = short = 0
    while now() < until:
        os.write(scratch.fileno(), bytes(1_000_000))
        begin, cpu, delay, sleeps = now(), time.thread_time_ns(), run_delay(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        os.fsync(scratch.fileno())
        slept += now() - begin - (time.thread_time_ns() - cpu) - (run_delay() - delay)
        short += (resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - sleeps) * SHORT_NS
    os.ftruncate(scratch.fileno(), 0)
    return {"disk": slept, "unsure": slept // 4 + min(slept, short)}


def step_siblingwait(_):
    """A second thread collects, and this thread wants the GIL before the end of the collection."""
    done = sibling.ask(gc.collect)
    begin = now()
    time.sleep(0.002)
    woken = now()
    done.wait()  # the end of the collection is noted, perhaps late: the duration is at least the computing time
    waited = collected(begin + 2 * MS, woken)
    return {"sleep": 2 * MS, "gcsibling": waited, "unsure": max(0, waited - (collections[-1][3] - 2 * MS))}


def step_child(ms):
    """A child that ends after the given time."""
    child = subprocess.Popen(["/bin/sleep", str(ms / 1000)])
    begin = now()
    child.wait()
    return {"child": now() - begin}


def step_pipe(ms):
    """A second thread writes after the given time."""
    here, there = os.pipe()
    wrote = []

    def write():
        time.sleep(ms / 1000)
        wrote.append(now())
        os.write(there, b"x")
    sibling.ask(write)
    begin = now()
    os.read(here, 1)
    os.close(here)
    os.close(there)
    return {"pipe": wrote[0] - begin}


async def step_await(ms):
    await (sys.modules.get("trio") or asyncio).sleep(ms / 1000)
    return {"poll": ms * MS}


class Truth:
    """The composition of a request, as far as known when the answer is written."""

    def __init__(self, port=None):
        """port: the client's, where accept() is called in Python (not uvloop's, uWSGI's)."""
        self.parts, self.received, self.accepted = {}, 0, accepts.get(int(port)) if port else None
        self.begin, self.cpu, self.delay = now(), time.thread_time_ns(), run_delay()

    def add(self, parts):
        for name, ns in parts.items():
            self.parts[name] = self.parts.get(name, 0) + ns

    def body(self):
        cpu, delay = time.thread_time_ns() - self.cpu, run_delay() - self.delay
        return json.dumps({"begin": self.begin, "end": now(), "pid": os.getpid(), "tid": threading.get_native_id(), "parts": self.parts,
                           "cpu": cpu, "delay": delay, "received": self.received, "accepted": self.accepted,
                           "collections": collections[-10:]}).encode()


def steps(path):
    for word in path.strip("/").split("/"):
        name, _, ms = word.partition("-")
        if name:
            yield globals()["step_" + name], int(ms or 0)


socket.socket.accept = noting(socket.socket.accept)
gc.callbacks.append(note_collection)
sibling = Sibling()
