# SPDX-License-Identifier: Apache-2.0
"""Server spans ten hours before the known moment, each of a separate process and of known composition: the rows of each
for the tables of sql_known.py, and the expected whole row of the views request_time and request_time_parts."""
from sql_known import HOUR, MINUTE, SECOND

ALL = ["handoff", "tcp_accept", "gc_pause", "gil_wait", "off_cpu", "cpu_throttle"]
BEFORE = ["total", "caller", "accept", "client_wait", "handoff", "gc", "gc_others"]
INSIDE = "gil lock net disk page_fault sleep poll pipe child other run_queue throttled".split()
ENDS = "from_us to_us start_us end_us accept_from_us accept_to_us client_from_us handoff_from_us handoff_to_us measured why_not thinned".split()
NAMES = "trace_id span_id service span_name host container_id pid tid begin_time span_time queue".split()
TIME = [*NAMES, *(f"{part}_ms" for part in [*BEFORE, "handler", "rest", "span"]), "weight", "sampled", "not_measured", *ENDS]
PARTS = [*NAMES, *(f"{part}_ms" for part in [*BEFORE, *INSIDE, "cpu", "handler", "rest", "span"]), "weight", "sampled", "not_measured", *ENDS]
CLIENT = "client: no row tells when the request's bytes came: a wait for them is in the rest"
NO_TRACKER = "the tracker did not run on host "


class Spans:
    """Times are milliseconds after `base`; lengths are milliseconds."""

    def __init__(self, now):
        self.now, self.base = now, now - 10 * HOUR
        self.rows = {table: [] for table in ("otel_traces", "ebpf_agent", "ebpf_probe_health", *(f"ebpf_{name}" for name in ALL))}
        self.expected = []
        self.pid = 300
        for scenario in SCENARIOS:
            self.pid += 10  # tid: pid + 1 if the process has several threads
            self.trace = f"{self.pid:032x}"
            scenario(self)

    # ---- rows ----

    def us(self, ms):
        return self.base + round(ms * 1000)

    def agent(self, host, trackers=ALL, begin=-60, end=120, sampled=0):
        """The agent's reports, every ten seconds."""
        self.rows["ebpf_agent"] += [{"host": host, "tracker": tracker, "start_time": self.us(at * 1000), "end_time": self.us(at * 1000 + 10_000), "sampled": sampled}
                                    for at in range(begin, end, 10) for tracker in trackers]

    def known(self, host, tracker="gc_pause", live=1, reason="", container=""):
        self.rows["ebpf_probe_health"].append({"host": host, "container_id": container, "pod_uid": "", "host_pid": self.pid, "time": self.us(-60_000),
                                               "tracker": tracker, "live": live, "reason": reason})

    def span(self, name, at, ms, parent="", kind="Server", tid=None, resource=None, times=1, **attributes):
        if kind == "Server":
            attributes = {"process.pid": str(self.pid), "thread.id": str(self.pid + 1 if tid is None else tid), **attributes}
        self.rows["otel_traces"] += times * [{"Timestamp": self.us(at) * 1000, "TraceId": self.trace, "SpanId": name, "ParentSpanId": parent, "SpanName": "GET x",
                                              "SpanKind": kind, "ServiceName": "svc", "Duration": round(ms * 1e6), "SpanAttributes": attributes,
                                              "ResourceAttributes": {"host.name": "span-1"} if resource is None else resource}]

    def row(self, tracker, at, ms, tid=None, host="span-1", **more):
        tid = self.pid + 1 if tid is None else tid
        self.rows[f"ebpf_{tracker}"].append({"host": host, "container_id": "", "pod_uid": "", "pid": self.pid, "host_pid": self.pid, "tid": tid, "host_tid": tid,
                                             "start_time": self.us(at), "end_time": self.us(at + ms), "duration_ns": round(ms * 1e6), "weight": 1.0,
                                             "boot_id": f"boot of {host}", "pidns": 1, **more})

    def off_cpu(self, at, ms, cause, runq=0, idle=0, syscall="futex", **more):
        self.row("off_cpu", at, ms, cause=cause, runq_ns=round(runq * 1e6), idle=idle, syscall=syscall, **more)

    def handoff(self, at, ms, wait, client=0, port=0, **more):
        self.row("handoff", at, ms, queue="accept", handoff_ns=round(wait * 1e6), client_wait_ns=round(client * 1e6), peer_port=port, **more)

    def accept(self, at, ms, tid, port=0):
        self.row("tcp_accept", at, ms, tid=tid, kind="accepted", remote_port=port)

    # ---- expected answers ----

    def expect(self, span, ends, gc_others=None, caller=None, queue="", weight=1.0, sampled=(), measured=63, why_not=NO_TRACKER + "span-1", thinned=0,
               reasons=(), inside=(), host="span-1", container="", pid=None, tid=None, **parts):
        """ends: milliseconds of from, to, start, end, accept from and to, bytes expected and there, pick-up; None is 0. parts: ms, None is
        not measured. reasons: of both views; inside: of request_time_parts alone. The CPU is the rest of the span, the rest that of the whole."""
        begin, done, start, end = ends[:4]
        boundaries = [0 if ms is None else self.us(ms) for ms in (*ends, *[None] * (9 - len(ends)))]
        gc_in_span = parts.pop("gc_in_span", parts["gc"] or 0)
        whole = {"total": done - begin, "caller": caller, "span": end - start, "handler": end - start - gc_in_span, "gc_others": gc_others,
                 **{name: parts.get(name) for name in ("accept", "client_wait", "handoff", "gc")}}
        whole["rest"] = whole["total"] - whole["handler"] - sum(whole[part] or 0 for part in ("accept", "client_wait", "handoff", "gc"))
        whole |= {part: parts.get(part, 0 if measured & (8 if part == "gil" else 16) and part != "throttled" else None) for part in INSIDE}
        if measured & 48 == 48 and "throttled" not in parts:
            whole["throttled"] = 0
        whole["cpu"] = whole["handler"] - sum(whole[part] or 0 for part in INSIDE)
        row = {"trace_id": self.trace, "span_id": span, "service": "svc", "span_name": "GET x", "host": host, "container_id": container,
               "pid": self.pid if pid is None else pid, "tid": self.pid + 1 if tid is None else tid, "begin_time": boundaries[0], "span_time": boundaries[2],
               "queue": queue, **{f"{part}_ms": None if ms is None else float(ms) for part, ms in whole.items()}, "weight": weight, "sampled": list(sampled),
               **dict(zip(ENDS, boundaries)), "measured": measured, "why_not": why_not, "thinned": thinned}
        self.expected.append((row, list(reasons), [*reasons, *inside]))


