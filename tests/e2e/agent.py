# SPDX-License-Identifier: Apache-2.0
"""Runs the built agent for a test: waits until the agent is ready, collects rows, stops the agent
and checks the exit code and that no process is left behind."""
import collections
import fcntl
import functools
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
import uuid

import sandbox

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
UNDERSPAN = os.environ.get("UNDERSPAN", os.path.join(ROOT, "build", "underspan"))
# where a processor is emulated, or page faults are slow (patience.py), all takes long; a sanitizer's work slows the agent down.
# Waits are so many times longer
PATIENCE = float(os.environ.get("UNDERSPAN_PATIENCE", 1))
SANITIZER = os.environ.get("UNDERSPAN_SANITIZER")  # "address" or "thread": the sanitizer in the agent, see tests/sanitize.sh
# the agent's promise for SIGTERM, without a sanitizer; a second more for the kernel's part of the end where all is slow
STOP_SECONDS = 5 * (PATIENCE if SANITIZER else 1) + (PATIENCE > 1)
READY_SECONDS = 20 * PATIENCE
F_SETPIPE_SZ = 1031  # include/uapi/linux/fcntl.h; in the module fcntl since 3.10


CRASHES = {-n for n in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
                        signal.SIGSYS)}


class BrokenPromise(AssertionError):
    """Independent of the machine's load: a late or wrong end, a crash, wrong sums of counters. Never retried."""


def promise(holds, said):
    if not holds:
        raise BrokenPromise(said)


NO_ENGINE = "libchdb brings a memory allocator of its own into the process"


def plain_build(reason):
    """Marks a test that fails by design under an agent built with a sanitizer."""
    import pytest  # guests of tests/vm import agent.py and have no pytest

    return pytest.mark.skipif(bool(SANITIZER), reason=f"not with a sanitizer: {reason}")


def processes_with(marker):
    """Pids of processes with `marker` in the environment."""
    wanted = os.fsencode(marker)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                if wanted in f.read():
                    found.append(int(name))
        except OSError:
            pass  # gone while being looked at
    return found


@functools.lru_cache(None)
def known_trackers():
    """The lines of `underspan run --list` by tracker, in the printed order."""
    listed = subprocess.run([UNDERSPAN, "run", "--list"], capture_output=True, text=True, check=True, timeout=30)
    return {t["tracker"]: t for t in map(json.loads, listed.stdout.splitlines())}


