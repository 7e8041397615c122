# SPDX-License-Identifier: Apache-2.0
"""`underspan gil` and `underspan offcpu`: the printed sums equal the rows of a concurrent agent and the
measurements of the watched programs; impossible requests end with one sentence."""
import collections
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET

import pytest

import host
from agent import UNDERSPAN, run_underspan
from conftest import PYTHONS
from test_errors import FAILED, USAGE, check_sentence

SVG = "{http://www.w3.org/2000/svg}"
N, SECONDS = 101, 0.02


class Command:
    """One of the commands with stderr, or all output, on a terminal: progress is shown there."""

    def __init__(self, *arguments, terminal_stdout=False):
        self.screen = b""
        master, slave = pty.openpty()
        self.process = subprocess.Popen([UNDERSPAN, *map(str, arguments)], stdin=subprocess.DEVNULL, stderr=slave,
                                        stdout=slave if terminal_stdout else subprocess.PIPE)
        os.close(slave)
        self._reader = threading.Thread(target=self._read, args=(master,), daemon=True)
        self._reader.start()

    def _read(self, master):
        while True:
            try:
                text = os.read(master, 65536)
            except OSError:
                break  # the far end is closed
            if not text:
                break
            self.screen += text
        os.close(master)

    def wait_for(self, text, n=1):
        host.wait_until(lambda: self.screen.count(text) >= n or self.process.poll() is not None, 60, self.screen)
        if self.process.poll() is not None:
            self._reader.join(10)
        assert self.screen.count(text) >= n, self.screen
        return self

    def wait_measuring(self):
        return self.wait_for(b"stop with Ctrl-C")

    def stop(self):
        """Ctrl-C; returns the output."""
        self.process.send_signal(signal.SIGINT)
        out = self.process.communicate(timeout=20)[0]
        self._reader.join(5)
        assert self.process.returncode == 0, (self.process.returncode, self.screen)
        return (out or b"").decode()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def start_command(cleanup):
    def start(*arguments, **kwargs):
        command = Command(*arguments, **kwargs)
        cleanup.append(command)
        return command.wait_measuring()
    return start


