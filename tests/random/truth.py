# SPDX-License-Identifier: Apache-2.0
"""What a handler of app.py measures of itself: `Segment`, a step of it, and `Truth`, the whole, written as a line of JSON.

Times are CLOCK_MONOTONIC in nanoseconds, as the client's are. Of each the thread's CPU time and run delay (ready without a CPU)
is noted, too. `least` says how long the step waited at least, by the part of the row that the wait belongs to ("pipe|child": by one of these).
"""
import gc
import json
import os
import threading
import time

now = time.perf_counter_ns
cpu_ns = time.thread_time_ns
RECENT = 40
collections = []  # of the oldest generation, the only long ones: [begin, end (0: not over), thread]


def note_collection(phase, info):
    if info["generation"] < 2:
        return
    if phase == "start":
        collections.append([now(), 0, threading.get_native_id()])
    else:
        collections[-1][1] = now()
        del collections[:-RECENT]


def delay_ns():
    fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    try:
        return int(os.read(fd, 100).split()[1])
    finally:
        os.close(fd)


class Segment:
    def __init__(self, name):
        self.facts = {"name": name, "tid": threading.get_native_id(), "cpu": -cpu_ns(), "delay": -delay_ns(), "begin": now()}

    def end(self, least=(), **more):
        """more: awaits: the thread does other work meanwhile; elsewhere: another thread works for the step; inner: the pool thread's segment."""
        facts = self.facts
        facts["end"] = now()
        facts["cpu"] += cpu_ns()
        facts["delay"] += delay_ns()
        return {**facts, "least": dict(least), **more}


class Truth:
    def __init__(self, number):
        self.facts = {"number": number, "pid": os.getpid(), "tid": threading.get_native_id(), "cpu": -cpu_ns(), "delay": -delay_ns(),
                      "begin": now(), "segments": [], "received": 0}

    def add(self, segment):
        self.facts["segments"].append(segment)

    def end(self):
        """Before the answer, or its last piece, is handed to the server. The first end counts."""
        facts = self.facts
        if "end" in facts:
            return
        facts["end"] = now()
        facts["cpu"] += cpu_ns()
        facts["delay"] += delay_ns()
        facts["collections"] = [known for known in collections if known[1] > facts["begin"] or not known[1]]
        if facts["number"]:
            self.write()

    def write(self):
        """One write, so that lines of several processes stay apart."""
        fd = os.open(os.environ["RANDOM_TRUTH"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(fd, (json.dumps(self.facts) + "\n").encode())
        os.close(fd)

    def cancel(self):
        self.facts["cancelled"] = True
        self.end()


gc.callbacks.append(note_collection)
