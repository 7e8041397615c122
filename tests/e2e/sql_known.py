# SPDX-License-Identifier: Apache-2.0
"""Rows of known composition for every table, as input of each file under sql/. Two hosts, containers of one pod, pid 7
everywhere, weights, times on both sides of each window's edges, hostile names. Times are microseconds."""
import random
import struct

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
MS = 1_000_000  # in nanoseconds

HOSTILE = ["'; DROP TABLE ebpf_gc_pause; --", 'a"b\\c', "tab\there", "line\nbreak", "\u202eesrever", "{pid:UInt32}", "100%s"]
WEIGHTS = [1.0, 1.0, 1.0, 2.5, 4.0, 4 / 3, 512.0]
PATHS = ["orders/42", "orders/0af7651916cd43dd/items", "orders/0af7", "u/123e4567-e89b-12d3-a456-426614174000"]
STACKS = [[], ["leaf (/app/a.py:1)"], ["<gone>", "b (/app/b.py:2)", "c (/app/c.py:3)", "d (/app/d.py:4)", "e (/app/e.py:5)"],
          ["f' < \\g (/app/f.py:6)", "main (/app/m.py:9)"]]

# (host, container_id, pod_uid, pid, host_pid): both containers of one pod have a process 7, and so has the second host
PROCESSES = [("web-1", "c1" * 32, "pod-a", 7, 4007), ("web-1", "c2" * 32, "pod-a", 7, 5007), ("web-1", "", "", 7, 7),
             ("web-2", "c1" * 32, "pod-b", 7, 4007), ("web-2", "", "", 4007, 4007)]


def names(host, container):
    """Human-readable names of the process with the given ids."""
    return {"boot_id": f"{host[-1:] * 8}-boot", "pidns": 4026531836 if container == "" else 4026532000 + int(container[1:2]),
            "service": HOSTILE[len(container) % 3], "namespace": "prod" if container else "", "pod": f"pod {container[:2]}" if container else "",
            "container": container[:2]}


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]

PARTS = ["accept_queue", "client_wait", "queue", "pool_wait", "cpu", "runq", "throttled", "gil", "gc_own", "gc_sibling", "lock", "net", "disk",
         "fault", "sleep", "pipe", "child", "other", "await", "loop_busy", "client_slow"]
NULLABLE_PARTS = {"accept_queue", "client_wait", "queue", "gil", "gc_own", "gc_sibling"}


