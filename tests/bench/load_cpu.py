# SPDX-License-Identifier: Apache-2.0
"""CPU time of a workload, by a cgroup, and of a tool, by its threads."""

import contextlib
import os

GROUP = "underspan-bench"


class Load:
    """This process and its children in a cgroup v2, which has these statistics without any controller. Agents and peers are
    started outside. Without a cgroup v2 that may be written: None."""

    def __init__(self):
        self.path = self.home = None
        mounts = [line.split()[1] for line in open("/proc/mounts") if line.split()[2] == "cgroup2"]
        own = [line.rstrip("\n").split(":", 2)[2] for line in open("/proc/self/cgroup") if line.startswith("0::")]
        if not mounts or not own:
            return
        home = mounts[0] + own[0].rstrip("/")
        with contextlib.suppress(OSError):
            os.makedirs(f"{home}/{GROUP}", exist_ok=True)
            self.enter(f"{home}/{GROUP}")
            self.path, self.home = f"{home}/{GROUP}", home

    @staticmethod
    def enter(path):
        with open(f"{path}/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    @contextlib.contextmanager
    def outside(self):
        """Processes started here are not counted."""
        if self.path:
            self.enter(self.home)
        try:
            yield
        finally:
            if self.path:
                self.enter(self.path)

    def us(self):
        with open(f"{self.path}/cpu.stat") as f:
            return int(f.readline().split()[1])

    def run(self, run):
        """Operations, and CPU time for each in us."""
        before = self.us() if self.path else 0
        n = run()
        return n, (self.us() - before) / n if self.path else None

    def remove(self):
        if self.path:
            self.enter(self.home)
            with contextlib.suppress(OSError):
                os.rmdir(self.path)


def threads_ns(pid):
    """CPU time of all threads of a process; of ended threads it is not known."""
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{tid}/schedstat") as f:
            total += int(f.read().split()[0])
    return total
