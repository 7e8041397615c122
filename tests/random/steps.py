# SPDX-License-Identifier: Apache-2.0
"""The steps of a handler, each timed by itself: `step_NAME(ms)` blocks the thread that runs it and returns its Segment."""
import ctypes
import fcntl
import gc
import hashlib
import os
import queue
import select
import socket
import subprocess
import tempfile
import threading
import time

from helpers import helper
from truth import Segment, cpu_ns, delay_ns, now

MS = 1_000_000
PEER_PORT, PEER_PATH = int(os.environ["RANDOM_PEER_PORT"]), os.environ["RANDOM_PEER_PATH"]
OWN_ADDRESS, OWN_REQUEST = os.environ["RANDOM_OWN_ADDRESS"], 500_000  # see plan.NUMBERS
DATA = bytes(400_000)
holding_gil, without_gil = ctypes.PyDLL(None), ctypes.CDLL(None)
ballast = [[] for _ in range(200_000)]  # so that a collection takes milliseconds
local = threading.local()


def compute(ms):
    until = cpu_ns() + ms * MS
    while cpu_ns() < until:
        pass


def left(until):
    """Of a wait that ends then: its thread may have been kept from beginning it by the GIL, for instance."""
    return max(0, until - now())


def step_sleep(ms):
    segment = Segment("sleep")
    time.sleep(ms / 1000)
    return segment.end({"sleep": ms * MS})


def step_usleep(ms):
    segment = Segment("usleep")
    without_gil.usleep(ms * 1000)
    return segment.end({"sleep": ms * MS})


def step_cpu(ms):
    segment = Segment("cpu")
    compute(ms)
    return segment.end({"cpu": ms * MS})


def step_hash(ms):
    """CPU time without the GIL."""
    segment = Segment("hash")
    until = cpu_ns() + ms * MS
    while cpu_ns() < until:
        hashlib.sha256(DATA).digest()
    return segment.end({"cpu": ms * MS})


def ask_peer(ms, unix=False, timeout=None):
    """A connection to peer.py, and when the answer comes, at the earliest."""
    s = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    s.settimeout(timeout)
    s.connect(PEER_PATH if unix else ("127.0.0.1", PEER_PORT))
    return s, send_question(s, ms)


def send_question(s, ms):
    sent = now()
    s.sendall(b"%d\n" % ms)
    return sent + ms * MS


def step_net(ms, name="net", **how):
    segment = Segment(name)
    s, until = ask_peer(ms, **how)
    least = left(until)
    s.recv(100)
    s.close()
    return segment.end({"net": least})


def step_net_unix(ms):
    return step_net(ms, "net_unix", unix=True)


def step_net_timeout(ms):
    """Python calls poll() before recv()."""
    return step_net(ms, "net_timeout", timeout=9)


def step_net_kept(ms):
    """On a connection that the thread keeps."""
    segment = Segment("net_kept")
    owner, s = getattr(local, "kept", (0, None))
    if owner != os.getpid():
        s, _ = ask_peer(0)
        s.recv(100)
        local.kept = os.getpid(), s
    least = left(send_question(s, ms))
    s.recv(100)
    return segment.end({"net": least})


def step_select(ms):
    """Of two descriptors: no part says for what."""
    segment = Segment("select")
    s, until = ask_peer(ms)
    r, w = os.pipe()
    least = left(until)
    select.select([s, r], [], [], 9)
    s.recv(100)
    s.close()
    os.close(r)
    os.close(w)
    return segment.end({"other": least})


def step_epoll(ms):
    segment = Segment("epoll")
    s, until = ask_peer(ms)
    with select.epoll() as epoll:
        epoll.register(s, select.EPOLLIN)
        least = left(until)
        epoll.poll(9)
    s.recv(100)
    s.close()
    return segment.end({"other": least})


def step_poll(ms):
    """Of nothing: a sleep."""
    segment = Segment("poll")
    select.poll().poll(ms)
    return segment.end({"sleep|other": ms * MS})


def step_lock(ms):
    segment, lock, held, released = Segment("lock"), threading.Lock(), threading.Event(), []

    def hold():
        with lock:
            held.set()
            time.sleep(ms / 1000)
            released.append(now())
    with helper() as h:
        h.do(hold)
        held.wait()
        begin = now()
        with lock:
            pass
        return segment.end({"lock": max(0, released[0] - begin)})


def step_queue(ms):
    segment, items = Segment("queue"), queue.Queue()

    def put():
        time.sleep(ms / 1000)
        items.put(now())
    with helper() as h:
        h.do(put)
        begin = now()
        return segment.end({"lock": max(0, items.get() - begin)})


