# SPDX-License-Identifier: Apache-2.0
"""`underspan top`: --once against a program of known waits, and the real screen in tmux."""
import json
import math
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import host
import servers
from agent import PATIENCE, UNDERSPAN, run_underspan
from conftest import PYTHONS
from test_errors import USAGE, check_sentence

PROGRAM = """
import gc, json, sys, threading, time
lock, told = threading.Lock(), {}
def timed(name, what):
    begin = time.monotonic_ns(); what(); told[name] = told.get(name, 0) + time.monotonic_ns() - begin
def nap(): time.sleep(0.02)
def naps():
    name = threading.current_thread().name
    for _ in range(150): timed(name, nap)
def holder():
    for _ in range(40):
        with lock: time.sleep(0.05)
        time.sleep(0.025)
def wait_for_lock(): lock.acquire()
def waiter():
    for _ in range(40):
        timed("waiter", wait_for_lock); lock.release(); time.sleep(0.005)
pauses = []
gc.disable()
gc.callbacks.append(lambda phase, info: pauses.append(time.monotonic_ns()))
print("ready", flush=True)
input()
threads = [threading.Thread(target=naps, name=f"napper-{i}") for i in range(3)]
threads += [threading.Thread(target=f, name=f.__name__) for f in (holder, waiter)]
for t in threads: t.start()
for t in threads: t.join()
objects = [[i] for i in range(300_000)]
del pauses[:]
for _ in range(20): gc.collect()
told["gc"] = sum(b - a for a, b in zip(pauses[::2], pauses[1::2]))
print(json.dumps(told), flush=True)
input()
"""


