# SPDX-License-Identifier: Apache-2.0
"""Draws, by a seed, a server, its handlers and its clients: `plan.py SEED` prints the plan as JSON.

A plan has the threads of the client; a thread has connections, one after the other; a connection has calls. A call's path
says what its handler does: /NUMBER/STEP-MS/STEP-MS..., see app.py. The same seed makes the same plan.
"""
import json
import random
import sys

from kinds import KINDS

BLOCKING = ["sleep"] * 4 + ["cpu"] * 3 + ["net"] * 2 + [
    "hash", "net_unix", "net_timeout", "net_kept", "select", "epoll", "lock", "queue", "event", "disk", "flock", "child", "child_output", "pipe",
    "gc", "gc_sibling", "gil", "share", "thread", "thread_cpu", "poll", "usleep"]
GREEN = ["sleep"] * 3 + ["cpu"] * 3 + ["net", "net_unix", "net_timeout", "hash", "disk", "gc", "usleep"]
BLOCKING_A_LOOP = ["sleep", "cpu", "cpu", "hash", "net", "net_unix", "lock", "queue", "event", "disk", "child", "pipe", "gc", "gc_sibling", "gil",
                   "share", "thread", "usleep", "flock"]
ASYNC = ["await"] * 4 + ["async_net"] * 2 + ["pool:sleep", "pool:cpu", "pool:net", "pool:lock", "pool:child", "gather", "gather_pool", "async_event",
                                              "async_child"]
OF_BOTH_PROCESSORS = ("pool:cpu", "share", "thread_cpu", "gil")  # long ones would only measure the machine
PROXIES = ["nginx", "nginx-close", "haproxy", "nginx-unbuffered"]
NUMBERS = 1_000_000  # requests of a seed have the numbers SEED * NUMBERS + 1001 and so on; one that a handler makes has half a NUMBERS more
NOT_PIPELINED = ("body", "body_pieces", "chunked", "expect", "head_pieces", "abort", "half", "read_after", "reset")