def step_event(ms):
    segment = Segment("event")
    threading.Event().wait(ms / 1000)
    return segment.end({"lock": ms * MS})


def step_thread(ms):
    """The end of a thread."""
    segment, ends = Segment("thread"), []

    def sleep():
        time.sleep(ms / 1000)
        ends.append(now())
    thread = threading.Thread(target=sleep)
    thread.start()
    begin = now()
    thread.join()
    return segment.end({"lock": max(0, ends[0] - begin)})


def step_thread_cpu(ms):
    """The end of a thread that computes: this one wants the GIL now and then."""
    segment = Segment("thread_cpu")
    thread = threading.Thread(target=compute, args=[ms])
    thread.start()
    thread.join()
    return segment.end({"lock|gil|runq|gc_sibling|cpu": ms * MS * 9 // 10})


def step_disk(ms):
    segment, slept = Segment("disk"), 0
    with tempfile.TemporaryFile(dir="/var/tmp", buffering=0) as f:  # /tmp may be memory
        until = now() + ms * MS
        while now() < until:
            f.write(bytes(500_000))
            begin, cpu, delay = now(), cpu_ns(), delay_ns()
            os.fsync(f.fileno())
            slept += now() - begin - (cpu_ns() - cpu) - (delay_ns() - delay)
    return segment.end({"disk": slept * 6 // 10})  # a disk without a real device also waits for threads of the kernel


def step_flock(ms):
    segment, held, released = Segment("flock"), threading.Event(), []
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as f, open(f.name) as own, helper() as h:
        def hold():
            fcntl.flock(f, fcntl.LOCK_EX)
            held.set()
            time.sleep(ms / 1000)
            released.append(now())
            fcntl.flock(f, fcntl.LOCK_UN)
        h.do(hold)
        held.wait()
        begin = now()
        fcntl.flock(own, fcntl.LOCK_EX)
        return segment.end({"other|lock|disk": max(0, released[0] - begin)})


def step_child(ms):
    segment = Segment("child")
    child = subprocess.Popen(["/bin/sleep", str(ms / 1000)])
    begin = now()
    child.wait()
    return segment.end({"child": now() - begin})


def step_child_output(ms):
    segment = Segment("child_output")
    subprocess.run(["/bin/sh", "-c", f"sleep {ms / 1000}; echo x"], stdout=subprocess.PIPE)
    return segment.end({"pipe|child|other": ms * MS})


def step_pipe(ms):
    segment, (r, w), written = Segment("pipe"), os.pipe(), []

    def write():
        time.sleep(ms / 1000)
        written.append(now())
        os.write(w, b"x")
    with helper() as h:
        h.do(write)
        begin = now()
        os.read(r, 1)
        os.close(r)
        os.close(w)
        return segment.end({"pipe": max(0, written[0] - begin)})


def step_gc(_):
    segment = Segment("gc")
    gc.collect()
    return segment.end()


def step_gc_sibling(_):
    """Another thread's collection keeps this one, which has slept, from going on."""
    segment = Segment("gc_sibling")
    with helper() as h:
        done = h.do(gc.collect)
        time.sleep(.002)
        done.wait()
        return segment.end({"sleep": 2 * MS})


def step_gil(ms):
    """Another thread holds the GIL for 10 ms, while this one sleeps, and for `ms` more."""
    segment, held = Segment("gil"), []

    def hold():
        held.append(now())
        holding_gil.usleep((ms + 10) * 1000)
    with helper() as h:
        done = h.do(hold)
        time.sleep(.01)
        woke = now()
        done.wait()
        waited = woke >= held[0] + ms * MS  # else the helper had begun late
        least = max(0, ms * MS - max(0, held[0] - segment.facts["begin"])) if waited else 0
        return segment.end({"sleep": 10 * MS - 200_000, "gil": least})


def step_share(ms):
    """Two threads compute, with one GIL."""
    segment = Segment("share")
    with helper() as h:
        done = h.do(lambda: compute(ms))
        compute(ms)
        done.wait()
        return segment.end({"cpu": ms * MS})


def step_own_server(ms, number):
    """A request to the handler's own server."""
    segment, unix, request = Segment("own_server"), OWN_ADDRESS.startswith("/"), number + OWN_REQUEST
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as s:
        s.connect(OWN_ADDRESS if unix else ("127.0.0.1", int(OWN_ADDRESS)))
        s.sendall(f"GET /{request}/sleep-{ms} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
                  f"traceparent: 00-{request:032x}-{request:016x}-01\r\n\r\n".encode())
        s.settimeout(5)
        try:
            while s.recv(65536):
                pass
        except OSError:
            pass
    return segment.end({"net": ms * MS})
