# SPDX-License-Identifier: Apache-2.0
"""As many context switches as the machine can make. off_cpu_storm.py YIELDERS SWITCHES: on each CPU YIELDERS processes,
at least two, that only yield SWITCHES times, and a pair that passes a byte to and fro. The processes sleep when done,
so that the kernel's counts of switches are final; the counts are reported."""
import os
import re
import sys
import time

from workload import listen, tell


def status(pid):
    """State, and number of switches."""
    with open(f"/proc/{pid}/status") as f:
        text = f.read()
    return (re.search(r"State:\s+(\w)", text)[1],
            sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", text))))


def yielder():
    give_way = os.sched_yield
    for _ in range(SWITCHES):
        give_way()


def player(read_end, write_end, begins):
    for _ in range(SWITCHES // 4):
        if begins:
            os.write(write_end, b"x")
        os.read(read_end, 1)
        if not begins:
            os.write(write_end, b"x")


def start(cpu, work, *args):
    pid = os.fork()
    if pid == 0:
        os.close(parents_end)  # after the last close, `forever` ends
        os.sched_setaffinity(0, {cpu})
        work(*args)
        os.write(done[1], b"x")
        os.read(forever, 1)
        os._exit(0)
    return pid


def asleep(pid):
    """The count of a process that sleeps for good."""
    before = None
    while True:
        now = status(pid)
        if now[0] == "S" and now == before:
            return now[1]
        before = now
        time.sleep(0.02)


YIELDERS, SWITCHES = map(int, sys.argv[1:])
done = os.pipe()
forever, parents_end = os.pipe()
tell(pid=os.getpid())
listen()
cpus = sorted(os.sched_getaffinity(0))
begin = time.perf_counter_ns()
children = [start(cpu, yielder) for cpu in cpus for _ in range(YIELDERS)]
for cpu in cpus:
    there, back = os.pipe(), os.pipe()
    children += [start(cpu, player, there[0], back[1], False), start(cpu, player, back[0], there[1], True)]
for _ in children:
    os.read(done[0], 1)
end = time.perf_counter_ns()
tell(seconds=(end - begin) / 1e9, children={pid: asleep(pid) for pid in children})
listen()
for pid in children:
    os.kill(pid, 9)
os._exit(0)
