# SPDX-License-Identifier: Apache-2.0
"""exec_threads.py N FATE: N children, one after the other, in which a thread that is not the first becomes another
program ("runs"), or dies of trying when the kernel has ended the other threads already ("dies"). Then sleeps 20 times."""
import os
import resource
import struct
import sys
import tempfile
import threading
import time

from workload import listen, now, tell, warm_up

N, FATE = int(sys.argv[1]), sys.argv[2]


def make_program(broken):
    """Ends at once with 0; a broken one has its one segment outside of what a process can have, which the kernel finds out
    after its point of no return."""
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
    lock = threading.Lock()
    lock.acquire()
    for _ in range(2):
        threading.Thread(target=lock.acquire, daemon=True).start()
    time.sleep(0.001)
    thread = threading.Thread(target=os.execv, args=(program, [program]))
    thread.start()
    thread.join()
    os._exit(3)  # exec() failed while it still could


def sleeps():
    """A sleep ends at a set time: off the CPU it is shorter than asked for where its beginning was delayed, and none at all
    (no voluntary switch) where the delay was longer than the sleep."""
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
