# SPDX-License-Identifier: Apache-2.0
"""Control groups with a CPU quota or a memory limit, in the cgroup version of this host."""
import os
import subprocess
import time
import uuid

ROOT = "/sys/fs/cgroup"


def find_cpu_controller():
    """(directory, version is 2); None where no CPU quota can be set."""
    try:
        with open(f"{ROOT}/cgroup.controllers") as f:
            return (ROOT, True) if "cpu" in f.read().split() else None
    except OSError:
        pass
    for name in "cpu", "cpu,cpuacct":
        if os.path.exists(f"{ROOT}/{name}/cpu.cfs_quota_us"):
            return f"{ROOT}/{name}", False
        if os.path.exists(f"{ROOT}/{name}/cgroup.procs"):
            return f"{ROOT}/{name}", False
    return None


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def end(path):
    """Removes a cgroup with all descendants."""
    for _ in range(50):
        with open(f"{path}/cgroup.procs") as f:
            pids = f.read().split()
        if not pids:
            break
        subprocess.run(["kill", "-9", *pids], stderr=subprocess.DEVNULL)
        time.sleep(0.1)
    os.rmdir(path)


class QuotaCgroup:
    """A cgroup below the root or below a parent; quota and period in microseconds, quota None: no limit."""

    def __init__(self, quota_us, period_us=100_000, parent=None):
        base, self.is_v2 = find_cpu_controller()
        self.name = f"us-{uuid.uuid4().hex[:12]}"
        base = parent.path if parent else base
        self.path = f"{base}/{self.name}"
        if self.is_v2:
            write(f"{base}/cgroup.subtree_control", "+cpu")
        os.mkdir(self.path)
        self.set_quota(quota_us, period_us)

    def set_quota(self, quota_us, period_us=100_000):
        if self.is_v2:
            write(f"{self.path}/cpu.max", f"{quota_us or 'max'} {period_us}")
        else:
            write(f"{self.path}/cpu.cfs_period_us", str(period_us))
            write(f"{self.path}/cpu.cfs_quota_us", str(quota_us or -1))

    def enter(self):
        """For Popen's preexec_fn: the program is in the cgroup from the first instruction on."""
        write(f"{self.path}/cgroup.procs", "0")

    def stat(self):
        """{nr_periods, nr_throttled, throttled_ns} of cpu.stat."""
        with open(f"{self.path}/cpu.stat") as f:
            found = dict(line.split() for line in f)
        ns = int(found["throttled_usec"]) * 1000 if self.is_v2 else int(found["throttled_time"])
        return {"nr_periods": int(found["nr_periods"]), "nr_throttled": int(found["nr_throttled"]), "throttled_ns": ns}

    def identity(self):
        """The kernel's id of the cgroup: the inode number of the directory."""
        return os.stat(self.path).st_ino

    def kill(self):
        end(self.path)


def find_memory_controller():
    """(directory, version is 2); None where no limit can be set."""
    if os.path.exists(f"{ROOT}/memory/memory.limit_in_bytes"):
        return f"{ROOT}/memory", False
    try:
        with open(f"{ROOT}/cgroup.controllers") as f:
            return (ROOT, True) if "memory" in f.read().split() else None
    except OSError:
        return None


class MemoryCgroup:
    """A cgroup with a memory limit, for one program: `prefix` goes before the program's arguments."""

    def __init__(self, limit_bytes):
        base, self.is_v2 = find_memory_controller()
        self.path = f"{base}/us-{uuid.uuid4().hex[:12]}"
        if self.is_v2:
            write(f"{base}/cgroup.subtree_control", "+memory")
        os.mkdir(self.path)
        write(f"{self.path}/{'memory.max' if self.is_v2 else 'memory.limit_in_bytes'}", str(limit_bytes))
        self.prefix = ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    def oom_kills(self):
        with open(f"{self.path}/{'memory.events' if self.is_v2 else 'memory.oom_control'}") as f:
            return int(dict(line.split() for line in f)["oom_kill"])

    def peak(self):
        """Bytes, at most so far; 0 where the kernel does not say (version 2 before 5.19)."""
        path = f"{self.path}/{'memory.peak' if self.is_v2 else 'memory.max_usage_in_bytes'}"
        if not os.path.exists(path):
            return 0
        with open(path) as f:
            return int(f.read())

    def kill(self):
        end(self.path)
