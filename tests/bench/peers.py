# SPDX-License-Identifier: Apache-2.0
"""Programs that do a tracker's job, on the same load in the same run: libbpf-tools, bpftrace in a few lines, and the design that
came before this one, probes on take_gil(), drop_gil() and the collector with a perf buffer."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time

from bench import PYTHON, Agent
from bench_bpf import WARM_UP
from bench_switches import BPFTOOL, programs_of
from measure import beside, shown

OFF_CPU = """
tracepoint:sched:sched_switch {
    @begin[args->prev_pid] = nsecs;
    if (@begin[args->next_pid]) { @[kstack, ustack, args->next_pid] = sum(nsecs - @begin[args->next_pid]); delete(@begin[args->next_pid]); }
}"""
CONNECTS = """
tracepoint:sock:inet_sock_set_state {
    if (args->newstate == 2) { @begin[args->skaddr] = nsecs; }
    if (args->newstate == 1 && @begin[args->skaddr]) { @us = hist((nsecs - @begin[args->skaddr]) / 1000); delete(@begin[args->skaddr]); }
}"""
# a wait of 1 ms becomes a record in the perf buffer, as that design had it; its stacks at each take and drop are left out
PROBES = """
{take} {{ @begin[tid] = nsecs; }}
{taken} /@begin[tid]/ {{
    if (nsecs - @begin[tid] > 1000000) {{ printf("%d %d %d\\n", tid, @holder, nsecs - @begin[tid]); }}
    delete(@begin[tid]); @holder = tid;
}}
uprobe:{path}:PyEval_SaveThread {{ @holder = 0; }}
{collect} {{ @gc[tid] = nsecs; }}
{collected} /@gc[tid]/ {{ printf("%d %d\\n", tid, nsecs - @gc[tid]); delete(@gc[tid]); }}
"""
OFFCPUTIME = "libbpf-tools offcputime -u", ["offcputime", "-u", "1000"]
BPFTRACE_OFF_CPU = "bpftrace, the same in four lines", ["bpftrace", OFF_CPU]
RUNQLAT = "libbpf-tools runqlat", ["runqlat", "1000"]
# by word of a workload; a list is the options of an agent
PEERS = {
    "gunicorn": [("off-CPU time by stack, run queue, waker", "underspan off_cpu", ["--trackers=off_cpu"]),
                 ("off-CPU time by stack", *OFFCPUTIME), ("", *BPFTRACE_OFF_CPU),
                 ("sleeps by the waker's stack", "libbpf-tools wakeuptime -u", ["wakeuptime", "-u", "1000"]),
                 ("run queue", *RUNQLAT),
                 ("GIL waits, collections", "underspan gil_wait, gc_pause", ["--trackers=gil_wait,gc_pause"]),
                 ("", "uprobes, perf buffer (bpftrace)", ["bpftrace", PROBES])],
    "connect": [("connects, accepts, life", "underspan tcp_connect, tcp_accept", ["--trackers=tcp_connect,tcp_accept"]),
                ("states and life", "libbpf-tools tcpstates", ["tcpstates"]),
                ("life", "libbpf-tools tcplife", ["tcplife"]),
                ("connects", "bpftrace, inet_sock_set_state", ["bpftrace", CONNECTS])],
    "redis": [("off-CPU time, not of this program", "underspan off_cpu", ["--trackers=off_cpu"]),
              ("off-CPU time", *OFFCPUTIME), ("", *BPFTRACE_OFF_CPU), ("run queue", *RUNQLAT)],
}
NEED_KPROBES = "tcpconnlat, tcpconnect, tcptracer, tcpsynbl"


# ---- where the probes of the former design go ----

def sites_of(pid):
    """By program: (path, offset in the file) of an agent's uprobes."""
    listed = subprocess.check_output([BPFTOOL, "prog", "show"], text=True)
    names = dict(re.findall(r"^(\d+): \w+  name (\S+)", listed, re.MULTILINE))
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/fdinfo/{fd}") as f:
            info = f.read()
            if "link_type:\tuprobe_multi" in info:
                path = re.search(r"^path:\t(.*)$", info, re.MULTILINE)[1]
                for offset in re.findall(r"^\d+\t (0x[0-9a-f]+)\t", info, re.MULTILINE):
                    found.setdefault(names[re.search(r"prog_id:\t(\d+)", info)[1]], []).append((path, int(offset, 16)))
    return found


