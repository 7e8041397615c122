# SPDX-License-Identifier: Apache-2.0
"""exec_threads.py N FATE: N children in sequence; in each a thread other than the first calls exec() with success
("runs"), also after the end of the first thread ("leads no more"), or dies of a failure after the kernel has ended the
sibling threads ("dies"). Then sleeps 20 times."""
import ctypes
import os
import resource
import struct
import sys
import tempfile
import threading
import time

from workload import listen, now, tell, warm_up

N, FATE = int(sys.argv[1]), sys.argv[2]


libc = ctypes.CDLL(None)


def execs_later(program):
    time.sleep(0.002)
    os.execv(program, [program])


def make_program(broken):
    """Ends at once with 0; the only segment of a broken program is outside of a process's address range, noticed by the
    kernel after the point of no return."""
    machine, code = {"x86_64": (62, "b83c000000 31ff 0f05"), "aarch64": (183, "000080d2 a80b80d2 010000d4")}[os.uname().machine]
    code = bytes.fromhex(code)
    address, size = 0xffff000000000000 if broken else 0x400000, 120 + len(code)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine, 1, 0x400000 + 120, 64, 0, 0, 64, 56, 1,
                         64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, size, size, 4096)
    fd, path = tempfile.mkstemp()
    os.write(fd, header + segment + code)
    os.fchmod(fd, 0o755)
    os.close(fd)
    return path


def child(program):
    if FATE == "leads no more":  # the first thread has ended by itself, the others go on
        threading.Thread(target=execs_later, args=(program,)).start()
        libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit(), of this thread
    lock = threading.Lock()
    lock.acquire()
    for _ in range(2):
        threading.Thread(target=lock.acquire, daemon=True).start()
    time.sleep(0.001)
    thread = threading.Thread(target=os.execv, args=(program, [program]))
    thread.start()
    thread.join()
    os._exit(3)  # exec() failed before the point of no return


def sleeps():
    """A sleep ends at a set time: off the CPU the sleep is shorter than requested after a delayed beginning, and none at
    all (no voluntary switch) after a delay longer than the sleep."""
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        begin = now()
        time.sleep(0.012)
        yield {"begin": begin, "end": now(), "switches": resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before}


program = make_program(FATE == "dies")
warm_up()
states = set()
for _ in range(N):
    pid = os.fork()
    if not pid:
        child(program)
    states.add(os.waitpid(pid, 0)[1])
os.unlink(program)
tell(states=sorted(states))
listen()
tell(sleeps=list(sleeps()))
