# SPDX-License-Identifier: Apache-2.0
"""What the tests find on this machine: Pythons, gunicorns, clocks, processes."""
import glob
import json
import os
import re
import subprocess
import time

from agent import PATIENCE, ROOT

WORKLOADS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workloads")
CACHE = os.path.join(ROOT, "build", "cache")
DEBIAN_PYTHON = os.path.realpath("/usr/bin/python3")


# Runs the rest of its arguments in the tree $0, where the files of the tests are at the same places.
ENTER_ROOT = """set -e
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
for folder in "$1" "$2" /tmp; do mkdir -p "$0$folder"; mount --bind "$folder" "$0$folder"; done
shift 2
exec chroot "$0" "$@"
"""


class Python:
    """One interpreter: its path (within `root`, where it has one), version and the file that holds the interpreter
    proper. `start` is what runs a command with its files, `enter` the same for the end of another such prefix."""

    def __init__(self, path, root=None):
        self.path = path
        self.root = root
        self.enter = ["sh", "-c", ENTER_ROOT, root, WORKLOADS, os.path.join(ROOT, "build")] if root else []
        self.start = ["unshare", "--mount", *self.enter] if root else []
        text = subprocess.run(
            [*self.start, path, "-c", "import sys; print(*sys.version_info[:3]);"
             "print([l.split()[-1] for l in open('/proc/self/maps') if 'libpython' in l][:1])"],
            stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        self.version = tuple(map(int, text[0].split()))
        library = re.findall(r"'(.*)'", text[1])
        self.image = os.path.realpath((root or "") + (library[0] if library else path))
        origin = os.path.basename(root)[5:] if root else "debian" if path == DEBIAN_PYTHON else "pyenv"
        self.name = f"{origin}-%d.%d" % self.version[:2] + ("-shared" if root and library else "")

    @property
    def gc_method(self):
        """How the agent ought to find the collections, judged by what the file contains."""
        with open(self.image, "rb") as f:
            content = f.read()
        if b"python\0gc__start" in content:
            return "usdt"
        sections = subprocess.run(["readelf", "-SW", self.image], stdout=subprocess.PIPE, text=True, check=True).stdout
        return "symbol" if " SYMTAB " in sections else "scan"

    @property
    def tells_reason(self):
        """Is the reason an argument of the collecting function, and that function called by its own name?"""
        if self.version < (3, 13) or self.gc_method != "symbol":
            return False
        symbols = subprocess.run(["nm", self.image], stdout=subprocess.PIPE, text=True).stdout
        return " gc_collect_main\n" in symbols

    def __repr__(self):
        return self.name


def find_pythons():
    """Debian's Python first, then each CPython 3.8 and newer that pyenv has here."""
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [Python(DEBIAN_PYTHON)]
    for path in sorted(glob.glob(os.path.join(root, "versions", "3.*", "bin", "python3"))):
        version = re.search(r"/versions/3\.(\d+)", path)
        if int(version.group(1)) >= 8:
            found.append(Python(path))
    return sorted(found, key=lambda p: (p.path != DEBIAN_PYTHON, p.version))


def find_rooted_pythons():
    """Those of other releases (roots.sh), each as a static program and as a library."""
    found = []
    for path in sorted(glob.glob(os.path.join(CACHE, "root-*", "usr", "bin", "python3.*"))):
        root, within = re.match(r"(.*/root-\w+)(/usr/bin/python3\.\d+(-shared)?)$", path).group(1, 2)
        if within.endswith("-shared") or not root.endswith("-bookworm"):  # that one is this machine's own
            found.append(Python(within, root))
    return found


class Generation:
    """One gunicorn: its major version, and the directory for PYTHONPATH (None: the machine's own)."""

    def __init__(self, version, path):
        self.version = version
        self.path = path

    def __repr__(self):
        return f"gunicorn-{self.version}"


def find_gunicorns():
    own = subprocess.run([DEBIAN_PYTHON, "-c", "import gunicorn; print(gunicorn.__version__)"],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {int(own.split(".")[0]): None}
    for path in glob.glob(os.path.join(CACHE, "gunicorn-[0-9]*")):
        found[int(path.rsplit("-", 1)[1])] = path
    return [Generation(version, path) for version, path in sorted(found.items())]


def realtime_offset_ns():
    """CLOCK_REALTIME - CLOCK_MONOTONIC, from the narrowest of several readings."""
    best = None
    for _ in range(20):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, real - (before + after) // 2)
    return best[1]


def monotonic_ns(microseconds):
    """A row's DateTime64(6) on the clock that the truths are written in."""
    return microseconds * 1000 - realtime_offset_ns()


def sleeps_among(rows, host_pid):
    return sorted((r for r in rows if r["host_pid"] == host_pid and r["cause"] == "sleep"), key=lambda r: r["start_time"])


def wait_until(condition, timeout, what):
    """Polls; returns the first true value of condition(). More seconds where all is slow, see agent.PATIENCE."""
    timeout *= PATIENCE
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.01)


def threads_of(pid):
    return [int(t) for t in os.listdir(f"/proc/{pid}/task")]


def threads_of_all():
    """How many threads this host has."""
    with open("/proc/loadavg") as f:
        return int(f.read().split()[3].split("/")[1])


def status_field(pid, field):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith(field + ":"):
                return line.split(":", 1)[1].split()
    raise KeyError(field)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """CPU of a process and of its children, of which some come and go: the agent reads other processes in them."""

    def __init__(self, pid):
        self.pid = pid
        self._seen = {}
        self._begin = {}
        self.look()
        self._begin = dict(self._seen)

    def look(self):
        """Every so often: what a thread takes after the last look before its end is missing."""
        for process in [self.pid, *children_of(self.pid)]:
            try:
                for tid in threads_of(process):
                    with open(f"/proc/{process}/task/{tid}/schedstat") as f:
                        self._seen[process, tid] = int(f.read().split()[0])
            except OSError:
                pass  # ended meanwhile
        return sum(ns - self._begin.get(thread, 0) for thread, ns in self._seen.items())


def children_of(pid):
    found = []
    for tid in threads_of(pid):
        with open(f"/proc/{pid}/task/{tid}/children") as f:
            found += map(int, f.read().split())
    return found


class Workload:
    """A Python program under watch that talks in lines: it prints JSON, it is told words.

    Programs begin with workload.py's `Session`, which collects again and again until it is told
    to go on, so that a test knows that the agent has found the process before anything counts.
    """

    def __init__(self, python, script, *args, prefix=(), env=None):
        if not os.path.isabs(script):
            script = os.path.join(WORKLOADS, script)
        self.python = python
        self.process = subprocess.Popen(
            [*(prefix or python.start), python.path, script, *map(str, args)], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": WORKLOADS, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
        self.pid = self.process.pid  # a prefix such as unshare is another one

    def read(self):
        line = self.process.stdout.readline()
        assert line, f"{self.process.args} ended early with {self.process.wait()}"
        return json.loads(line)

    def say(self, word="go"):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def wait_covered(self, agent, timeout=10):
        """Reads the program's first line, and waits until its collections are rows."""
        self.hello = self.read()
        agent.wait_rows("ebpf_gc_pause", lambda r: r["pid"] == self.hello["pid"]
                        and r["tid"] == self.hello["tid"], timeout=timeout)
        return self

    def finish(self, timeout=30):
        self.process.stdin.close()
        rest = self.process.stdout.read()
        assert self.process.wait(timeout) == 0
        return [json.loads(line) for line in rest.splitlines()]

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def run_together(agent, workloads):
    """Lets all of them be found, then go on at the same time; their reports are in workload.truth."""
    for workload in workloads:
        workload.wait_covered(agent)
    for workload in workloads:
        workload.say()
    for workload in workloads:
        workload.truth = workload.read()
    for workload in workloads:
        workload.finish()


def check_each(workloads, check):
    """check(workload) for all of them, so that one failure does not hide the others'."""
    failures = []
    for workload in workloads:
        try:
            check(workload)
        except AssertionError as e:
            failures.append(f"{workload.python}: {e}")
    assert not failures, "\n\n".join(failures)


class Starts:
    """Threads and processes that the whole host has started, noted in time."""

    def __init__(self):
        self.noted = []
        self.note()

    def note(self):
        with open("/proc/stat") as f:
            n = next(int(line.split()[1]) for line in f if line.startswith("processes "))
        self.noted.append((time.monotonic(), n))

    def most_per_second(self):
        return max(n - before for at, n in self.noted for earlier, before in self.noted if 0 <= at - earlier <= 1)
