# SPDX-License-Identifier: Apache-2.0
"""The means of this machine: Pythons, gunicorns, clocks, processes."""
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


# Runs the remaining arguments in the tree $0, where the test files keep the same paths.
ENTER_ROOT = """set -e
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
for folder in "$1" "$2" /tmp; do mkdir -p "$0$folder"; mount --bind "$folder" "$0$folder"; done
shift 2
exec chroot "$0" "$@"
"""


KNOWN_PYTHONS = os.path.join(CACHE, "pythons.json")


def file_id(path):
    found = os.stat(path)
    return [found.st_ino, found.st_size, found.st_mtime_ns]


class Python:
    """One interpreter: path (within `root`, if any), version and the file with the interpreter proper. `start`
    is the prefix of a command with the files, `enter` the prefix for the end of a further prefix."""

    def __init__(self, path, root=None):
        self.path = path
        self.root = root
        self.enter = ["sh", "-c", ENTER_ROOT, root, WORKLOADS, os.path.join(ROOT, "build")] if root else []
        self.start = ["unshare", "--mount", *self.enter] if root else []
        self._facts = facts = self._known() or self._ask()
        self.version = tuple(facts["version"])
        self.image = facts["image"]
        origin = os.path.basename(root)[5:] if root else "debian" if path == DEBIAN_PYTHON else "pyenv"
        self.name = f"{origin}-%d.%d" % self.version[:2] + ("-shared" if root and facts["shared"] else "")

    def _files(self, image):
        return [file_id((self.root or "") + self.path), file_id(image)]

    def _known(self):
        """What an earlier run has found out: to ask all Pythons is seconds for each pytest. None if a file is another one."""
        try:
            with open(KNOWN_PYTHONS) as f:
                facts = json.load(f)[(self.root or "") + self.path]
            return facts if facts["files"] == self._files(facts["image"]) else None
        except (OSError, ValueError, KeyError):
            return None

    def _ask(self):
        text = subprocess.run(
            [*self.start, self.path, "-c", "import sys; print(*sys.version_info[:3]);"
             "print([l.split()[-1] for l in open('/proc/self/maps') if 'libpython' in l][:1])"],
            stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        library = re.findall(r"'(.*)'", text[1])
        image = os.path.realpath((self.root or "") + (library[0] if library else self.path))
        return {"version": list(map(int, text[0].split())), "image": image, "shared": bool(library), "files": self._files(image)}

    def _fact(self, name, find):
        if name not in self._facts:
            self._facts[name] = find()
            if "files" in self._facts:  # a copy is of one test
                self._note()
        return self._facts[name]

    @property
    def gc_method(self):
        """The expected method for collections, judged by the content of the file."""
        return self._fact("gc_method", lambda: gc_method(self.image))

    @property
    def tells_reason(self):
        """True: the reason is an argument of the collecting function, and the function is called by name."""
        return self._fact("tells_reason", lambda: self.version >= (3, 13) and self.gc_method == "symbol"
                          and has_symbol(self.image, "gc_collect_main"))

    def _note(self):
        try:
            with open(KNOWN_PYTHONS) as f:
                known = json.load(f)
        except (OSError, ValueError):
            known = {}
        known[(self.root or "") + self.path] = self._facts
        try:
            with open(f"{KNOWN_PYTHONS}.{os.getpid()}", "w") as f:
                json.dump(known, f)
            os.replace(f.name, KNOWN_PYTHONS)
        except OSError:
            pass  # a tree that cannot be written to: asked again

    def __repr__(self):
        return self.name


def gc_method(image):
    with open(image, "rb") as f:
        content = f.read()
    if b"python\0gc__start" in content:
        return "usdt"
    sections = subprocess.run(["readelf", "-SW", image], stdout=subprocess.PIPE, text=True, check=True).stdout
    return "symbol" if " SYMTAB " in sections else "scan"


def has_symbol(image, name):
    symbols = subprocess.run(["nm", image], stdout=subprocess.PIPE, text=True).stdout
    return f" {name}\n" in symbols


def find_pythons():
    """Debian's Python first, then each CPython 3.8 and newer installed by pyenv."""
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [Python(DEBIAN_PYTHON)]
    for path in sorted(glob.glob(os.path.join(root, "versions", "3.*", "bin", "python3"))):
        version = re.search(r"/versions/3\.(\d+)", path)
        if int(version.group(1)) >= 8:
            found.append(Python(path))
    return sorted(found, key=lambda p: (p.path != DEBIAN_PYTHON, p.version))


def find_rooted_pythons():
    """Pythons of older and newer releases (roots.sh), each as a static program and as a library."""
    found = []
    for path in sorted(glob.glob(os.path.join(CACHE, "root-*", "usr", "bin", "python3.*"))):
        root, within = re.match(r"(.*/root-\w+)(/usr/bin/python3\.\d+(-shared)?)$", path).group(1, 2)
        if within.endswith("-shared") or not root.endswith("-bookworm"):  # the release of this machine
            found.append(Python(within, root))
    return found


class Generation:
    """One gunicorn: major version, and the directory for PYTHONPATH (None: installed on the machine)."""

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
    """A row's DateTime64(6) on the clock of the truths."""
    return microseconds * 1000 - realtime_offset_ns()


def sleeps_among(rows, host_pid):
    return sorted((r for r in rows if r["host_pid"] == host_pid and r["cause"] == "sleep"), key=lambda r: r["start_time"])


def wait_until(condition, timeout, what):
    """Polls; returns the first true value of condition(). More seconds where all is slow, see agent.PATIENCE."""
    timeout *= PATIENCE
    deadline = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        # a question to a database is work of all its threads
        time.sleep(min(max(0.01, 4 * (now - asked)), 0.2))


def threads_of(pid):
    return [int(t) for t in os.listdir(f"/proc/{pid}/task")]


def threads_of_all():
    """Number of threads on this host."""
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
    """CPU of a process and of the children, also of short-lived children: the agent reads processes in
    children."""

    def __init__(self, pid):
        self.pid = pid
        self._seen = {}
        self._begin = {}
        self.look()
        self._begin = dict(self._seen)

    def look(self):
        """Called periodically: the CPU of a child after the last sample before the exit is missing."""
        for process in [self.pid, *children_of(self.pid)]:
            try:
                for tid in threads_of(process):
                    with open(f"/proc/{process}/task/{tid}/schedstat") as f:
                        self._seen[process, tid] = int(f.read().split()[0])
            except OSError:
                pass  # exited since the listing
        return sum(ns - self._begin.get(thread, 0) for thread, ns in self._seen.items())


def children_of(pid):
    found = []
    for tid in threads_of(pid):
        try:
            with open(f"/proc/{pid}/task/{tid}/children") as f:
                found += map(int, f.read().split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/{pid}"):
                raise
            # the thread has ended since the listing
    return found


class Workload:
    """A watched Python program with a protocol of lines: JSON from the program, words to the program.

    Programs begin with workload.py's `Session`, which collects repeatedly until told to go on, so that the
    test knows that the agent has found the process before the counted part.
    """

    def __init__(self, python, script, *args, prefix=(), env=None):
        if not os.path.isabs(script):
            script = os.path.join(WORKLOADS, script)
        self.python = python
        self.process = subprocess.Popen(
            [*(prefix or python.start), python.path, script, *map(str, args)], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": WORKLOADS, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
        self.pid = self.process.pid  # differs from the pid of a prefix such as unshare

    def read(self):
        line = self.process.stdout.readline()
        assert line, f"{self.process.args} ended early with {self.process.wait()}"
        return json.loads(line)

    def say(self, word="go"):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def wait_covered(self, agent, timeout=30):
        """Reads the program's first line, and waits until the collections are rows."""
        self.hello = self.read()
        agent.wait_rows("ebpf_gc_pause", lambda r: r["pid"] == self.hello["pid"]
                        and r["tid"] == self.hello["tid"], timeout=timeout)
        return self

    def finish(self, timeout=30):
        self.process.stdin.close()
        rest = self.process.stdout.read()
        assert self.process.wait(timeout * PATIENCE) == 0
        return [json.loads(line) for line in rest.splitlines()]

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def run_together(agent, workloads):
    """Waits until all are found, then lets all go on at the same time; the reports are in workload.truth."""
    for workload in workloads:
        workload.wait_covered(agent)
    for workload in workloads:
        workload.say()
    for workload in workloads:
        workload.truth = workload.read()
    for workload in workloads:
        workload.finish()


def check_each(workloads, check):
    """check(workload) for all workloads, so that a failure does not hide failures of the rest."""
    failures = []
    for workload in workloads:
        try:
            check(workload)
        except AssertionError as e:
            failures.append(f"{workload.python}: {e}")
    assert not failures, "\n\n".join(failures)


class Starts:
    """Threads and processes started by the whole host, with times."""

    def __init__(self):
        self.noted = []
        self.note()

    def note(self):
        with open("/proc/stat") as f:
            n = next(int(line.split()[1]) for line in f if line.startswith("processes "))
        self.noted.append((time.monotonic(), n))

    def most_per_second(self):
        return max(n - before for at, n in self.noted for earlier, before in self.noted if 0 <= at - earlier <= 1)