def same_code(a, b, offset):
    with open(a, "rb") as f, open(b, "rb") as g:
        f.seek(offset), g.seek(offset)
        return f.read(64) == g.read(64)


def probes_of_python():
    """The script with this Python's addresses, which have no symbol in Debian's: the agent finds them in a copy without USDT
    notes (a probe at such a note runs only while its semaphore is set)."""
    python = os.path.realpath(PYTHON)
    with tempfile.TemporaryDirectory() as there:
        copy = f"{there}/{os.path.basename(python)}"
        subprocess.run(["objcopy", "--remove-section=.note.stapsdt", python, copy], check=True)
        process = subprocess.Popen([copy, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, "PYTHONHOME": "/usr"})
        try:
            with Agent("--trackers=gil_wait,gc_pause", "--gil_wait.method=uprobe", f"--pid={process.pid}") as agent:
                wanted = {"take": "gil_take_enter", "taken": "gil_take_exit", "collect": "gc_pause_enter", "collected": "gc_pause_exit"}
                for _ in range(50):
                    found = {name: [offset for path, offset in sites if path.endswith(os.path.basename(python)) and same_code(copy, python, offset)]
                             for name, sites in sites_of(agent.process.pid).items()}
                    if all(found.get(name) for name in wanted.values()):
                        return PROBES.format(path=python, **{
                            word: ", ".join(f"uprobe:{python}:{offset:#x}" for offset in sorted(set(found[name])))
                            for word, name in wanted.items()})
                    time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    raise RuntimeError("the addresses of the probes are not shown (Linux 6.16 and newer do)")


# ---- the table ----

class Peer:
    def __init__(self, command):
        self.command = command

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.log)
        before = {}
        for _ in range(50):  # until programs are there and no more come
            time.sleep(0.3)
            if self.process.poll() is not None:
                self.log.seek(0)
                raise RuntimeError(" ".join(self.log.read().split())[-200:] or f"{self.command[0]} ended")
            now = programs_of(self.process.pid).keys()
            if now and now == before:
                return self
            before = now
        raise RuntimeError(f"{self.command[0]} has no programs")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def started(load, argv):
    with load.outside():
        tool = (Agent(*argv) if argv[0].startswith("--") else Peer(argv)).__enter__()
    try:
        time.sleep(WARM_UP)
        yield tool
    finally:
        tool.__exit__()


def command_of(load, argv):
    if argv[0].startswith("--"):
        return argv
    if not shutil.which(argv[0]):
        raise RuntimeError(f"there is no {argv[0]} here (Debian: bpftrace, libbpf-tools)")
    if argv[0] != "bpftrace":
        return argv
    with load.outside():
        return ["bpftrace", "--unsafe", "-e", probes_of_python() if argv[1] is PROBES else argv[1]]


def print_peers(load, every, wanted, empty, rounds):
    print(f"\n{'the same job on the same load; probes cost traps, which only the ratio shows':77} {'BPF ns':>9} {'runs':>7} {'tool ns':>9} {'CPU':>6}")
    for word in wanted:
        print(f"  {every[word].title}")
        with every[word].start as run:
            for job, name, argv in PEERS[word]:
                try:
                    command = command_of(load, argv)
                    found = beside(lambda: started(load, command), load, run, empty, rounds)
                except RuntimeError as e:
                    print(f"    {job:39} {name:33} not measured: {e}")
                    continue
                print(f"    {job:39} {name:33} {found.ns():9,.0f} {found.runs():7.2f} {found.own_ns:9,.0f} {shown(found.ratio, '6.2f'):>6}", flush=True)
    if not os.path.exists("/sys/kernel/tracing/kprobe_events"):
        print(f"  not measured: {NEED_KPROBES} of libbpf-tools, as this kernel has no kprobes")
    if not shutil.which("py-spy"):
        print("  not measured: py-spy, of which Debian has no package")