def everything(s):
    """All parts, overlapping: each moment counts once."""
    s.agent("span-1")
    s.known("span-1")
    s.span("c1", 0, 1000, kind="Client")
    s.span("s1", 400, 500, "c1")
    s.accept(10, 90, s.pid, 4001)
    s.handoff(100, 290, 270, client=20, port=4001, thread_name="worker", py_stack=["<unread>", "take (/srv/app/take.py:3)", "main (/srv/app/m.py:9)"])
    s.row("gc_pause", 200, 50, tid=s.pid + 2)  # in the hand-off
    s.row("gc_pause", 420, 30, tid=s.pid + 2)  # of a sibling, while the thread waits for the GIL
    s.row("gil_wait", 410, 60, runq_ns=0)
    s.off_cpu(410, 60, "gil")
    s.row("gc_pause", 480, 10)  # of the span's thread
    s.off_cpu(500, 100, "sleep", runq=20)
    s.row("gc_pause", 550, 5, tid=s.pid + 2)  # while the thread sleeps
    for at, ms, cause in (620, 40, "lock"), (670, 30, "net"), (710, 20, "disk"), (795, 7, "page_fault"), (805, 6, "pipe"), (815, 4, "child"), (825, 3, "poll"):
        s.off_cpu(at, ms, cause)
    s.off_cpu(740, 50, "preempt", runq=50)
    s.row("cpu_throttle", 750, 30, tid=0)
    s.expect("s1", [0, 1000, 400, 900, 10, 100, 100, 120, 390], caller=1000, queue="accept", accept=90, client_wait=20, handoff=220, gc=95, gc_others=85,
             gc_in_span=45, gil=30, lock=40, net=30, disk=20, sleep=75, run_queue=40, throttled=30, page_fault=7, pipe=6, child=4, poll=3)


def sync_worker(s):
    """A worker that accepts; the caller's clock is 5 s ahead, and corrected no further than needed."""
    s.known("span-1")
    s.span("c1", 5000, 1804, kind="Client", resource={"host.name": "edge"})
    s.accept(1, 1502, s.pid, 0)
    s.span("s1", 1504, 299, "c1", tid=s.pid)
    s.expect("s1", [1, 1805, 1504, 1803, 1, 1503], caller=1804, accept=1502, handoff=0, gc=0, gc_others=0, tid=s.pid, reasons=[CLIENT])


