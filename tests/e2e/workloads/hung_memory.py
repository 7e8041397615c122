# SPDX-License-Identifier: Apache-2.0
"""Unreadable memory: a thread's name, and the file's name of the thread's code, lie in a file of a hung file system;
with "userfaultfd" as PATH, in memory with page faults left unanswered by this program. hung_memory.py PATH N [CHILDREN]:
the thread collects N times, so many children once a second. The program must not touch the hung memory, either."""
import ctypes
import gc
import mmap
import os
import platform
import signal
import struct
import sys
import threading
import time

from workload import listen, now, tell, warm_up

SIZE = 4 << 20
PAGE = mmap.PAGESIZE
MAP_FIXED = 16
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def put_into_file(address, fd):
    """Maps the file over the memory from this text's first page on; the text is large enough to have separate
    pages."""
    begin = address // PAGE * PAGE
    if libc.mmap(begin, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED, fd, 0) != begin:
        sys.exit("mmap: " + os.strerror(ctypes.get_errno()))


UFFDIO_API, UFFDIO_REGISTER = 0xc018aa3f, 0xc020aa00
REGISTER_MISSING = 1


def ioctl(fd, request, *numbers):
    if libc.ioctl(fd, ctypes.c_ulong(request), struct.pack(f"<{len(numbers)}Q", *numbers)):
        sys.exit("userfaultfd: " + os.strerror(ctypes.get_errno()))


def answer_no_faults(addresses):
    """The memory is a file of the kernel (memfd) without pages: the absence is visible only by page faults."""
    number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
    faults = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK)
    ioctl(faults, UFFDIO_API, 0xaa, 0, 0)
    for address in addresses:
        ioctl(faults, UFFDIO_REGISTER, address // PAGE * PAGE, SIZE, REGISTER_MISSING, 0)


def open_memory(path):
    if path != "userfaultfd":
        return os.open(path, os.O_RDONLY)
    fd = os.memfd_create("trap")
    os.truncate(fd, SIZE)
    return fd


def define(file_name):
    names = {}
    exec(compile("def collect(n, gc, _):\n    for _ in range(n):\n        gc.collect(0)\n", file_name, "exec"), names)
    return names["collect"]


def fork_children(n, collect):
    for _ in range(n):
        if os.fork() == 0:
            libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            while True:
                collect(1, gc, None)
                time.sleep(1)


def run(fd, n, children):
    collect = define("f" * SIZE)
    threading.current_thread()._name = "n" * SIZE
    addresses = [id(threading.current_thread()._name), id(collect.__code__.co_filename)]
    gc.collect()
    gc.freeze()  # a collection visits the thread's attributes
    for address in addresses:
        put_into_file(address, fd)
    if sys.argv[1] == "userfaultfd":
        answer_no_faults(addresses)
    fork_children(children, collect)
    begin = now()
    collect(n, gc, None)
    tell(tid=threading.get_native_id(), begin=begin)
    listen()
    os._exit(0)


def main():
    fd = open_memory(sys.argv[1])
    gc.disable()
    if warm_up():
        threading.Thread(target=run, args=(fd, *map(int, (*sys.argv[2:], 0)[:2]))).start()
        threading.Event().wait()


main()
