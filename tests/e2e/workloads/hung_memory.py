# SPDX-License-Identifier: Apache-2.0
"""Memory that nobody gets: a thread's name, and the file's name of its code, lie in a file of a file system that does not
answer any more. hung_memory.py PATH N: the thread collects N times. What hangs must not be touched here, either."""
import ctypes
import gc
import mmap
import os
import sys
import threading

from workload import listen, now, tell, warm_up

SIZE = 4 << 20
PAGE = mmap.PAGESIZE
MAP_FIXED = 16
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def put_into_file(address, fd):
    """The memory from this text's first page on is the file's; it is large enough to have its pages for itself."""
    begin = address // PAGE * PAGE
    if libc.mmap(begin, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED, fd, 0) != begin:
        sys.exit("mmap: " + os.strerror(ctypes.get_errno()))


def define(file_name):
    names = {}
    exec(compile("def collect(n, gc, _):\n    for _ in range(n):\n        gc.collect(0)\n", file_name, "exec"), names)
    return names["collect"]


def run(fd, n):
    collect = define("f" * SIZE)
    threading.current_thread()._name = "n" * SIZE
    addresses = [id(threading.current_thread()._name), id(collect.__code__.co_filename)]
    gc.collect()
    gc.freeze()  # a collection looks at what is in the thread's attributes
    for address in addresses:
        put_into_file(address, fd)
    begin = now()
    collect(n, gc, None)
    tell(tid=threading.get_native_id(), begin=begin)
    listen()
    os._exit(0)


def main():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    gc.disable()
    if warm_up():
        threading.Thread(target=run, args=(fd, int(sys.argv[2]))).start()
        threading.Event().wait()


main()