def event_loop(s):
    """Two requests at once; the second span is of a kept connection."""
    s.known("span-1")
    s.off_cpu(-100, 20, "poll", idle=1, syscall="epoll_wait", tid=s.pid)
    s.accept(2, 8, s.pid, 5001)
    s.span("s1", 10, 30, tid=s.pid, **{"network.peer.port": "5001"})
    s.span("s2", 60, 40, tid=s.pid, **{"net.peer.port": "5001"})
    own = "the request's own share: the span's thread is an event loop, whose other requests may have run meanwhile"
    s.expect("s1", [2, 40, 10, 40, 2, 10], accept=8, handoff=0, gc=0, gc_others=0, tid=s.pid, reasons=[CLIENT, own])
    s.expect("s2", [60, 100, 60, 100], accept=0, gc=0, gc_others=0, tid=s.pid, reasons=[
        "hand-off: the span's thread is an event loop: no row tells how long a request waits there to be read", own])


def a_queue_inside(s):
    """The span's thread has accepted no connection: a different thread may have read the request."""
    s.known("span-1")
    s.span("c1", 0, 500, kind="Client")
    s.span("s1", 405, 90, "c1")
    took = "the span's thread took no connection in the ten seconds before"
    s.expect("s1", [0, 500, 405, 495], caller=500, gc=0, gc_others=0, reasons=[f"accept queue: {took}, and the span has no peer port",
             f"hand-off: {took}: another one may have read the request and queued it"])


def delivered_twice(s):
    s.known("span-1")
    s.span("c1", 0, 300, kind="Client", times=2)
    s.span("s1", 100, 190, "c1", times=2)
    s.handoff(10, 85, 85)
    s.row("gc_pause", 120, 60, tid=s.pid + 2)
    s.expect("s1", [0, 300, 100, 290, None, None, 10, 10, 95], caller=300, queue="accept", accept=0, client_wait=0, handoff=85, gc=60, gc_others=60)


def nowhere(s):
    """No agent on the host; no thread; a process unknown to the agents."""
    def nothing(name, why, at, **more):
        s.expect(name, [at, at + 20, at, at + 20], gc=None, measured=0, why_not=why, reasons=[f"{part}: {why}" for part in ("accept queue", "hand-off", "collections")],
                 inside=[f"{part}: {why}" for part in ("GIL", "off the CPU (locks, network, disk, sleep, run queue)", "CPU quota")], **more)
    s.span("s1", 0, 20, resource={"host.name": "span-none"})
    nothing("s1", "no agent ran on host span-none then", 0, host="span-none")
    s.span("s2", 40, 20, tid="")
    nothing("s2", "the span does not say which thread it ran on: it needs process.pid and the native thread.id", 40, pid=0, tid=0)
    s.span("s3", 80, 20)
    nothing("s3", f"the agent of host span-1 knew no Python with pid {s.pid}", 80)


def two_containers(s):
    """The same pid in both containers of a pod: found by container.id, otherwise not found."""
    pod = {"host.name": "span-1", "k8s.pod.uid": "pod-s"}
    for container, ms in ("app", 5), ("sidecar", 15):
        s.row("gc_pause", 1, ms, container_id=container, pod_uid="pod-s", tid=s.pid, pidns=2 + ms)
    s.span("s1", 0, 20, resource={**pod, "container.id": "app"})
    s.span("s2", 40, 20, resource=pod)
    brought = "the span's thread took no connection in the ten seconds before"
    s.expect("s1", [0, 20, 0, 20], container="app", gc=5, gc_others=5, reasons=[f"accept queue: {brought}, and the span has no peer port",
             f"hand-off: {brought}: another one may have read the request and queued it"])
    why = f"the rows of 2 processes with pid {s.pid} fit: the span has to name its host (host.name) and container (container.id)"
    s.expect("s2", [40, 60, 40, 60], pid=0, gc=None, measured=0, why_not=why, reasons=[f"{part}: {why}" for part in ("accept queue", "hand-off", "collections")],
             inside=[f"{part}: {why}" for part in ("GIL", "off the CPU (locks, network, disk, sleep, run queue)", "CPU quota")])