@pytest.fixture
def start_python(cleanup):
    """Runs a program from a text; returns the program and the first line, printed when ready."""
    def start(program, python=sys.executable):
        process = subprocess.Popen([python, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        cleanup.append(process)
        return process, process.stdout.readline().decode().strip()
    return start


def stacks_of(text):
    """Folded lines as (frames, microseconds)."""
    found = []
    for line in text.splitlines():
        stack, _, us = line.rpartition(" ")
        found.append((stack.split(";"), int(us)))
    return found


# ---- gil ----

@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=str)
def test_gil_totals_are_those_of_the_rows(python, start_agent, start_workload, start_command):
    """By thread, against the rows of `underspan run` and against probes on take_gil()."""
    workload = start_workload(python, "gil_contention.py", "hold", 1.5)
    every = [f"--pid={workload.pid}", "--gil_wait.min_duration_us=0"]
    agent = start_agent(*every, trackers=["gil_wait", "gc_pause"])
    reference = start_agent(*every, "--gil_wait.method=uprobe", trackers=["gil_wait"])
    workload.wait_covered(agent)
    command = start_command("gil", "-p", workload.pid, "-d", 0, "--json")
    workload.say()
    truth = workload.read()
    found = json.loads(command.stop())
    workload.finish()
    agent.stop()
    reference.stop()
    assert (found["host_pid"], found["method"]) == (workload.pid, "sched")
    assert found["lost"] <= found["waits"] // 50  # some virtual machines hide a wake-up now and then
    threads = {t["tid"]: t for t in found["threads"]}
    assert set(truth["tids"]) <= set(threads), found

    def rows_of(of):
        return of.select("ebpf_gil_wait", lambda r: r["host_pid"] == workload.pid and r["tid"] in truth["tids"])

    have = sum(threads[tid]["wait_ns"] for tid in truth["tids"])
    rows, right = rows_of(agent), rows_of(reference)
    want = sum(r["duration_ns"] for r in rows)
    assert have == pytest.approx(want, rel=0.01)
    no_cpu = sum(r["runq_ns"] for r in right)
    right_ns = sum(r["duration_ns"] for r in right)
    assert 0.99 * right_ns - no_cpu - 20_000 * len(right) <= have <= 1.01 * right_ns
    assert found["wait_ns"] == sum(t["wait_ns"] for t in found["threads"])
    for tid in truth["tids"]:
        mine, of_rows = threads[tid], [r["duration_ns"] for r in rows if r["tid"] == tid]
        assert mine["wait_ns"] == pytest.approx(sum(of_rows), rel=0.02, abs=1e6)
        assert abs(mine["waits"] - len(of_rows)) <= len(of_rows) // 50 + 1  # two do not split waits alike
        assert 0.4 * max(of_rows) <= mine["max_ns"] <= 2.5 * max(of_rows)
        assert 0.4 * sorted(of_rows)[int(0.97 * len(of_rows))] <= mine["p99_ns"] <= mine["max_ns"]
        assert mine["share_of_time"] == pytest.approx(mine["wait_ns"] / 1e9 / found["duration_s"])
    # the holders: the shares of the rows, roughly, as both programs have separate histories of holders; the thread that
    # sorts in C holds longest, at one line
    held = collections.Counter()
    for row in rows:
        for holder in row["holders"]:
            held[holder["tid"]] += holder["ns"]
    holders = {h["tid"]: h for h in found["holders"]}
    for tid in truth["tids"]:
        assert holders.get(tid, {"wait_ns": 0})["wait_ns"] == pytest.approx(held[tid], rel=0.1, abs=0.15 * have)
    assert sum(h["wait_ns"] for h in found["holders"]) + found["holder_unknown_ns"] == pytest.approx(
        found["wait_ns"], rel=1e-6 + 0.01 * found["lost"])
    most = found["holders"][0]
    assert most["tid"] == truth["tids"][0] and most["share"] > 0.3
    at = [line["wait_ns"] for line in most["lines"] if re.match(r"(hold|sort) \(.*/gil_contention\.py:\d+\)$", line["line"])]
    assert sum(at) > 0.5 * most["wait_ns"], most


BUSY = """
import threading, time
def compute():
    while True: sum(range(10000))
for name in ("one", "zwei \\u00fc\\x1b[2J", "three"):
    threading.Thread(target=compute, name=name, daemon=True).start()
print("up", flush=True)
time.sleep(600)
"""


def test_gil_prints_tables_and_is_quiet_in_a_pipe(start_python):
    process, _ = start_python(BUSY)
    result = run_underspan("gil", "-p", str(process.pid), "--duration=1", timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    head, waits, holders, note = result.stdout.split("\n\n")
    total = float(re.search(r"\d+ waits? for the GIL, ([\d.]+) ms", head).group(1))
    lines = waits.splitlines()
    assert lines[0].split()[:3] == ["tid", "thread", "waits"] and len(lines) >= 4
    assert sum(float(line[-47:].split()[1]) for line in lines[1:]) == pytest.approx(total, abs=0.01)
    assert "zwei ü?[2J " in waits and "\x1b" not in result.stdout
    assert "compute (<string>:4)" in holders and holders.startswith("holders of the GIL")
    assert note.startswith("Not measured: ")


def test_gil_of_an_idle_process(start_python):
    process, _ = start_python("import time; print('up', flush=True); time.sleep(600)")
    result = run_underspan("gil", "-p", str(process.pid), "-d", "1", "--json", timeout=60)
    found = json.loads(result.stdout)
    assert (result.returncode, found["waits"], found["threads"], found["holders"]) == (0, 0, [], [])


# ---- offcpu ----

@pytest.mark.parametrize("kind, function", [("sleep", "Sleep.wait"), ("lock", "Lock.wait"), ("poll", "Poll.wait")])
def test_offcpu_is_what_the_program_waited(kind, function, debian_python, start_agent, start_workload, start_command):
    """The time at the waiting line is the program's measurement; the total is the total of the kernel's
    sums."""
    workload = start_workload(debian_python, "off_cpu_truth.py", kind, N, SECONDS)
    agent = start_agent(f"--pid={workload.pid}", "--off_cpu.profile_interval=1", trackers=["off_cpu", "gil_wait", "gc_pause"])
    workload.wait_covered(agent)
    command = start_command("offcpu", "-p", workload.pid, "-d", 0, "--folded")
    workload.say()
    truth = workload.read()
    stacks = stacks_of(command.stop())
    workload.finish()
    agent.stop()
    waited = sum(stop - start for start, stop, *_ in truth["waits"])
    at_line = sum(us for frames, us in stacks if any(f.startswith(function + " (") for f in frames))
    # a thread preempted on the way back, on a busy machine, has no Python stack
    native = sum(us for frames, us in stacks if frames[0] == "MainThread" and not any(".py:" in f for f in frames))
    assert 0.7 * waited < at_line * 1000 < 1.01 * waited, stacks
    assert at_line * 1000 + native * 1000 > 0.99 * waited - N * 100_000, stacks
    cause = {"sleep": "sleep", "lock": "lock", "poll": "net"}[kind]
    sums = sum(r["off_ns"] for r in agent.select("ebpf_off_cpu_profile", lambda r: r["host_pid"] == workload.pid
                                                 and r["cause"] == cause and r["tid"] == workload.pid))
    of_cause = sum(us for frames, us in stacks if frames[0] == "MainThread" and frames[-1].endswith(f" [{cause}]"))
    assert of_cause * 1000 == pytest.approx(sums, rel=0.01)


def test_offcpu_wakers(debian_python, start_workload, start_command):
    workload = start_workload(debian_python, "off_cpu_truth.py", "lock", 31, SECONDS)
    workload.hello = workload.read()
    command = start_command("offcpu", "-p", workload.pid, "-d", 0, "--folded", "--wakers")
    workload.say()
    truth = workload.read()
    stacks = stacks_of(command.stop())
    workload.finish()
    waits = [(frames, us) for frames, us in stacks if any(f.startswith("Lock.wait (") for f in frames)
             and "futex [lock]" in frames]
    woken = sum(us for frames, us in waits if re.match(r"Thread-\d+", frames[-1]))
    assert all("--" in frames for frames, _ in stacks)
    assert woken * 1000 > 0.9 * sum(stop - start for start, stop, *_ in truth["waits"]), waits
    assert any(frames.index("--") == len(frames) - 3 or len(frames) - frames.index("--") > 2 for frames, _ in waits)


NAMED = """
import sys, threading, time
def wait():
    while True: time.sleep(%s)
for name in %r:
    threading.Thread(target=wait, name=name, daemon=True).start()
print("up", flush=True)
while True: time.sleep(0.05)
"""
HOSTILE = ['</title><script>alert("1")</script>', "a;b & c", "esc\x1b[2J\nline\x00", "größe名前\u202e", "  ", "'\"" + "x" * 200]


def widths_of(svg):
    """Widths of the frames at the bottom, by name."""
    rects = [(float(g.find(SVG + "rect").get("y")), float(g.find(SVG + "rect").get("width")), g.find(SVG + "title").text)
             for g in svg.iter(SVG + "g")]
    bottom = max(y for y, _, _ in rects)
    return {title.rsplit(" (", 1)[0]: width for y, width, title in rects if y == bottom}


def test_offcpu_draws_whatever_the_names_are(start_python, tmp_path):
    process, _ = start_python(NAMED % (0.02, HOSTILE))
    path = tmp_path / "off.svg"
    path.write_text("what was there before, and longer than nothing\n" * 10000)
    result = run_underspan("offcpu", "-p", str(process.pid), "-d", "2", "-o", str(path), timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    svg = ET.parse(path).getroot()
    assert svg.tag == SVG + "svg"
    assert {e.tag for e in svg.iter()} <= {SVG + t for t in ("svg", "style", "rect", "text", "title", "g")}
    widths = widths_of(svg)
    assert sum(widths.values()) == pytest.approx(1180, rel=0.01)
    for name in '</title><script>alert("1")</script>', "a:b & c", "esc?[2J?line", "größe名前?", "MainThread":
        assert any(have.startswith(name) for have in widths), (name, widths)
        # all threads sleep all the time
    assert max(widths.values()) == pytest.approx(1180 / 7, rel=0.15)
    titles = [t.text for t in svg.iter(SVG + "title")]
    assert any(re.match(r"clock_nanosleep \[sleep\] \(\d+\.\d{3} ms, \d+\.\d\d%\)$", t) for t in titles), titles


def test_offcpu_writes_every_form_everywhere(start_python, tmp_path):
    """Flame graph, folded stacks and JSON, by the file's name or on stdout, say the same of the same time."""
    process, _ = start_python(NAMED % (0.02, ["one", "two"]))

    def offcpu(*arguments):
        result = subprocess.run([UNDERSPAN, "offcpu", "-p", str(process.pid), "-d", "1", *arguments], cwd=tmp_path,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout

    def slept(stacks):
        return {frames[0] for frames, us in stacks if us > 300_000} & {"one", "two"}

    def of_json(text):
        found = json.loads(text)
        assert found["host_pid"] == process.pid and 0.5 < found["duration_s"] < 5
        assert found["off_cpu_us"] == sum(s["us"] for s in found["stacks"])
        return [(s["frames"], s["us"]) for s in found["stacks"]]

    assert ET.fromstring(offcpu("-o", "-")).tag == SVG + "svg"
    assert slept(stacks_of(offcpu("-o", "-", "--folded"))) == {"one", "two"}
    assert slept(of_json(offcpu("-o", "-", "--json"))) == slept(of_json(offcpu("--json"))) == {"one", "two"}
    assert os.listdir(tmp_path) == []
    assert offcpu("-o", "x.folded") == offcpu("--output=x.json") == offcpu("-o", "x.svg") == offcpu("--json", "-o", "y") == ""
    assert slept(stacks_of((tmp_path / "x.folded").read_text())) == {"one", "two"}
    assert slept(of_json((tmp_path / "x.json").read_text())) == slept(of_json((tmp_path / "y").read_text())) == {"one", "two"}
    assert ET.parse(tmp_path / "x.svg").getroot().tag == SVG + "svg"
    before = tmp_path / "x.folded"
    compared = json.loads(offcpu("--json", f"--diff={before}"))["stacks"]
    assert sum(s["before_us"] for s in compared) == sum(us for _, us in stacks_of(before.read_text()))


def kernel_thread():
    """Pid of a busy kernel thread; skips the test if none is visible."""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/comm") as f:
                if name.isdigit() and f.read().strip() in ("rcu_preempt", "rcu_sched"):
                    return int(name)
        except OSError:
            pass
    return None


@pytest.mark.skipif(kernel_thread() is None, reason="no thread of the kernel is seen from here")
def test_offcpu_of_a_kernel_thread():
    """No system call: the registers are all 0, which would be read() on x86-64."""
    stacks = stacks_of(run_underspan("offcpu", "-p", str(kernel_thread()), "-d", "3", "--folded", "--off_cpu.min_duration_us=0",
                                     timeout=60).stdout)
    ends = {frames[-1] for frames, _ in stacks}
    assert stacks and not any(re.match(r"\w+ \[", end) for end in ends), ends
    assert not any(word in end for end in ends for word in ("read", "net", "pipe", "lock", "page_fault")), ends


def test_offcpu_compares(start_python, tmp_path):
    """Two programs that differ in one thread: the difference consists of this thread."""
    first, _ = start_python(NAMED % (0.02, ["same", "goes"]))
    second, _ = start_python(NAMED % (0.02, ["same", "comes"]))
    before = tmp_path / "before.folded"
    result = run_underspan("offcpu", "-p", str(first.pid), "-d", "2", "--folded", timeout=60)
    assert result.returncode == 0 and stacks_of(result.stdout)
    before.write_text(result.stdout)
    both = collections.defaultdict(lambda: [0, 0])
    result = run_underspan("offcpu", "-p", str(second.pid), "-d", "2", "--folded", f"--diff={before}", timeout=60)
    for line in result.stdout.splitlines():
        stack, was, now = line.rsplit(" ", 2)
        for i, us in enumerate((was, now)):
            both[stack.split(";")[0]][i] += int(us)
    assert sum(was for was, _ in both.values()) == sum(us for _, us in stacks_of(before.read_text()))
    assert both["goes"][1] == both["comes"][0] == 0
    assert both["same"][0] == pytest.approx(both["same"][1], rel=0.2)
    assert 1.2e6 < both["goes"][0] < 2.5e6 and 1.2e6 < both["comes"][1] < 2.5e6
    path = tmp_path / "diff.svg"
    assert run_underspan("offcpu", "-p", str(second.pid), "-d", "2", "-o", str(path), f"--diff={before}",
                         timeout=60).returncode == 0
    colours = {g.find(SVG + "title").text.split(" (")[0]: g.find(SVG + "rect").get("fill")
               for g in ET.parse(path).getroot().iter(SVG + "g")}
    red, _, blue = (int(colours["comes"][i:i + 2], 16) for i in (1, 3, 5))
    assert red > blue + 100
    table = run_underspan("offcpu", "-p", str(second.pid), "-d", "2", f"--diff={before}", timeout=60).stdout
    rows = {line.split()[3].rstrip(":"): float(line.split()[0]) for line in table.splitlines()[2:4]}
    assert rows.keys() == {"comes", "goes"} and rows["comes"] > 1000 and rows["goes"] < -1000, table


def test_offcpu_top(start_python, start_command):
    process, _ = start_python(NAMED % (0.02, ["one", "two"]))
    command = Command("offcpu", "-p", process.pid, "--top", terminal_stdout=True)
    try:
        command.wait_for(b"\x1b[H\x1b[2J", 5)
        command.stop()
    finally:
        command.kill()
    screens = command.screen.decode().split("\x1b[H\x1b[2J")
    assert "share" in screens[-1]  # the sum of all, at the end
    live = [s for s in screens[2:-1] if "clock_nanosleep [sleep]" in s]
    assert len(live) >= 2, screens
    slept = collections.Counter()
    for line in live[-1].splitlines()[2:]:
        slept[line.split()[2].rstrip(":")] += float(line.split()[0])
    assert all(100 < slept[name] < 5000 for name in ("one", "two", "MainThread")), live[-1]


def test_offcpu_of_any_program(cleanup):
    shell = subprocess.Popen(["sh", "-c", "while :; do sleep 0.05; done"])
    cleanup.append(shell)
    result = run_underspan("offcpu", "-p", str(shell.pid), "-d", "2", "--folded", timeout=60)
    stacks = stacks_of(result.stdout)
    waits = sum(us for frames, us in stacks if frames[0] == "sh" and frames[-1] == "wait4 [child]")
    sleeps = sum(us for frames, us in stacks if frames[0] == "sleep" and frames[-1].endswith("[sleep]"))
    assert waits > 0.5e6 and 0.5 * waits < sleeps < 1.5 * waits, stacks


def test_offcpu_names_threads_that_wait_all_the_time(start_python):
    """For the search of deadlocks: unfinished waits are in no sum."""
    process, tid = start_python("""
import threading, time
lock = threading.Lock()
lock.acquire()
stuck = threading.Thread(target=lock.acquire, daemon=True)
stuck.start()
print(stuck.native_id, flush=True)
while True: time.sleep(0.02)
""")
    result = run_underspan("offcpu", "-p", str(process.pid), "-d", "1", timeout=60)
    assert result.returncode == 0 and "clock_nanosleep [sleep]" in result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and f"thread {tid} " in lines[0] and "still waits in futex" in lines[0], result.stderr


def test_threads_of_the_kernel_are_in_no_system_call():
    """The registers are all 0, which would be read()."""
    result = run_underspan("offcpu", "-p", "2", "-d", "1", "--folded", timeout=60)
    stacks = stacks_of(result.stdout)
    assert any("kthread" in frames for frames, _ in stacks) and "still waits: " in result.stderr, result
    assert not [frames for frames, _ in stacks if frames[-1].startswith("read")] and " in read" not in result.stderr, result


# ---- failures ----

def gone_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


@pytest.mark.parametrize("command", ["gil", "offcpu"])
def test_processes_that_cannot_be_looked_at(command, start_python):
    pid = gone_pid()
    check_sentence(run_underspan(command, "-p", pid), FAILED, f"no process {pid}")
    check_sentence(run_underspan(command), USAGE, "pid", "-p PID")
    check_sentence(run_underspan(command, "-p", pid, pid), FAILED, f"no process {pid}")
    check_sentence(run_underspan(command, "-p", "x"), USAGE, "'x' is not a process id")
    process, tid = start_python("import threading, time; t = threading.Thread(target=time.sleep, args=(600,));"
                                "t.start(); print(t.native_id, flush=True)")
    check_sentence(run_underspan(command, "-p", tid), FAILED, f"{tid} is a thread of process {process.pid}")
    check_sentence(run_underspan(command, "-p", str(process.pid), "--no-such"), USAGE, "no-such")
    check_sentence(run_underspan(command, "-p", str(process.pid), prefix=[
        "capsh", "--drop=cap_bpf,cap_perfmon,cap_sys_admin", "--", "-c", 'exec "$@"', "sh"]), FAILED, "CAP_BPF")
    result = run_underspan(command, "--help")
    assert (result.returncode, result.stderr) == (0, "") and f"usage: underspan {command} -p PID" in result.stdout


def test_gil_of_a_program_that_is_no_python(cleanup):
    process = subprocess.Popen(["sleep", "600"])
    cleanup.append(process)
    begin = time.monotonic()
    check_sentence(run_underspan("gil", "-p", str(process.pid), "-d", "60", timeout=60), FAILED,
                   rf"process {process.pid} \(sleep\) runs no Python", "underspan doctor -p")
    assert time.monotonic() - begin < 25


def test_a_process_that_ends_meanwhile(start_python, cleanup):
    """Results up to the end of the process are printed, also for a zombie not yet reaped."""
    process, _ = start_python("import time; print('up', flush=True)\nwhile True: time.sleep(0.02)")
    command = Command("offcpu", "-p", process.pid, "-d", 60)
    cleanup.append(command)
    command.wait_for(b": 1 s of 60")
    process.kill()
    out = command.process.communicate(timeout=20)[0].decode()
    command.wait_for(f"process {process.pid} ended after ".encode())
    assert command.process.returncode == 0 and "clock_nanosleep [sleep]" in out


def test_files_that_cannot_be_used(start_python, tmp_path):
    process, _ = start_python("import time; print('up', flush=True)\nwhile True: time.sleep(0.02)")
    offcpu = ["offcpu", "-p", str(process.pid), "-d", "1"]
    folded = tmp_path / "before.folded"
    for text, where in [("<svg>\n", 1), ("a;b 5\n\na;b five\n", 3), ("a 5 \n", 1), ("a -5\n", 1), ("17\n", 1), (" 17\n", 1),
                        ("a\x00b 5\n", 1), ("a 99999999999999999999\n", 1), (";".join("a" * 2000) + " 5\n", 1)]:
        folded.write_text(text)
        check_sentence(run_underspan(*offcpu, f"--diff={folded}"), USAGE, f"{folded}:{where}: ", "offcpu --folded")
    check_sentence(run_underspan(*offcpu, f"--diff={tmp_path}/none"), USAGE, f"{tmp_path}/none: .*No such file")
    check_sentence(run_underspan(*offcpu, f"--diff={tmp_path}"), USAGE, "directory")
    check_sentence(run_underspan(*offcpu, "-o", f"{tmp_path}/no/where.svg"), FAILED, f"{tmp_path}/no/where.svg: cannot be written")
    check_sentence(run_underspan(*offcpu, "-o", "x.svg", "--folded"), USAGE, "x.svg", "--folded", "FILE.folded")
    check_sentence(run_underspan(*offcpu, "-o", "x.json", "--folded"), USAGE, "x.json", "FILE.folded")
    check_sentence(run_underspan(*offcpu, "--json", "--folded"), USAGE, "give only one")
    for name in "x.png", "x", "svg", "x.SVG.gz", f"{tmp_path}/":
        check_sentence(run_underspan(*offcpu, "-o", name), USAGE, f"output: {name}: ", "FILE.svg", "FILE.json")
    check_sentence(run_underspan(*offcpu, "--top"), USAGE, "top: stdout is not a terminal")
    # nothing is left, nothing is overwritten when there is nothing to write
    new, old = tmp_path / "new.svg", tmp_path / "old.svg"
    old.write_text("kept")
    for path in new, old:
        check_sentence(run_underspan("offcpu", "-p", gone_pid(), "-o", str(path)), FAILED, "no process")
        check_sentence(run_underspan(*offcpu, "-o", str(path), prefix=[
            "capsh", "--drop=cap_bpf,cap_perfmon,cap_sys_admin", "--", "-c", 'exec "$@"', "sh"]), FAILED, "CAP_BPF")
    assert not new.exists() and old.read_text() == "kept"
    full = run_underspan(*offcpu, "-o", "/dev/full", timeout=60)
    assert full.returncode == FAILED and "/dev/full: cannot be written: No space left on device" in full.stderr
