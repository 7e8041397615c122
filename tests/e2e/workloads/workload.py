# SPDX-License-Identifier: Apache-2.0
"""How a program under watch talks with its test (host.Workload). Runs on CPython 3.8 and newer."""
import gc
import json
import os
import select
import sys
import threading
import time

assert time.get_clock_info("perf_counter").implementation == "clock_gettime(CLOCK_MONOTONIC)"
now = time.perf_counter_ns  # the clock that the kernel stamps events with


def tell(**what):
    """One line of JSON to the test."""
    os.write(1, json.dumps(what).encode() + b"\n")


def listen():
    """Waits for the test's next word; False when it has closed the pipe."""
    return bool(os.read(0, 100))


def warm_up(**more):
    """Says who this is and collects until the test, which waits for such a row, says go on."""
    if "BECOME_USER" in os.environ:  # this late, for the files of the test may be another user's
        os.setgroups([])
        os.setgid(int(os.environ["BECOME_USER"]))
        os.setuid(int(os.environ["BECOME_USER"]))
    tell(pid=os.getpid(), tid=threading.get_native_id(), version=list(sys.version_info[:3]), **more)
    while not select.select([0], [], [], 0.02)[0]:
        gc.collect(0)
    return listen()


def run_delay_ns():
    """How long this process's threads, also those that ended, were runnable without a CPU."""
    total = _ended_delay
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/schedstat") as f:
                total += int(f.read().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass  # it said so as its last act
    return total


_ended_delay = 0


def thread_ends():
    """For run_delay_ns(): called by a thread as its last act."""
    global _ended_delay
    with open("/proc/thread-self/schedstat") as f:
        _ended_delay += int(f.read().split()[1])


def frames(frame):
    """The stack as Python itself tells it: qualified name, file, line, the innermost first."""
    found = []
    while frame:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


class Collections:
    """The truth about this process's collections, from gc.callbacks, between start() and stop().

    Stamps are the callback's last act at the start and its first at the end, next to the collection.
    A switch of threads or a preemption can still come in between, so the thread's CPU time and its
    involuntary context switches are noted too.
    """

    FIELDS = ("start", "stop", "start_cpu", "stop_cpu", "start_switches", "stop_switches",
              "generation", "collected", "uncollectable", "tid")

    def __init__(self):
        import array
        import resource
        self._numbers = array.array("q")  # arrays are no work for the collector, tuples are
        self._switches = lambda: resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw

    def _callback(self, phase, info):
        if phase == "start":
            self._begun_switches = self._switches()
            self._begun_cpu = time.thread_time_ns()
            self._begun = now()
        else:
            stop = now()
            cpu = time.thread_time_ns()
            for number in (self._begun, stop, self._begun_cpu, cpu, self._begun_switches, self._switches(),
                           info["generation"], info["collected"], info["uncollectable"],
                           threading.get_native_id()):
                self._numbers.append(number)

    def start(self):
        time.sleep(0.02)  # what came before is told apart by clocks that differ
        gc.callbacks.append(self._callback)
        self.begin = now()

    def stop(self):
        self.end = now()
        gc.callbacks.remove(self._callback)

    def records(self):
        n = len(self.FIELDS)
        return [dict(zip(self.FIELDS, self._numbers[i:i + n])) for i in range(0, len(self._numbers), n)]

    def report(self, **more):
        tell(begin=self.begin, end=self.end, collections=self.records(), **more)
