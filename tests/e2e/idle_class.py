# SPDX-License-Identifier: Apache-2.0
"""Processors that no other task wants, for a process with all descendants: the scheduler's policy SCHED_IDLE. A sleeping task
of any other policy gets its processor at once. With autogroups (sched(7)) the policy counts among the processes of a session only,
so sessions of the descendants get the least weight."""
import os
import pathlib
import time

SECONDS = 2  # between two looks for new sessions
LEAST = "19"
PROC = pathlib.Path("/proc")


class Use:
    """What the processors did since the first look."""

    def __init__(self):
        self.seen = self.times()

    @staticmethod
    def times():
        """(unused or with nice tasks only, all), since boot."""
        fields = [int(field) for field in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        return fields[1] + fields[3] + fields[4], sum(fields)

    def unused(self):
        """The share of the processors' time that no task wanted but nice ones."""
        unused, both = (later - before for later, before in zip(self.times(), self.seen))
        return unused / max(both, 1)


class Patience:
    """Where a thread of the processes behind is ready and gets nothing for WINDOW seconds, its test would wait beyond its limits:
    the same rights for the next WINDOW."""
    WINDOW = 5
    LEAST = 0.02  # of a processor

    def __init__(self):
        self.at, self.last, self.over = time.monotonic(), {}, False

    def is_over(self, roots):
        if time.monotonic() - self.at >= self.WINDOW:
            now = threads_of(families(roots, parents())) if roots else {}
            least = self.LEAST * self.WINDOW * os.sysconf("SC_CLK_TCK")
            starved = any(ready and self.last.get(thread, (False, 0))[0] and used - self.last[thread][1] < least
                          for thread, (ready, used) in now.items())
            self.at, self.last, self.over = time.monotonic(), now, starved and not self.over
        return self.over


def threads_of(pids):
    """{thread: (ready to run or running, ticks of CPU so far)}"""
    found = {}
    for pid in pids:
        try:
            stats = list((PROC / str(pid) / "task").glob("*/stat"))
        except OSError:
            continue
        for stat in stats:
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # gone while being looked at
            found[stat.parent.name] = fields[0] == "R", int(fields[11]) + int(fields[12])
    return found


def parents():
    """{pid: (parent, session)} of all processes."""
    found = {}
    for name in os.listdir(PROC):
        if name.isdigit():
            try:
                fields = (PROC / name / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # gone while being looked at
            found[int(name)] = int(fields[1]), int(fields[3])
    return found


def families(roots, of):
    """The roots and all their descendants."""
    children = {}
    for pid, (parent, _) in of.items():
        children.setdefault(parent, []).append(pid)
    found, left = set(), [pid for pid in roots if pid in of]
    while left:
        pid = left.pop()
        found.add(pid)
        left += children.get(pid, [])
    return found


def set_process(pid, policy, weight, own_session):
    try:
        if own_session:
            (PROC / str(pid) / "autogroup").write_text(weight)
    except OSError:
        pass  # no autogroups here, or gone
    try:
        for thread in os.listdir(PROC / str(pid) / "task"):
            if os.sched_getscheduler(int(thread)) in (os.SCHED_OTHER, os.SCHED_IDLE):  # a test's own choice stays
                os.sched_setscheduler(int(thread), policy, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, int(thread), int(weight))  # the kernel counts its time as nice
    except OSError:
        pass  # gone


def change(behind, back):
    """The processes `behind` get what no other task wants, those of `back` have the same rights as all again."""
    for again in range(2):  # a fork between the list and the change
        of = parents()
        for roots, policy, weight in (behind, os.SCHED_IDLE, LEAST), (back, os.SCHED_OTHER, "0"):
            for pid in families(roots, of):
                set_process(pid, policy, weight, of[pid][1] != os.getsid(0))
