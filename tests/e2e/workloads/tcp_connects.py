# SPDX-License-Identifier: Apache-2.0
"""Connections to listening, refusing, silent and unreachable addresses, IPv4 and IPv6, blocking and not, in several
threads. Prints the result of each connect(): one JSON line. Arguments: number of connects, number of slow connects."""
import errno
import json
import select
import socket
import sys
import threading
import time

FAMILIES = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
LOCAL = {"ipv4": "127.0.0.1", "ipv6": "::1"}
# set up by the test: a neighbour that does not answer, no route, refusing routes, a refusing router
SLOW = {"black_hole": {"ipv4": "10.99.0.9", "ipv6": "fd99::9"},
        "router": {"ipv4": "10.98.0.1", "ipv6": "fd98::1"}}
NOWHERE = {"no_route": {"ipv4": "198.51.100.1", "ipv6": "2001:db8:1::1"},
           "unreachable": {"ipv4": "203.0.113.1", "ipv6": "2001:db8:2::1"},
           "prohibited": {"ipv4": "192.0.2.1", "ipv6": "2001:db8:3::1"}}

truth = []
lock = threading.Lock()


class Attempt:
    def __init__(self, kind, family, blocking, address):
        self.socket = socket.socket(FAMILIES[family], socket.SOCK_STREAM)
        self.socket.setblocking(blocking)
        self.row = {"kind": kind, "family": family, "blocking": blocking, "ip": address[0], "port": address[1],
                    "tid": threading.get_native_id(), "start": time.monotonic_ns()}
        self.error = self.socket.connect_ex(address)
        self.row["local_port"] = self.socket.getsockname()[1]
        if self.error != errno.EINPROGRESS:
            self.finish(self.error)

    def wait(self):
        if self.error == errno.EINPROGRESS:
            poll = select.poll()
            poll.register(self.socket, select.POLLOUT)
            poll.poll()
            self.finish(self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        self.socket.close()

    def finish(self, error):
        self.row["end"] = time.monotonic_ns()
        self.row["errno"] = error
        with lock:
            truth.append(self.row)


def accept_forever(listener):
    while True:
        listener.accept()[0].close()


def several(jobs, addresses):
    for kind, family, blocking in jobs:
        Attempt(kind, family, blocking, addresses[kind, family]).wait()


def all_at_once(jobs):
    attempts = [Attempt(kind, family, blocking, (SLOW[kind][family], 80)) for kind, family, blocking in jobs]
    for attempt in attempts:
        attempt.wait()


def main():
    n, n_slow = int(sys.argv[1]), int(sys.argv[2])
    addresses = {}
    for family, number in FAMILIES.items():
        listener = socket.create_server((LOCAL[family], 0), family=number, backlog=1024)
        threading.Thread(target=accept_forever, args=(listener,), daemon=True).start()
        addresses["listening", family] = listener.getsockname()[:2]
        taken = socket.socket(number)
        taken.bind((LOCAL[family], 0))  # bound, not listening: refuses
        globals()[f"keep_{family}"] = taken
        addresses["refusing", family] = taken.getsockname()[:2]
        for kind, places in NOWHERE.items():
            addresses[kind, family] = (places[family], 80)
    kinds = ["listening", "refusing", *NOWHERE]
    jobs = [(kinds[i % len(kinds)], ("ipv4", "ipv6")[i // len(kinds) % 2], bool(i // len(kinds) // 2 % 2))
            for i in range(n - n_slow)]
    threads = [threading.Thread(target=several, args=(jobs[i::8], addresses)) for i in range(8)]
    slow = [("router" if i % 3 == 2 else "black_hole", ("ipv4", "ipv6")[i % 2], i % 4 == 0) for i in range(n_slow)]
    threads += [threading.Thread(target=all_at_once, args=([job],)) for job in slow if job[2]]
    threads.append(threading.Thread(target=all_at_once, args=([job for job in slow if not job[2]],)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump(truth, sys.stdout)


main()