class Drawer:
    def __init__(self, seed, kinds):
        self.random = random.Random(seed)
        self.kind_name = self.random.choice([name for name in KINDS if name in (kinds or KINDS)])
        self.kind = KINDS[self.kind_name]
        self.last_number = seed * NUMBERS + 1000
        self.unix = self.kind.unix == "only" or self.kind.unix == "may" and self.chance(.25)
        self.proxy = self.pick(PROXIES) if self.kind.unix != "only" and self.chance(.2) else None
        self.calm = self.chance(.55)  # a single client thread: most can be said of its requests

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, values):
        return self.random.choice(values)

    def step(self):
        least = self.pick([4, 8, 8, 15])
        ms = self.random.randint(least, least * 3)
        name = self.step_name()
        if name in OF_BOTH_PROCESSORS:
            ms = min(ms, 20)
        return f"{name}-{ms}"

    def step_name(self):
        kind = self.kind
        if kind.app in ("asgi", "django_async"):
            name = self.pick(ASYNC) if self.chance(.6) else self.pick(BLOCKING_A_LOOP)
            no_network = kind.trio and name in ("async_net", "async_child")
            no_child = self.kind_name == "hypercorn-uvloop" and name == "async_child"  # asyncio's watcher of children is of another loop
            return "await" if no_network or no_child else name
        if kind.green:
            return self.pick(GREEN)
        name = self.pick(BLOCKING)
        # a server with fewer threads might wait for itself
        return "own_server" if kind.threads >= 3 and not self.proxy and self.chance(.03) else name

    def call(self, last):
        """last: of its connection."""
        self.last_number += 1
        call = {"number": self.last_number, "method": "GET", "keep": not last, "pause": 0}
        steps = [self.step() for _ in range(self.pick([0, 1, 1, 2, 2, 3, 4, 5] if self.calm else [0, 1, 1, 2, 3]))]
        self.draw_method(call, steps)
        steps = self.draw_client(call, self.draw_answer(call, steps), last)
        if self.chance(.15):
            call["big_head"] = self.pick([300, 800, 1500, 3000, 6000])
            call["trace_last"] = self.chance(.5)
        call["path"] = f"/{call['number']}/" + "/".join(steps)
        if self.chance(.2):
            call["path"] += f"?q={self.random.randint(0, 99)}"
        return call

    def draw_method(self, call, steps):
        which = self.random.random()
        if which < .22:
            self.draw_body(call, steps)
        elif which < .28:
            call["method"] = "HEAD"
        elif which < .30:
            call["method"] = "DELETE"

    def draw_body(self, call, steps):
        """body_pieces: the milliseconds before each piece."""
        kind = self.kind
        call["method"] = self.pick(["POST", "POST", "PUT"])
        call["body"] = self.pick([0, 1, 10, 500, 3000, 20_000, 70_000, 200_000])
        call["body_pieces"] = [self.pick([0, 0, 1, 10, 30]) for _ in range(self.pick([1, 1, 2, 3, 5]))]
        if self.chance(.3) and kind.chunked and not kind.view:
            call["chunked"] = True
        if self.chance(.2) and kind.expect:
            call["expect"] = True
        if call["body"] or call.get("chunked"):
            steps.insert(0 if kind.view else self.random.randint(0, len(steps)), "body")

    def draw_answer(self, call, steps):
        head = call["method"] == "HEAD"
        if self.chance(.12) and not self.kind.view and not head:
            steps.append(f"stream-{self.random.randint(5, 25)}")
        if self.chance(.15):
            steps.append(f"status-{self.pick([201, 404, 500, 503, 302])}")
        if self.chance(.12) and not head:
            steps.append(f"big-{self.pick([20, 100, 300])}")
        return steps

    def draw_client(self, call, steps, last):
        """A client that is slow to send, leaves, closes its half, or is slow to read."""
        which = self.random.random()
        if which < .12:
            call["head_pieces"] = [[self.pick([1, 4, 10, 40, 60, 100]), self.pick([1, 5, 20, 40])] for _ in range(self.pick([1, 1, 2, 3]))]
        elif which < .2 and last:
            call["abort"] = self.pick([1, 10, 25, 60])
            call["reset"] = self.chance(.4)
        elif which < .25 and last:
            call["half"] = self.pick([0, 5])
        elif which < .29 and call["method"] == "GET":
            call["read_after"] = self.pick([40, 80])
            steps = [step for step in steps if not step.startswith(("big", "stream"))] + ["big-8000"]
        return steps

    def connection(self):
        n = self.pick([1, 1, 2, 3, 4]) if self.kind.keeps else 1
        connection = {"start": self.pick([0, 0, 3, 10, 40]), "silent": self.pick([0, 0, 0, 0, 5, 30, 60])}
        connection["calls"] = calls = [self.call(last=i == n - 1) for i in range(n)]
        for call in calls[1:]:
            call["pause"] = self.pick([0, 0, 2, 20, 50])
        if n > 1 and self.chance(.12):
            connection["pipeline"] = True
            for call in calls:
                self.make_pipelined(call)
        if not calls[-1].get("abort") and self.chance(.3) and self.kind.keeps:
            calls[-1]["keep"] = True
            connection["linger"] = self.pick([0, 30])
        return connection

    @staticmethod
    def make_pipelined(call):
        for name in NOT_PIPELINED:
            call.pop(name, None)
        call["method"] = "GET"
        call["path"] = call["path"].replace("/body", "").replace("/big-8000", "/big-20")

    def plan(self):
        threads = 1 if self.calm else self.random.randint(2, 12)
        return [[self.connection() for _ in range(self.random.randint(4, 8) if self.calm else self.random.randint(1, 3))] for _ in range(threads)]


def make(seed, kinds=None):
    """kinds: only these."""
    drawer = Drawer(seed, kinds)
    return {"seed": seed, "kind": drawer.kind_name, "unix": drawer.unix, "proxy": drawer.proxy, "threads": drawer.plan()}


if __name__ == "__main__":
    print(json.dumps(make(int(sys.argv[1])), indent=1))