class Maker:
    """Makes the rows of one moment: `now` is the value of now() in the queries."""

    def __init__(self, now):
        self.now = now
        self.random = random.Random(11)
        # within the hour, at the edges to the microsecond, and outside
        self.starts = [now - HOUR, now - HOUR - 1, now - HOUR + 1, now - 2 * HOUR, now - 50 * HOUR, now, now + 3 * SECOND]

    def moments(self, n):
        """The edges, then n moments, every eighth before the hour."""
        yield from self.starts
        for _ in range(n):
            age = self.random.randrange(0, HOUR - 2 * MINUTE) if self.random.random() < 7 / 8 else self.random.randrange(HOUR, 20 * HOUR)
            yield self.now - age

    def common(self, start, ns=None, threads=3):
        choose = self.random.choice
        host, container, pod, pid, host_pid = choose(PROCESSES)
        thread = self.random.randrange(threads)
        ns = self.random.randrange(1, 300 * MS) if ns is None else ns
        return {"host": host, "container_id": container, "pod_uid": pod, "pid": pid, "tid": pid + thread, "host_pid": host_pid,
                "host_tid": host_pid + thread, "comm": choose(HOSTILE[:3] + ["python3"]), "thread_name": choose(HOSTILE),
                "start_time": start, "end_time": start + ns // 1000, "duration_ns": ns, "trace_id": "", "span_id": "",
                "weight": float32(choose(WEIGHTS)), **names(host, container)}

    def tcp(self):
        choose = self.random.choice
        return {"family": "ipv4", "local_ip": "::ffff:10.0.0.1", "local_port": choose([0, 40000, 8000]),
                "remote_ip": choose(["::ffff:10.0.0.9", "2001:db8::1"]), "remote_port": choose([443, 50000]), "netns": choose([1, 2]),
                "srtt_us": choose([0, 250, 800]), "snd_cwnd": 10, "total_retrans": choose([0, 0, 1, 3]), "tcp_state": "ESTABLISHED"}

    def requests(self):
        """One per minute at a service of a separate host: (thread, start of the span, ms of waiting for a thread, ms of the wait and
        of the span taken by a collection of a sibling, weight of the hand-off's row, trace). Picked up 1 ms before the span, which
        lasts 100 ms."""
        for i in range(40):
            yield 71 + i % 4, self.now - 45 * MINUTE + i * MINUTE // 2, 3 * i + 1, i, 3.0 if i % 3 == 0 else 1.0, f"{1000 + i:032x}"

    def of_request(self, thread, start, ns, **more):
        return {**self.common(start, ns), "host": "shop-1", "container_id": "", "pod_uid": "", "pid": 70, "host_pid": 70, "tid": thread,
                "host_tid": thread, "weight": 1.0, **more}

    def name_read_late(self):
        """Some rows precede the first reading of the thread's name."""
        return {"thread_name": ""} if self.random.random() < 0.2 else {}

    # ---- one function per table ----

    def ebpf_gc_pause(self):
        for start in self.moments(300):
            yield {**self.common(start), "generation": self.random.choice([-1, 0, 1, 2]), "reason": "", "collected": self.random.randrange(99),
                   "uncollectable": 0, "long_lived": (None, 0, 2**40)[start % 3], "frozen_threads": self.random.randrange(9), "sibling_threads": 9,
                   "py_stack": self.random.choice(STACKS), "method": "usdt"}
        for _, start, _, collecting, _, _ in self.requests():
            yield {**self.of_request(70, start + 10_000, collecting * MS), "generation": 2, "reason": "", "collected": 0, "uncollectable": 0,
                   "long_lived": 123_456, "frozen_threads": 4, "sibling_threads": 9, "py_stack": [], "method": "usdt"}
        # longer than all others: at the end of an interpreter of 3.13 and of an older one, and what looks alike but is none
        for i, (reason, more) in enumerate([("shutdown", {}), ("", {}), ("manual", {}), ("", {"frozen_threads": None}), ("", {"frozen_threads": 1}),
                                            ("", {"py_stack": STACKS[1]}), ("", {"generation": 1})]):
            yield {**self.of_request(70, self.now - 20 * MINUTE + i * SECOND, (400 + i) * MS, host="ended-1"), "generation": 2, "reason": reason, "collected": i,
                   "uncollectable": 0, "long_lived": 7, "frozen_threads": 0, "sibling_threads": 0, "py_stack": [], "method": "uprobe", **more}

    def ebpf_gil_wait(self):
        for start in self.moments(400):
            row = self.common(start)
            keepers = self.random.sample([row["pid"] + t for t in range(4)], self.random.randrange(1, 4)) + [0]
            row |= {"runq_ns": 5, "forced_ns": 0, "holder_tid": keepers[0], "holder_host_tid": 1, "holder_thread_name": "h",
                    "holder_py_stack": self.random.choice(STACKS),
                    "holders": [{"tid": tid, "ns": self.random.randrange(1, 90 * MS), "thread_name": self.random.choice(HOSTILE)}
                                for tid in keepers[:self.random.randrange(1, 5)]],
                    "dropper_tid": 0, "dropper_host_tid": 0, "dropper_thread_name": "", "sleeps": 1,
                    "py_stack": self.random.choice(STACKS), "method": "sched"}
            yield row
            if start % 5 == 0:  # of a thread that accepts, and of a thread that serves requests
                yield {**row, "host": "ledger-1", "container_id": "", "pod_uid": "", "pid": 90, "host_pid": 90, "tid": 90 + start % 2}

    def ebpf_gil_wait_profile(self):
        for start in self.moments(20):
            yield {**self.common(start), **self.name_read_late(), "holder_tid": 8, "holder_host_tid": 4008, "waits": 5, "wait_ns": 123 * MS, "runq_ns": 1,
                   "forced_ns": 0, "max_ns": 99 * MS}

    def ebpf_handoff(self):
        for start in self.moments(400):
            row = self.common(start)
            yield {**row, "queue": self.random.choice(["accept", "keepalive"]), "pickup": "recvfrom", "client_wait_ns": 1000,
                   "handoff_ns": self.random.randrange(row["duration_ns"]), "fd": 5, "main_tid": row["pid"], "main_thread_name": "MainThread",
                   "local_port": self.random.choice([8000, 8001]), "peer_ip": "::1", "peer_port": 50000, "py_stack": self.random.choice(STACKS)}
        for thread, start, waited, _, weight, _ in self.requests():
            yield {**self.of_request(thread, start - 1000 - waited * 1000, waited * MS, weight=weight), "queue": "accept", "pickup": "recvfrom",
                   "client_wait_ns": 0, "handoff_ns": waited * MS, "fd": 5, "main_tid": 70, "main_thread_name": "MainThread", "local_port": 8000,
                   "peer_ip": "::1", "peer_port": 50000, "py_stack": []}

    def ebpf_loop_stall(self):
        parts = ["cpu", "runq", "gil", "lock", "net", "disk", "sleep", "other"]
        for start in self.moments(400):
            row, rest = self.common(start), {}
            left = row["duration_ns"]
            for part in self.random.sample(parts[1:], 3):
                rest[part] = self.random.randrange(left // 2 + 1)
                left -= rest[part]
            split = self.random.random() < 0.9
            values = {f"{part}_ns": rest.get(part, 0) for part in parts[1:]} | {"cpu_ns": left}
            if not split:
                values["other_ns"] += sum(values[f"{part}_ns"] for part in parts[2:7])
                values |= {f"{part}_ns": None for part in parts[2:7]}
            stack = self.random.choice(STACKS)
            yield {**row, **values, "loop": self.random.choice(["asyncio", "uvloop"]), "py_stack": stack,
                   "waiting": self.random.choice([None, 0, 3, 17]), "stack_at_ns": left if stack else None}

    def ebpf_off_cpu(self):
        for start in self.moments(20):
            row = {**self.common(start), **self.waited(), "cpu": 1, "runq_ns": 7}
            yield {**row, "lock_address": (0, 0x7f0011224470, 2**64 - 8)[start % 3] if row["cause"] == "lock" else 0, "state": "T" if start % 11 == 0 else "S"}
        row |= {"state": "S", "idle": 0, "lock_address": 0, **self.ACCEPTS}
        begin = self.now - 2 * HOUR + 100_000
        for ms, cause, more in [(0, "net", {}), (5, "net", {"idle": 1}), (6, "gil", {}), (7, "lock", {"tid": 71}), (8, "sleep", {"state": "T"}),
                                (9, "net", {"pid": 72}), (-11 * 60_000, "disk", {}), (-200, "disk", {}), (400, "disk", {})]:
            yield {**row, **self.at(begin + ms * 1000, 100 * MS), "cause": cause, **more}

    @staticmethod
    def at(start, ns):
        return {"start_time": start, "end_time": start + ns // 1000, "duration_ns": ns}

    def waited(self):
        choose = self.random.choice
        return {"state": "S", "cause": choose(["lock", "net", "sleep"]), "idle": choose([0, 0, 1]), "syscall": choose(["futex", ""]),
                "kernel_stack": ["schedule"], "user_stack": choose(STACKS), "py_stack": choose(STACKS), "waker_pid": 1, "waker_tid": 1,
                "waker_host_tid": 1, "waker_comm": choose(["", *HOSTILE[:2]]), "waker_thread_name": "", "waker_stack": []}

    def ebpf_off_cpu_profile(self):
        for start in self.moments(600):
            row = {**self.common(start, 10_000 * MS), **self.name_read_late(), **self.waited(), "count": self.random.randrange(1, 9),
                   "off_ns": self.random.randrange(1, 900 * MS), "runq_ns": self.random.randrange(90 * MS), "min_ns": 1,
                   "max_ns": self.random.randrange(1, 90 * MS)}
            if self.random.random() < 0.1:  # found no room in the kernel
                row |= {"pid": 0, "tid": 0, "host_pid": 0, "host_tid": 0, "user_stack": [], "py_stack": [], "container_id": ""}
            yield row

    ACCEPTS = {"host": "kept-1", "container_id": "", "pid": 70, "tid": 70}  # one thread accepts, of process 72 two do

    def ebpf_tcp_accept(self):
        for start in [*self.moments(300), *(self.now // MINUTE * MINUTE - 20 * MINUTE + i for i in (-1, 0, MINUTE - 1, MINUTE))]:
            kind = self.random.choice(["accepted", "accepted", "never_accepted", "dropped"])
            drops = self.random.randrange(1, 50) if kind == "dropped" else 0
            row = {**self.common(start), **self.tcp(), "kind": kind, "listen_ip": self.random.choice(["::", "::ffff:0.0.0.0"]),
                   "queue_len": self.random.randrange(130), "queue_max": 128, "handshake_rtt_us": 0, "drops": drops,
                   "overflows": drops // 2}
            yield row
        for ms, drops, more in (9500, 5, {}), (4000, 6, {}), (11_500, 7, {}), (-500, 8, {}), (2000, 3, {"netns": 8}), (2000, 2, {"local_port": 8001}):
            at = self.now - 30 * MINUTE - ms * 1000
            yield {**row, "host": "shop-1", "kind": "dropped", "netns": 9, "local_port": 8000, "start_time": at, "end_time": at + SECOND,
                   "duration_ns": 1000 * MS, "drops": drops, "overflows": drops - 1, **more}
        for ms, kind, more in (0, "accepted", {}), (10, "accepted", {}), (20, "never_accepted", {"tid": 71}), (0, "accepted", {"pid": 72}), (0, "accepted", {"pid": 72, "tid": 71}):
            yield {**row, **self.at(self.now - 2 * HOUR + ms * 1000, MS), "kind": kind, "drops": 0, "overflows": 0, **self.ACCEPTS, **more}

    def ebpf_tcp_connect(self):
        for start in self.moments(500):
            yield {**self.common(start), **self.tcp(), "outcome": self.random.choice(["success"] * 5 + ["refused", "timeout"]), "errno": 0}
        yield {**self.common(self.now - MINUTE, 0), **self.tcp(), "comm": "never connected", "outcome": "unreachable", "errno": 113}

    def ebpf_tcp_connect_closed(self):
        for start in self.moments(300):
            yield {**self.common(start, self.random.choice([self.random.randrange(1, 900 * MS), self.random.randrange(1000 * MS, 90_000 * MS)])),
                   **self.tcp(), "closed_by": "local", "bytes_sent": self.random.randrange(9999), "bytes_received": self.random.randrange(99999)}

    def ebpf_tcp_loss(self):
        kinds = ["retransmit", "rto", "loss_recovery", "tlp", "syn_retransmit", "synack_retransmit", "zero_window_sent",
                 "zero_window_received", "rst_sent", "rst_received"]
        for start in self.moments(600):
            row = self.common(start)
            yield {**row, "kind": self.random.choice(kinds), "ended_by": self.random.choice(["ack", "rto", "close"]), "owner": "user",
                   **self.tcp(), "stalled_ns": self.random.randrange(row["duration_ns"]), "stalls": 1, "segments": self.random.randrange(5),
                   "timeouts": 0, "probes": 0, "lost_out": 0, "snd_wnd": 0, "rcv_wnd": 0}

    def ebpf_ena(self):
        """Runs that end before the hour, at the edge, within; with pauses of just under 5 s and of 5 s; a run that begins
        before the hour."""
        names = ["bw_in", "bw_out", "pps", "conntrack", "linklocal"]
        for host, interface, allowance, begin, readings in [
                ("web-1", "ens5", "bw_in", self.now - HOUR - 30 * SECOND, "1" * 60),
                ("web-1", "ens5", "pps", self.now - 30 * MINUTE, "2200002000003"),
                ("web-1", "ens6", "pps", self.now - 30 * MINUTE, "n0n4"),
                ("web-2", "ens5", "conntrack", self.now - HOUR - 5 * SECOND, "55555"),
                ("web-2", "ens5", "linklocal", self.now - HOUR - 6 * SECOND, "55555"),
                ("web-2", "ens5", "bw_out", self.now - 3 * HOUR, "777")]:
            for i, reading in enumerate(readings):
                row = {"host": host, "interface": interface, "ifindex": 2, "driver": "ena", "start_time": begin + i * SECOND,
                       "end_time": begin + (i + 1) * SECOND, "conntrack_allowance_available": None, "reset": 0, "source": "ioctl", "asked_by": ""}
                for name in names:
                    row[f"{name}_allowance_exceeded"] = 0
                    row[f"{name}_allowance_exceeded_total"] = None
                row[f"{allowance}_allowance_exceeded"] = None if reading == "n" else int(reading)
                yield row

    def ebpf_cpu_throttle(self):
        """Two containers below one pod's quota: each process has the cgroup's window, one process came in the middle of the
        window."""
        def window(process, cgroup, cgroup_id, end, ns, stopped, periods, quota=50_000):
            host, container, pod, pid, host_pid = process
            return {**self.common(end - ns // 1000, ns), "host": host, "container_id": container, "pod_uid": pod, "pid": pid, "tid": 0,
                    "host_pid": host_pid, "host_tid": 0, "end_time": end, "weight": 1.0, "cgroup": cgroup, "cgroup_id": cgroup_id,
                    "cgroup_level": 2, "quota_us": quota, "period_us": 100_000, "throttled_ns": stopped, "throttled_periods": periods // 2,
                    "periods": periods, "throttled_ns_total": 9 * stopped, "throttled_periods_total": 9, "periods_total": 99}
        for i in range(40):
            end = self.now - HOUR + 10 * SECOND + i * 61 * SECOND
            stopped, periods = 70 * MS + i * MS, 10 + i
            yield window(PROCESSES[0], "/pod-a", 77, end, 900 * MS, stopped, periods, 50_000 + 100 * i)
            yield window(PROCESSES[1], "/pod-a", 77, end, 500 * MS if i % 2 else 900 * MS, stopped // (1 + i % 2), periods // (1 + i % 2), 50_000 + 100 * i)
        yield window(PROCESSES[3], "/pod-a", 77, self.now - MINUTE, 300 * MS, 5 * MS, 0)  # the same cgroup path on the second host; no period ended
        yield window(PROCESSES[2], HOSTILE[0], 78, self.now - 2 * HOUR, 300 * MS, 5 * MS, 9)

    def request(self, common, parts, **more):
        """A row of the ledger: parts in nanoseconds, None for not measured; the duration is the sum."""
        choose = self.random.choice
        ip, port, path = choose([("::ffff:10.0.0.5", 5432, ""), ("::", 0, "/run/postgresql/" + choose(HOSTILE))])
        parts = {name: parts.get(name, 0) for name in PARTS}
        ns = sum(value or 0 for value in parts.values())
        return {**common, "end_time": common["start_time"] + ns // 1000, "duration_ns": ns, "request_id": self.random.randrange(1, 1 << 64),
                "family": "ipv4", "server_port": 8000, "peer_ip": "::ffff:10.0.0.9", "peer_port": 50000, "fd": 5, "netns": 1,
                "method": choose(["GET", "POST", ""]), "path": "/" + choose([*HOSTILE, *PATHS]), "status": choose([200, 200, 500, None]), "bytes_in": 100,
                "bytes_out": self.random.randrange(99999), "parent_span_id": "", "model": choose(["thread", "pool", "loop"]), "link": choose(["same", "write", "wake"]),
                "end_by": "length", "outcome": "answered", "connection_request": 1, "queue_depth": choose([None, 0, 3]), "busy_threads": 2,
                "open_requests": 1, **{f"{name}_ns": value for name, value in parts.items()}, "net_peer_ip": ip,
                "net_peer_port": port, "net_peer_path": path, "net_peer_ns": parts["net"] // 2, "body_wait_ns": (parts["await"] or 0) // 3,
                "not_measured": sorted({"gil": "gil", "gc_own": "gc", "gc_sibling": "gc", "queue": "arrival"}[name]
                                       for name in ("gil", "gc_own", "queue") if parts[name] is None), **more}

    def requests_with_spans(self):
        """Five hours ago, at a service of a separate host, one per second: (row, (trace, span id, parent, start, length in us, thread,
        resource) of each span, how the span was found, or the reason why not)."""
        at = self.now - 5 * HOUR
        sent = [(f"{3000 + i:032x}", f"{3000 + i:016x}") for i in range(23)]

        def row(i, thread=91, ms=50, start=0, host="ledger-1", container="", **more):
            common = {**self.common(at + i * SECOND + start, 0), "host": host, "container_id": container, "pod_uid": "pod-l" if container == "c3" else "",
                      "pid": 90, "host_pid": 90, "tid": thread, "host_tid": thread, "weight": 1.0}
            return self.request(common, {"queue": 5 * MS, "cpu": ms * MS - 8 * MS, "net": 3 * MS}, **{"model": "thread", **more})

        def carried(i):
            return {"trace_id": sent[i][0], "parent_span_id": sent[i][1]}

        def span(i, name, trace=None, parent="", start=6000, thread=91, resource=None, us=40_000):
            return trace or f"{4000 + i:032x}", f"{4000 + i:015x}{name}", parent, at + i * SECOND + start, us, thread, resource or {"host.name": "ledger-1"}

        yield row(0, **carried(0)), [span(0, "a", *sent[0])], "traceparent"
        yield row(1, **carried(1)), [span(1, "a", *sent[1]), span(1, "b", *sent[1], start=7000)], "several server spans have its traceparent"
        for start in 0, 100_000:
            yield row(2, start=start, **carried(2)), [span(2, "a", *sent[2])] * (start == 0), "several requests carried its traceparent"
        yield row(3, **carried(3)), [span(3, "a", *sent[3], start=900_000)], "the server span with its traceparent is of another time"
        yield row(4, **carried(4)), [span(4, "a", sent[4][0], "0" * 16)], "no server span has its traceparent"
        yield row(5, **carried(5)), [span(5, "a", *sent[5])] * 2, "traceparent"  # delivered twice
        yield row(6), [span(6, "a")], "thread"
        yield row(7), [span(7, "a"), span(7, "b", start=9000)], "the request carried no traceparent, and several server spans began on its thread meanwhile"
        # before the pickup by the thread, and after the end
        yield row(8), [span(8, "a", start=4000), span(8, "b", start=51_000)], "the request carried no traceparent, and no server span began on its thread meanwhile"
        yield row(9, model="loop"), [span(9, "a")], "the request carried no traceparent, and its thread does not tell (an event loop)"
        yield row(10, model="pool"), [span(10, "a")], "the request carried no traceparent, and its thread does not tell (a pool behind the one that read it)"
        yield row(11, model="loop", **carried(11)), [span(11, "a", *sent[11], thread=99)], "traceparent"
        # the same pid on a second host and in a container: a span with too few attributes belongs to no
        # request
        yield row(12, host="ledger-2"), [span(12, "a", resource={"host.name": "ledger-2"})], "thread"
        yield row(13, host="ledger-2"), [span(13, "a", resource={"service.name": "x"})], "the request carried no traceparent, and no server span began on its thread meanwhile"
        yield row(14, host="ledger-3", container="c3"), [span(14, "a", resource={"k8s.pod.uid": "pod-l"})], "thread"
        # a proxy that forwarded the header: the span belongs to the server; one header sent by a caller to two services; three spans of
        # two processes
        app = span(15, "a", *sent[15], resource={"host.name": "ledger-2"})
        yield row(15, **carried(15)), [], "the server span with its traceparent is of another process"
        yield row(15, host="ledger-2", start=1000, **carried(15)), [app], "traceparent"
        yield row(16, **carried(16)), [span(16, "a", *sent[16])], "traceparent"
        yield row(16, host="ledger-2", start=1000, **carried(16)), [span(16, "b", *sent[16], resource={"host.name": "ledger-2"})], "traceparent"
        yield row(17, **carried(17)), [span(17, "a", *sent[17]), span(17, "b", *sent[17], start=9000)], "several server spans have its traceparent"
        yield row(17, host="ledger-2", **carried(17)), [span(17, "c", *sent[17], resource={"host.name": "ledger-2"})], "traceparent"
        # spans without a process, of one request and of two; a span with a pid of several processes; Docker's name of a host
        yield row(18, **carried(18)), [span(18, "a", *sent[18], thread=None, resource={"service.name": "x"})], "traceparent alone"
        for host in "ledger-1", "ledger-2":
            yield row(19, host=host, **carried(19)), [span(19, "a", *sent[19], thread=None)] * (host == "ledger-1"), "several requests carried its traceparent"
        yield row(20, **carried(20)), [span(20, "a", *sent[20], resource={"service.name": "x"})], ("the server span with its traceparent fits several processes of its pid: it "
                                                                               "has to name its host (host.name) and container (container.id)")
        yield row(21, host="ledger-3", container="c3" * 32, **carried(21)), [span(21, "a", *sent[21], resource={"host.name": "c3" * 6})], "traceparent"
        yield row(22, **carried(22)), [span(22, "a", *sent[22], resource={"host.name": "elsewhere"})], "the server span with its traceparent is of another process"

    def ebpf_request(self):
        for start in self.moments(60):
            common = self.common(start, 0)
            parts = {name: self.random.choice([0, self.random.randrange(1, 200 * MS)]) for name in PARTS}
            for name in "accept_queue", "queue", "gil", "gc_own":
                parts[name] = self.random.choice([parts[name], None])
            parts["gc_sibling"] = parts["gc_own"]
            yield self.request(common, parts)
        for row, _, _ in self.requests_with_spans():
            yield row

    def ebpf_request_profile(self):
        for start in self.moments(20):
            choose = self.random.choice
            parts = {f"{name}_ns": choose([0, self.random.randrange(1, 500 * MS)]) for name in PARTS}
            histogram = [choose([0, 0, self.random.randrange(9)]) for _ in range(20)] + [1] + [0] * 11  # the longest is in the last bucket with any
            row = {**self.common(start, 10_000 * MS), "tid": 0, "host_tid": 0, "server_port": 8000, "method": "GET",
                   "status_class": choose(["2xx", "2xx", "5xx", ""]), "model": choose(["thread", "pool", "loop"]), "count": sum(histogram),
                   "duration_sum_ns": sum(parts.values()), **parts, "min_ns": 1, "max_ns": self.random.randrange(1 << 19, 1 << 20) * 1000,
                   "histogram": histogram, "not_measured": sorted(choose([[], ["gil"], ["accept", "gc", "gil"], ["arrival"]]))}
            yield row

    def ebpf_agent(self):
        """web-1: an agent stopped for ten minutes, started before the hour, of late with a sample of handoff; web-2: no agent for two hours; web-3: from the middle on,
        sampled for a while; web-4: only a tracker that does not run; web-6: two agents
        for five minutes."""
        counters = """seen filtered sampled lost_ring lost_state bad_event rows pending read_fail stack_late stack_state stack_moved stack_room
            stack_share rows_gone rows_unread rows_unnamed recovered inserted dropped_memory dropped_spool dropped_corrupt dropped_refused
            lost_crash queued_rows spooled_rows retries bytes_sent bpf_ns bpf_hits agent_ns sampling_level skip_shift columns_left_out""".split()
        pauses = {"web-1": [(HOUR + 30 * MINUTE, 40 * MINUTE), (30 * MINUTE, 0)], "web-2": [(4 * HOUR, 2 * HOUR)], "web-3": [(20 * MINUTE, 0)],
                  "web-4": [(2 * HOUR, 0)], "web-5": [(60 * HOUR, 50 * HOUR)],
                  "web-6": [(20 * MINUTE, 0), (10 * MINUTE + 4 * SECOND, 5 * MINUTE)]}
        pauses["shop-1"] = [(90 * MINUTE, 0)]
        trackers = {"web-4": ["agent", "ena"], "shop-1": ["agent", "gc_pause", "handoff", "tcp_accept"]}
        for host, spells in pauses.items():
            for tracker in trackers.get(host, ["agent", "gc_pause", "handoff", "request"]):
                for begin, end in spells:
                    at = self.now - begin - 3 * SECOND
                    while at < self.now - end - 3 * SECOND:
                        row = {name: 0 for name in counters}
                        row |= {name: self.random.randrange(1, 99) for name in ("seen", "rows", "lost_ring", "lost_state", "bad_event",
                                "dropped_memory", "dropped_spool", "dropped_corrupt", "dropped_refused", "lost_crash", "sampled",
                                "agent_ns", "bpf_ns", "queued_rows", "spooled_rows", "read_fail")}
                        thinned = host == "web-3" and self.now - at < 10 * MINUTE
                        row |= {"host": host, "version": "1", "tracker": tracker, "start_time": at, "end_time": min(at + 10 * SECOND, self.now),
                                "sampled": 0 if host == "shop-1" else row["sampled"], "sampling_level": 3 if thinned and tracker == "gc_pause" else 0,
                                "skip_shift": (tracker == "handoff") + 2 * (tracker == "gc_pause") if thinned
                                else 3 * (host == "web-1" and tracker == "handoff" and self.now - at < 5 * MINUTE)}
                        yield row
                        at += 10 * SECOND

    def ebpf_probe_health(self):
        def word(host, host_pid, age, tracker, live, reason="", binary="", container=""):
            return {"host": host, "container_id": container, "pod_uid": "", "host_pid": host_pid, "time": self.now - age, "tracker": tracker,
                    "live": live, "method": "", "python_version": "3.12.1" if host_pid else "", "binary": binary, "build_id": "", "reason": reason}
        yield word("web-1", 0, 90 * MINUTE, "gc_pause", 0, "no BTF")
        yield word("web-1", 0, 30 * MINUTE, "gc_pause", 1)
        yield word("web-1", 0, 26 * HOUR, "tcp_loss", 0, "more than a day ago")
        yield word("web-3", 0, 20 * MINUTE, "handoff", 0, HOSTILE[0])
        yield word("web-3", 0, 20 * MINUTE, "tcp_loss", 0, "no tracepoint")  # has no counts at all
        yield word("web-4", 0, 2 * HOUR, "ena", 0, "no function ena_get_ethtool_stats")
        yield word("web-4", 0, 2 * HOUR, "ena", 1, "", "ens5")
        yield word("web-5", 0, 60 * HOUR, "gc_pause", 0, "nobody has heard of this host for two days")
        for tracker in "gc_pause", "handoff":  # neither has such words; a repeated word about the tracker ends none of them
            yield word("web-1", 0, 50 * MINUTE, tracker, 1, "3 connections with TLS", "TLS")
            yield word("web-1", 0, 40 * MINUTE, tracker, 1, "5 connections with TLS", "TLS")
            yield word("web-1", 0, 35 * MINUTE, tracker, 1, "2 connections of HTTP/2", "HTTP/2")
            yield word("web-1", 0, 28 * MINUTE, tracker, 1)
            yield word("web-1", 4007, 25 * MINUTE, tracker, 1, "", "/usr/bin/python3.12", "c1" * 32)
            yield word("web-1", 5007, 25 * MINUTE, tracker, 0, "does not answer", "", "c2" * 32)  # later answered
            yield word("web-1", 5007, 24 * MINUTE, tracker, 1, "", "/usr/bin/python3.12", "c2" * 32)
            yield word("web-1", 6000, 24 * MINUTE, tracker, 0, "free-threaded", "/usr/bin/python3.13t")
            yield word("web-3", 6000, 10 * MINUTE, tracker, int(tracker == "handoff"), HOSTILE[1] * (tracker != "handoff"), "/opt/" + HOSTILE[3])
            yield word("web-2", 9, 24 * HOUR + 1, tracker, 0, "more than a day ago")
            yield word("web-2", 10, 24 * HOUR, tracker, 0, "a day ago")

        for what, ages in {"TLS": (70, 20), "unread": (30,), "upgraded": (30,)}.items():
            for n, age in enumerate(ages, 5):
                yield word("web-1", 0, age * MINUTE, "request", 1, f"{n} of {what}", what)
        yield word("web-3", 0, 26 * HOUR, "request", 1, "9 of TLS", "TLS")

        for host, pid, age, live, reason in [("web-1", 4007, 25, 1, ""), ("web-1", 4007, 5, 0, "gone"), ("web-1", 5007, 20, 1, ""), ("web-2", 4007, 20, 1, "")]:
            yield word(host, pid, age * MINUTE, "gil_wait", live, reason)
        for pid, live, reason in (4007, 1, ""), (5007, 0, "not readable"), (6000, 1, ""):  # 6000 has no word of gil_wait
            yield word("web-1", pid, 22 * MINUTE, "on_cpu", live, reason)

    def otel_traces(self):
        for i in range(30):
            trace = f"{i // 3:032x}"
            yield {"Timestamp": (self.now - i * MINUTE) * 1000 + 7, "TraceId": trace, "SpanId": f"{i:016x}", "ParentSpanId": "", "TraceState": "",
                   "SpanName": HOSTILE[i % 7], "SpanKind": "Internal", "ServiceName": "shop", "ResourceAttributes": {"host.name": "web-1"},
                   "ScopeName": "", "ScopeVersion": "", "SpanAttributes": {HOSTILE[0]: HOSTILE[1]}, "Duration": i * MS, "StatusCode": "Unset",
                   "StatusMessage": ""}
        for thread, start, waited, collecting, weight, trace in self.requests():
            yield {"Timestamp": start * 1000, "TraceId": trace, "SpanId": trace[16:], "ParentSpanId": "", "TraceState": "", "SpanName": "GET /",
                   "SpanKind": "Server", "ServiceName": HOSTILE[0], "ResourceAttributes": {"host.name": "shop-1"}, "ScopeName": "",
                   "ScopeVersion": "", "SpanAttributes": {"process.pid": "70", "thread.id": str(thread), "known": f"{waited} {collecting} {weight}"},
                   "Duration": 100 * MS, "StatusCode": "Unset", "StatusMessage": ""}

        for _, spans, _ in self.requests_with_spans():
            for trace, span, parent, start, us, thread, resource in spans:
                yield {"Timestamp": start * 1000, "TraceId": trace, "SpanId": span, "ParentSpanId": parent, "TraceState": "", "SpanName": "GET /l",
                       "SpanKind": "Server", "ServiceName": "ledger", "ResourceAttributes": resource, "ScopeName": "", "ScopeVersion": "",
                       "SpanAttributes": {**({"process.pid": "90", "thread.id": str(thread)} if thread else {}), "known": "0 0 1"}, "Duration": us * 1000,
                       "StatusCode": "Unset", "StatusMessage": ""}

    def ebpf_on_cpu(self):
        for start in self.moments(200):
            yield {**self.common(start, 52 * MS), "cpu": self.random.randrange(4), "py_stack": self.random.choice(STACKS)}

    def all(self):
        tables = [name for name in vars(Maker) if name.startswith(("ebpf_", "otel_"))]
        found = {table: list(getattr(self, table)()) for table in tables}
        for table in "gc_pause", "gil_wait", "gil_wait_profile", "handoff", "loop_stall", "off_cpu", "off_cpu_profile", "on_cpu":
            # the end is what counts for a command's window: at both edges, to the microsecond
            rows = found["ebpf_" + table]
            rows += [{**row, "start_time": at - row["duration_ns"] // 1000, "end_time": at}
                     for row, at in zip(rows[:3], (self.now, self.now - HOUR, self.now - HOUR - 1))]
        import sql_locks, sql_loops, sql_outbound, sql_spans  # import the times of this file
        sql_spans.add_to(found, self.now)
        sql_outbound.add_to(found, self.now)
        sql_loops.add_to(found, self.now)
        sql_loops.add_workers(found, self.now)
        sql_locks.add_to(found, self.now)
        return found
