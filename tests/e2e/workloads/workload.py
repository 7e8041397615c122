# SPDX-License-Identifier: Apache-2.0
"""The protocol between a watched program and the test (host.Workload). Runs on CPython 3.8 and newer."""
import gc
import json
import os
import select
import sys
import threading
import time

assert time.get_clock_info("perf_counter").implementation == "clock_gettime(CLOCK_MONOTONIC)"
now = time.perf_counter_ns  # the clock of the kernel's events


def tell(**what):
    """One line of JSON to the test."""
    os.write(1, json.dumps(what).encode() + b"\n")


def listen():
    """Waits for the test's next word; False when the test has closed the pipe."""
    return bool(os.read(0, 100))


def warm_up(**more):
    """Identifies the program and collects until the test has seen such a row and sends "go on"."""
    if "BECOME_USER" in os.environ:  # late, as the files of the test may belong to a different user
        os.setgroups([])
        os.setgid(int(os.environ["BECOME_USER"]))
        os.setuid(int(os.environ["BECOME_USER"]))
    tell(pid=os.getpid(), tid=threading.get_native_id(), version=list(sys.version_info[:3]), **more)
    while not select.select([0], [], [], 0.02)[0]:
        gc.collect(0)
    return listen()


def run_delay_ns():
    """Time in which this process's threads, ended threads included, were runnable without a CPU."""
    total = _ended_delay
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/schedstat") as f:
                total += int(f.read().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass  # reported by thread_ends()
    return total


_ended_delay = 0


def switches():
    """How often the current thread has left a CPU."""
    with open("/proc/thread-self/status") as f:
        return sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)


def thread_ends():
    """For run_delay_ns(): called by a thread as the last action."""
    global _ended_delay
    with open("/proc/thread-self/schedstat") as f:
        _ended_delay += int(f.read().split()[1])


def frames(frame):
    """The stack from Python's frames: qualified name, file, line, innermost first."""
    found = []
    while frame:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


class Collections:
    """The truth about this process's collections, from gc.callbacks, between start() and stop().

    Stamps are the callback's last action at the start and the first at the end, next to the collection. A
    switch of threads or a preemption can still come in between, so the thread's CPU time and involuntary
    context switches are noted too.
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
        time.sleep(0.02)  # separates earlier collections by more than the difference of clocks
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
