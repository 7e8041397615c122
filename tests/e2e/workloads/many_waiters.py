# SPDX-License-Identifier: Apache-2.0
"""A process with very many threads, a good part of which wait for the GIL whenever the main thread keeps it for long.
many_waiters.py THREADS ROUNDS: each thread sleeps again and again at the end of one of PLACES different stacks, and the
process says which."""
import sys
import threading
import time

from workload import frames, listen, now, tell, warm_up

PLACES = 89
places, names, ended = {}, {}, []


def nap(): time.sleep(3)  # noqa: E704


def note(k):
    if k not in places:
        places[k] = frames(sys._getframe(1))


def stay(k):
    while not ended: note(k); nap()  # noqa: E701,E702


def place(k, bits):
    """The next bit of k selects the callee: no two stacks are the same."""
    return (left if bits & 1 else right)(k, bits >> 1) if bits > 1 else stay(k)


def left(k, bits):
    return place(k, bits)


def right(k, bits):
    return place(k, bits)


def run(k):
    names[threading.get_native_id()] = threading.current_thread().name, k
    place(k, k + PLACES)


def keep_gil(data):
    sorted(data)


def enough(seconds):
    """A count of numbers with at least the given sorting time."""
    data = [float(i * 7919 % 1000003) for i in range(200_000)]
    begin = time.thread_time()
    keep_gil(data)
    return data * (1 + int(seconds / (time.thread_time() - begin)))


def main():
    n, rounds = int(sys.argv[1]), int(sys.argv[2])
    threading.stack_size(128 * 1024)
    # each waiter wakes once per interval to ask for the GIL: 3,001 of them at 5 ms are more than two processors can do
    sys.setswitchinterval(0.05)
    if not warm_up():
        return
    data = enough(0.6)
    threads = [threading.Thread(target=run, args=(i % PLACES,), name=f"one of many {i}") for i in range(n)]
    for thread in threads:
        thread.start()
        time.sleep(0.0005)  # avoids a permanently common wake-up
    begin = now()
    for _ in range(rounds):
        keep_gil(data)
        time.sleep(0.4)
    end = now()
    ended.append(True)
    for thread in threads:
        thread.join()
    tell(begin=begin, end=end, names=names, places=places)
    listen()


main()
