# SPDX-License-Identifier: Apache-2.0
"""How many times longer tests wait on this machine: run.sh asks once. Prints 1, or up to 4 where the first use of a page takes
many times longer than usual, as on some virtual machines: then every start of a program, engine and thread does."""
import mmap
import time

PAGES = 8192
USUAL_US = 4.5  # a guest with two-level page tables takes 0.3 to 1, with neighbours more


def page_fault_us():
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        begin = time.perf_counter()
        for at in range(0, PAGES * mmap.PAGESIZE, mmap.PAGESIZE):
            memory[at] = 1
        return (time.perf_counter() - begin) / PAGES * 1e6


if __name__ == "__main__":
    print(max(1, min(4, round(page_fault_us() / USUAL_US))))