class Agent:
    """`underspan run --stdout` with the given options. Rows are dicts with the columns in
    order, without `table`; self.rows maps a table to the rows so far. Tables in `only_count` have too many
    rows to be read: an empty dict stands for each."""

    def __init__(self, *options, trackers=(), prefix=(), stdout=True, only_count=()):
        self.rows = collections.defaultdict(list)
        self.log = []
        self.broken_lines = []
        self._only_count = {b'{"table":"%s",' % table.encode(): table for table in only_count}
        self._changed = threading.Condition()
        self._ready = False
        self._marker = f"UNDERSPAN_E2E={uuid.uuid4()}"
        name, value = self._marker.split("=")
        # UNDERSPAN_SANDBOX=1: every agent of every test runs under the restrictions of deploy/systemd/underspan.service
        if os.environ.get("UNDERSPAN_SANDBOX") and not prefix:
            prefix = sandbox.prefix()
        self.argv = [*prefix, UNDERSPAN, "run"]
        if stdout:
            self.argv.append("--stdout")
        if trackers:
            self.argv.append("--trackers=" + ",".join(trackers))
        # tests count each row: no sampling by the governor, except in test_governor.py
        self.argv += ["--governor.cpu_percent=0", *options]
        self.process = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, name: value})
        self.pid = self.process.pid
        self._pieces = queue.SimpleQueue()  # of stdout, b"" is the end
        self._readers = [threading.Thread(target=target, daemon=True) for target in (self._read_stdout, self._read_rows, self._read_log)]
        for thread in self._readers:
            thread.start()

    def _read_stdout(self):
        """As fast as the agent writes: on a busy machine, parsing is slower, and the agent would drop rows at its end."""
        fcntl.fcntl(self.process.stdout, F_SETPIPE_SZ, 1 << 20)
        while piece := os.read(self.process.stdout.fileno(), 1 << 20):
            self._pieces.put(piece)
        self._pieces.put(b"")

    def _lines(self):
        rest = b""
        while piece := self._pieces.get():
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def _read_rows(self):
        nothing = {}
        for line in self._lines():
            table = self._only_count.get(line[:line.index(b",") + 1]) if self._only_count else None
            if table:
                self.rows[table].append(nothing)
                continue
            try:
                row = json.loads(line)
                if next(iter(row)) != "table":
                    raise ValueError("the row does not begin with its table")
                table = row.pop("table")
            except (ValueError, StopIteration) as e:
                self.broken_lines.append((line, str(e)))
                continue
            with self._changed:
                self.rows[table].append(row)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_log(self):
        for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            with self._changed:
                self.log.append(text)
                self._ready = self._ready or "ready" in text
                self._changed.notify_all()

    @property
    def stderr(self):
        return "\n".join(self.log)

    def _ended(self):
        return self.process.poll() is not None

    def _failure(self):
        return BrokenPromise if self.process.poll() in CRASHES else AssertionError

    def wait_ready(self, timeout=READY_SECONDS):
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self._ready:
                left = deadline - time.monotonic()
                if left <= 0 or self._ended():
                    state = f"ended with {self.process.returncode}" if self._ended() else "is not ready"
                    raise self._failure()(f"{' '.join(self.argv)} {state}:\n{self.stderr}")
                self._changed.wait(min(left, 0.2))
        return self

    def wait_quiet(self, table, seconds=1.5):
        """Waits until no more rows come, also no pending rows."""
        n = None
        while n != len(self.rows[table]):
            n = len(self.rows[table])
            time.sleep(seconds)

    def select(self, table, predicate=lambda row: True):
        with self._changed:
            return [row for row in self.rows[table] if predicate(row)]

    def wait_rows(self, table, predicate=lambda row: True, n=1, timeout=30):
        """Returns the matching rows as soon as there are `n`; fails after the timeout, which is long: a busy machine is no fault."""
        timeout *= PATIENCE
        deadline = time.monotonic() + timeout
        found, seen = [], 0  # each row is looked at once, as there may be a hundred thousand
        while True:
            with self._changed:
                ended = self._ended() and not any(thread.is_alive() for thread in self._readers)
                rows = self.rows[table]
                found += filter(predicate, rows[seen:])
                seen = len(rows)
                if len(found) >= n:
                    return found
                left = deadline - time.monotonic()
                if left <= 0 or ended:
                    raise self._failure()(
                        f"{len(found)} of {n} {table} rows after {timeout} s "
                        f"({len(self.rows[table])} in all); the agent said:\n{self.stderr}")
                self._changed.wait(min(left, 0.2))

    def wait_end(self, timeout):
        """Waits for the agent's end without a signal; returns the exit code. All output is read then."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokenPromise(f"{' '.join(self.argv)} still runs after {timeout} s:\n{self.stderr}")
        for thread in self._readers:
            thread.join(60 * PATIENCE)
        promise(self.process.returncode not in CRASHES, f"{' '.join(self.argv)} crashed:\n{self.stderr}")
        return self.process.returncode

    def stop(self, seconds=STOP_SECONDS):
        """SIGTERM: the agent must flush, end with 0 in STOP_SECONDS and leave no process."""
        if not self._ended():
            self.process.send_signal(signal.SIGTERM)
        code = self.wait_end(seconds)
        # rows were counted as dropped: a busy machine read them too slowly
        assert not re.search("rows? could not be delivered: (dropped, |stdout is not read)", self.stderr), self.stderr
        promise(code == 0, f"exit code {code} after SIGTERM:\n{self.stderr}")
        promise(not self.broken_lines, f"lines that are no rows: {self.broken_lines[:3]}")
        until = time.monotonic() + 10 * PATIENCE
        while processes_with(self._marker) and time.monotonic() < until:
            time.sleep(0.02)  # a killed process needs a CPU to end; a forgotten process never ends
        left = processes_with(self._marker)
        promise(not left, f"processes left behind: {left}")
        return self

    def kill(self):
        if not self._ended():
            self.process.kill()
        self.process.wait()


def run_underspan(*args, timeout=60, prefix=()):
    """Runs a command to the end; returns the CompletedProcess with text output. A doctor, or a run of a second, loads all programs: two
    seconds of CPU, many times longer on a busy machine."""
    result = subprocess.run([*prefix, UNDERSPAN, *args], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout * PATIENCE)
    promise(result.returncode not in CRASHES, result)
    return result