def refused(s):
    """Trackers without need of the interpreter have rows; the rest report the reason."""
    for tracker in "gc_pause", "gil_wait":
        s.known("span-1", tracker, live=0, reason="free-threaded build")
    for tracker in "handoff", "tcp_accept", "off_cpu", "cpu_throttle":
        s.known("span-1", tracker)
    s.handoff(0, 10, 10)
    s.span("s1", 10, 30)
    s.off_cpu(15, 10, "lock")
    s.expect("s1", [0, 40, 10, 40, None, None, 0, 0, 10], queue="accept", accept=0, client_wait=0, handoff=10, gc=None, lock=10, measured=63 - 4 - 8,
             why_not="refused: free-threaded build", reasons=["collections: refused: free-threaded build"], inside=["GIL: refused: free-threaded build"])


def thinned(s):
    """Time left out by the governor is not zero; the kept rows are a lower bound."""
    s.agent("span-2", sampled=3)
    s.known("span-2")
    s.span("s1", 0, 100, resource={"host.name": "span-2"})
    s.handoff(-8, 8, 8, host="span-2", weight=4.0)
    s.off_cpu(10, 20, "sleep", host="span-2")
    some = "the agent kept only some of its rows then (governor)"
    s.expect("s1", [-8, 100, 0, 100, None, None, -8, -8, 0], host="span-2", queue="accept", weight=4.0, client_wait=0, handoff=8, gc=None, gil=None, sleep=20,
             **{part: None for part in INSIDE if part not in ("gil", "sleep")}, sampled=ALL, thinned=63, why_not=NO_TRACKER + "span-2",
             reasons=[f"accept queue: {some}", f"collections: {some}"],
             inside=[f"GIL: {some}", f"off the CPU (locks, network, disk, sleep, run queue): {some}"])


SCENARIOS = [everything, sync_worker, event_loop, a_queue_inside, delivered_twice, nowhere, two_containers, refused, thinned]


def add_to(tables, now):
    """Adds the rows, with the further columns of the tables; columns without meaning here are copied from some
    row."""
    for table, rows in Spans(now).rows.items():
        plain = {key: 0 if table == "ebpf_agent" and isinstance(value, int) else value for key, value in tables[table][0].items()}
        tables[table] += [{**plain, **row} for row in rows]


# ---- Maker.requests(): three trackers ran, and no caller has a span ----

def of_shop(maker):
    for thread, start, waited, collecting, weight, trace in maker.requests():
        begin, end, pickup = start - 1000 - waited * 1000, start + 100_000, start - 1000
        row = {"trace_id": trace, "span_id": trace[16:], "host": "shop-1", "container_id": "", "pid": 70, "tid": thread, "begin_time": begin, "span_time": start,
               "queue": "accept", "total_ms": 101 + waited, "caller_ms": None, "accept_ms": 0, "client_wait_ms": 0, "handoff_ms": waited, "gc_ms": collecting,
               "gc_others_ms": collecting, **{f"{part}_ms": None for part in INSIDE}, "handler_ms": 100 - collecting, "cpu_ms": 100 - collecting, "rest_ms": 1,
               "span_ms": 100, "weight": weight, "sampled": [], "span_name": "GET /", **dict(zip(ENDS, [begin, end, start, end, 0, 0, begin, begin, pickup])),
               "measured": 7, "why_not": NO_TRACKER + "shop-1", "thinned": 0}
        yield row, [], [f"{part}: {NO_TRACKER}shop-1" for part in ("GIL", "off the CPU (locks, network, disk, sleep, run queue)", "CPU quota")]


WINDOWS = [("now() - INTERVAL 601 MINUTE", "now() - INTERVAL 590 MINUTE"), ("now() - INTERVAL 1 HOUR", "now()")]


def question(view):
    both = " UNION ALL ".join(f"SELECT * FROM {view}(from = {begin}, to = {end})" for begin, end in WINDOWS)
    return f"SELECT * EXCEPT (service) FROM ({both}) ORDER BY start_us, trace_id, span_id"


def whole(view, maker, timestamp):
    """The view's rows, in the order of the columns."""
    assert maker.now - 601 * MINUTE < Spans(maker.now).base < maker.now - 590 * MINUTE - 60 * SECOND
    columns = [c for c in (TIME if view == "request_time" else PARTS) if c != "service"]
    rows = [*Spans(maker.now).expected, *of_shop(maker)]
    rows = [{**row, "not_measured": short if view == "request_time" else long, "begin_time": timestamp(row["begin_time"]), "span_time": timestamp(row["span_time"])}
            for row, short, long in rows]
    return [[row[column] for column in columns] for row in sorted(rows, key=lambda r: (r["start_us"], r["trace_id"], r["span_id"]))]