def program(cleanup, text=PROGRAM, *arguments, python="/usr/bin/python3"):
    process = subprocess.Popen([python, "-c", text, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    cleanup.append(process)
    assert process.stdout.readline() == "ready\n"
    return process


def until_attached(pid):
    """All trackers are: no more BPF links for a second and a half."""
    links, begun = 0, time.monotonic()
    since = begun
    while not links or time.monotonic() - since < 1.5:
        now = subprocess.run(["ls", "-l", f"/proc/{pid}/fd"], capture_output=True, text=True).stdout.count("bpf_link")
        if now != links:
            links, since = now, time.monotonic()
        assert time.monotonic() < begun + 60, f"{links} links of process {pid} after a minute"
        time.sleep(0.1)


def measured(cleanup, process):
    """What the program tells of its work, what `top` reports of that time, and the process in it."""
    top = subprocess.Popen([UNDERSPAN, "top", "--once", "--json", "--threads", "-d0", f"-p{process.pid}"], stdout=subprocess.PIPE, text=True)
    cleanup.append(top)
    until_attached(top.pid)
    print(file=process.stdin, flush=True)
    told = json.loads(process.stdout.readline())
    time.sleep(1)
    top.send_signal(signal.SIGINT)
    report = json.loads(top.communicate(timeout=30)[0])
    [found] = report["processes"]
    return told, report, found


def test_once_is_what_the_threads_did(cleanup):
    process = program(cleanup)
    told, report, found = measured(cleanup, process)
    assert (found["host_pid"], found["gil_measured"], found["busy_max"], report["left_out"]) == (process.pid, True, None, 0)
    threads = {t["name"]: {part: (share or 0) * report["duration_s"] * 1e9 for part, share in t["shares"].items()} for t in found["threads"]}
    for name in "napper-0", "napper-1", "napper-2":
        waited = sum(threads[name][part] for part in ("sleep", "runq", "gil", "lock", "other"))
        assert waited == pytest.approx(told[name], rel=0.02), (name, threads[name], told)
        assert threads[name]["sleep"] >= 150 * 20e6 * 0.99
    waited = threads["waiter"]["lock"]
    # the run queue includes the thread's returns from sleep
    assert waited <= told["waiter"] * 1.02 and waited + threads["waiter"]["runq"] + threads["waiter"]["gil"] > told["waiter"] * 0.98, (threads["waiter"], told)
    assert threads["MainThread"]["gc"] == pytest.approx(told["gc"], rel=0.02)
    lines = {line["line"].split(" (")[0]: line["shares"] for line in found["lines"]}
    naps = sum(threads[f"napper-{i}"]["sleep"] for i in range(3)) / 1e9 / report["duration_s"]
    assert 0.9 * naps < lines["nap"]["sleep"] <= naps * 1.001, (lines, naps)
    assert abs(sum(t["shares"]["sleep"] for t in found["threads"]) - found["shares"]["sleep"]) < 0.001
    assert abs(sum(line["shares"]["sleep"] for line in found["lines"]) - found["shares"]["sleep"]) < 0.02


LOCKS = """
import json, threading, time
now, truth = time.monotonic_ns, {}
def nap(seconds): time.sleep(seconds)
def note(least, most):
    was = truth.setdefault(threading.current_thread().name, [0, 0])
    was[:] = was[0] + least, was[1] + most
class Guard:
    def __init__(self):
        self.lock, self.released = threading.Lock(), 0
    def take(self):
        begin = now(); self.lock.acquire(); end = now()
        note(max(0, self.released - begin), end - begin)
    def release(self):
        self.released = now(); self.lock.release()
def pair(name, rounds, hold, rest):
    guard = Guard()
    def holder():
        for _ in range(rounds):
            guard.lock.acquire(); nap(hold); guard.release(); nap(rest)
    def waiter():
        nap(rest / 2)
        for _ in range(rounds):
            guard.take(); guard.release(); nap(rest / 4)
    return [threading.Thread(target=f, name=f.__name__ + "_" + name) for f in (holder, waiter)]
def convoy(guard=Guard()):
    for _ in range(60):
        guard.take(); nap(0.004); guard.release(); nap(0.0002)
held = threading.Lock()
held.acquire()
def give_up():
    begin = now(); held.acquire(timeout=0.01); note(10_000_000, now() - begin)
def gives_up():
    for _ in range(100): give_up()
print("ready", flush=True)
input()
threads = pair("long", 30, 0.05, 0.02) + pair("short", 5000, 0.0003, 0.0004)
threads += [threading.Thread(target=convoy, name=f"convoy_{i}") for i in range(4)] + [threading.Thread(target=gives_up, name="gives_up")]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps(truth), flush=True)
input()
"""


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=str)
def test_waits_for_locks_by_thread_and_line(cleanup, python):
    """Waits of 0.3 to 50 ms, of pairs that wake one another at the same moment. A wait for a lock is as long as until the release, and at
    most until the waiter runs again."""
    process = program(cleanup, LOCKS, python=str(python.path))
    told, report, found = measured(cleanup, process)
    told = {name: [ns / 1e6 for ns in both] for name, both in told.items()}
    threads, lines = ({e[key].split(" (")[0]: {part: (share or 0) * report["duration_s"] * 1e3 for part, share in e["shares"].items()} for e in found[of]}
                      for of, key in (("threads", "name"), ("lines", "line")))
    assert set(told) == {"waiter_long", "waiter_short", "gives_up", *(f"convoy_{i}" for i in range(4))}

    def check(what, parts, least, most):
        # what a thread waits for a CPU or the GIL before it sleeps is in its own clock
        slack = max(2, 0.02 * most)
        assert least - parts["runq"] - parts["gil"] - slack <= parts["lock"] <= most + slack, (what, parts, least, most)

    for name, (least, most) in told.items():
        check(name, threads[name], least, most)
        assert most > 300 / PATIENCE
    check("give_up", lines["give_up"], *told.pop("gives_up"))
    check("Guard.take", lines["Guard.take" if python.version >= (3, 11) else "take"], *map(sum, zip(*told.values())))
    # the main thread waits for the others
    assert sum(threads[name]["lock"] for name in threads) == pytest.approx(found["shares"]["lock"] * report["duration_s"] * 1e3, abs=1)


COMPUTES = """
import hashlib, json, threading, time
told, ready, end = {}, threading.Semaphore(0), threading.Event()
def much(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until: pass
def little(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until: pass
def digest(): hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 20_000)
def timed(of, *arguments):
    begin = time.thread_time(); of(*arguments); told[of.__name__] = told.get(of.__name__, 0) + time.thread_time() - begin
def python():
    for _ in range(40):
        timed(much, 0.06); timed(little, 0.02); time.sleep(0.02)
    ready.release(); end.wait()
def native():
    while told.get("digest", 0) < 2: timed(digest)
    ready.release(); end.wait()
threads = [threading.Thread(target=f, name=f.__name__) for f in (python, native)]
print("ready", flush=True)
input()
for t in threads: t.start()
for t in threads: ready.acquire()
print(json.dumps(told), flush=True)
input()  # until then the kernel has the threads' CPU times
end.set()
"""


def check_computed(process, duration_s, told, hertz, exact):
    """Seconds of a `top`'s process against the threads' own clocks; samples of threads that share a CPU: as in test_on_cpu.py."""
    def close(found, seconds):
        assert abs(found * duration_s - seconds) <= (2 + 4 * math.sqrt(seconds * hertz / 2)) / hertz, (found * duration_s, told, process)

    functions = {}
    for line in process["lines"]:
        name = line["line"].split(" (")[0]
        functions[name] = functions.get(name, 0) + line["shares"]["cpu"]
    threads = {t["name"]: t["shares"] for t in process["threads"]}
    for name in told:
        close(functions[name], told[name])
    for name, used in ("python", told["much"] + told["little"]), ("native", told["digest"]):
        close(threads[name]["cpu"], used)
        assert not exact or threads[name]["cpu"] * duration_s == pytest.approx(used, rel=0.03, abs=0.05), (threads, told)
    assert sum(functions.values()) == pytest.approx(process["shares"]["cpu"], rel=0.25 if exact else 1e-6)


def test_lines_that_compute(cleanup):
    """By samples, a thread's by the kernel: Python code, and C code without the GIL at its Python line."""
    process = program(cleanup, COMPUTES)
    told, report, found = measured(cleanup, process)
    assert "on_cpu" not in report["not_measured"]
    check_computed(found, report["duration_s"], told, 49, exact=True)


BLOCKS = """
import time
async def app(scope, receive, send):
    begin = time.monotonic_ns()
    time.sleep(0.1)
    slept = str(time.monotonic_ns() - begin).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0"), (b"x-ns", slept)]})
    await send({"type": "http.response.body", "body": b""})
"""


def test_blocking_calls_of_a_loop_are_its_sleep(cleanup, tmp_path):
    """Known calls of one event loop, all after the trackers have attached: earlier ones are in no sum, and in no request."""
    (tmp_path / "blocks.py").write_text(BLOCKS)
    port = servers.free_port()
    server = servers.Server(["/usr/bin/python3", "-m", "uvicorn", f"--port={port}", "--log-level=error", "--loop=asyncio", "--lifespan=off", "blocks:app"],
                            cwd=tmp_path)
    cleanup.append(server)

    def ask():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                return int(answer.headers["x-ns"])
        except urllib.error.URLError:
            assert server.process.poll() is None, "\n".join(server.log)
    host.wait_until(ask, 30, "uvicorn answers")
    top = subprocess.Popen([UNDERSPAN, "top", "--once", "--json", "-d0", f"-p{server.pid}"], stdout=subprocess.PIPE, text=True)
    cleanup.append(top)
    until_attached(top.pid)
    truth = sum(ask() for _ in range(12)) / 1e9
    time.sleep(1)
    top.send_signal(signal.SIGINT)
    report = json.loads(top.communicate(timeout=30)[0])
    [found] = report["processes"]
    slept = found["shares"]["sleep"] * report["duration_s"]
    assert found["requests"] == 12 and slept == pytest.approx(truth, rel=0.03), (slept, truth, report["duration_s"])
    assert found["request_parts_ns"]["sleep"] / 1e9 == pytest.approx(truth, rel=0.03)
    [line] = [line for line in found["lines"] if line["line"].startswith("app (") and line["shares"]["sleep"]]  # the others computed
    assert line["shares"]["sleep"] * report["duration_s"] == pytest.approx(truth, rel=0.03)


def test_once_as_text(cleanup):
    process = program(cleanup, HOSTILE)
    done = run_underspan("top", "--once", "-d2", "-p", str(process.pid), timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert re.search(r"^ +PID NAME .*HID% +CPU% +GIL%", done.stdout, re.M) and re.search(r"PID THREAD .*WAIT%", done.stdout)
    assert re.search(rf"^ *{process.pid} worker-\* +3 ", done.stdout, re.M), done.stdout
    assert "nap (<string>:4)" in done.stdout


ENDS = """
import threading, time
def nap():
    for _ in range(20): time.sleep(0.05)
def burn():
    end = time.thread_time() + 0.15
    while time.thread_time() < end: pass
print("ready", flush=True)
input()
threading.Thread(target=nap, name="nap").start()
for i in range(12):
    thread = threading.Thread(target=burn, name=f"burn-{i}"); thread.start(); thread.join()
"""


def test_cpu_of_threads_that_ended_is_not_0(cleanup):
    """The kernel has no CPU time of a thread that has ended: that of its samples, otherwise null, not 0. The waits are known."""
    process = program(cleanup, ENDS)
    top = subprocess.Popen([UNDERSPAN, "top", "--once", "--json", "-d30", f"-p{process.pid}"], stdout=subprocess.PIPE, text=True)
    cleanup.append(top)
    until_attached(top.pid)
    print(file=process.stdin, flush=True)
    process.wait(30)
    report = json.loads(top.communicate(timeout=30)[0])
    threads = {t["name"]: t["shares"] for t in report["processes"][0]["threads"]}
    assert threads["nap"]["sleep"] * report["duration_s"] == pytest.approx(1, abs=0.1), threads
    assert threads["nap"]["cpu"] is None, threads
    # 88 samples: as close as check_computed() wants them
    assert threads["burn-*"]["cpu"] * report["duration_s"] == pytest.approx(1.8, abs=(2 + 4 * math.sqrt(1.8 * 49 / 2)) / 49), threads


STORM = """
import threading, time
a, b = threading.Semaphore(0), threading.Semaphore(0)
def one():
    while True: a.acquire(); b.release()
def two():
    while True: a.release(); b.acquire()
for f in one, two: threading.Thread(target=f, daemon=True).start()
print("ready", flush=True)
time.sleep(300)
"""


def test_what_the_governor_takes_out_is_not_0(cleanup):
    """Two threads hand a lock back and forth; no tracker of it is allowed its price for all the time."""
    process = program(cleanup, STORM)
    done = run_underspan("top", "--once", "--json", "-d12", "-p", str(process.pid), timeout=60)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and "off_cpu is taken out" in done.stderr and "off_cpu" in report["not_measured"], done
    [found] = report["processes"]
    for entry in found, *found["threads"]:
        assert {entry["shares"][part] for part in ("gil", "lock", "net", "runq", "idle")} == {None} and entry["shares"]["cpu"] > 0.1, found
    text = run_underspan("top", "--once", "-d12", "-p", str(process.pid), timeout=60).stdout
    assert re.search(r"^not measured all the time \(-\): off_cpu", text, re.M) and re.search(r"Thread-\* .* -  ", text), text


def test_bad_input():
    check_sentence(run_underspan("top"), 1, "have to be a terminal: use --once")
    check_sentence(run_underspan("top", "--json"), USAGE, "needs --once")
    check_sentence(run_underspan("top", "--once", "--sort=x"), USAGE, "sort")
    check_sentence(run_underspan("top", "--once", "-p", "x"), USAGE, "process id|no pid")


# ---- the screen ----

HOSTILE = """
import threading, time
name = "e\\x1b[31mvil\\x07\\u202e-1"
def nap(): time.sleep(0.01)
def work():
    while True: nap()
threads = [threading.Thread(target=work, name=name if i == 0 else f"worker-{i}", daemon=True) for i in range(4)]
print("ready", flush=True)
for t in threads: t.start()
threading.Event().wait()
"""


class Tmux:
    def __init__(self, directory, *command, size=(80, 24)):
        self.socket = str(directory / "tmux")
        self.run("-f/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "/bin/sh")
        time.sleep(0.3)
        self.type("PS1='$ '; clear", "Enter")
        self.type(" ".join(command) + "; stty -a | grep -o -- '-\\?echo ' ; echo ended=$?", "Enter")

    def run(self, *arguments):
        return subprocess.run(["tmux", "-S", self.socket, *arguments], capture_output=True, text=True, check=True, timeout=20).stdout

    def type(self, *keys):
        self.run("send-keys", *keys)

    def screen(self):
        return self.run("capture-pane", "-p")

    def until(self, wanted, seconds=40):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.screen()
            if re.search(wanted, text, re.M):
                return text
            time.sleep(0.2)
        raise AssertionError(f"no {wanted!r} in:\n{self.screen()}")

    def kill(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)


@pytest.fixture
def terminal(tmp_path, cleanup):
    def start(*arguments, **more):
        tmux = Tmux(tmp_path, UNDERSPAN, "top", *arguments, **more)
        cleanup.append(tmux)
        return tmux
    return start


def test_the_screen(terminal, cleanup):
    process = program(cleanup, HOSTILE)
    tmux = terminal(f"-p{process.pid}")
    text = tmux.until(rf"^ *{process.pid} python")
    lines = text.splitlines()
    assert lines[0].startswith("underspan top ") and "by waits" in lines[0] and max(map(len, lines)) <= 80
    assert lines[1].split() == "PID NAME REQ/s BUSY QUE HID% CPU% GIL% GC% LOCK% NET% RUNQ% LAGms".split()
    tmux.type("t")
    text = tmux.until(r"worker-\* +3 +\d+")
    assert "evil" not in text and "\x1b" not in text and re.search(r"e.*vil", text), text
    tmux.type("l")
    tmux.until(rf"{process.pid} nap \(<string>:4\) +\d+")
    tmux.type(">")
    tmux.until("by hidden")
    tmux.type("?")
    tmux.until("threads of a pool as one line")
    tmux.type("t")
    tmux.run("resize-window", "-x", "40", "-y", "10")
    text = tmux.until(r"PID THREAD.*GIL%")
    assert max(map(len, text.splitlines())) <= 40 and len(text.splitlines()) <= 10 and re.search(r"worker-\* ", text)
    tmux.run("resize-window", "-x", "120", "-y", "30")
    tmux.until("DISK%.*OTH%")
    tmux.type("q")
    text = tmux.until("ended=0")
    assert re.search(r"^echo *$", text, re.M), text  # the terminal echoes again
    assert "underspan top 1" not in text and "underspan: error" not in text


@pytest.mark.parametrize("how", ["TERM", "INT", "key", "gone"])
def test_the_terminal_is_given_back(how, terminal, cleanup):
    process = program(cleanup, HOSTILE)
    tmux = terminal(f"-p{process.pid}", size=(40, 12))
    tmux.until(rf"^ *{process.pid} python")
    if how == "key":
        tmux.type("C-c")
    elif how == "gone":
        process.kill()
        process.wait()
    else:
        [top] = subprocess.run(["pgrep", "-o", "-f", f"underspan top -p{process.pid}$"], capture_output=True, text=True).stdout.split()
        os.kill(int(top), getattr(signal, "SIG" + how))
    text = tmux.until("ended=0")
    assert "echo" in text and "-echo" not in text
