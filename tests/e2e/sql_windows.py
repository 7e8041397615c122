# SPDX-License-Identifier: Apache-2.0
"""The files of sql/gil, offcpu, requests, timeline, top, window and doctor: questions of commands about a window. FILES: path below
sql/ -> a function of (rows by table, window) that returns the whole result as dicts, the rank of a row in the order of the answer, and the
column that is asked for. Values that the database may choose freely among several are sets."""
import collections
import re
from typing import NamedTuple

from sql_known import HOSTILE, HOUR, MINUTE, PARTS, SECOND
from sql_truth import COMPUTED, DAY, address, grouped, timestamp, weighted_quantile, weights

FILES = {}
NULLABLE = ["accept_queue", "client_wait", "queue", "gil", "gc_own", "gc_sibling"]


ASKED = HOSTILE[1]  # a service


class Window(NamedTuple):
    now: int
    host: str = ""
    pids: tuple = ()
    apart: int = 0
    wakers: int = 0
    mixed: int = 0
    tracker: str = "gc_pause"
    path: str = ""

    @property
    def begin(self):
        return self.now - HOUR

    def of(self, rows, path=""):
        """Rows that ended in the window, of the host and the pids, and began less than a day before it."""
        return [r for r in rows if self.begin <= r["end_time"] < self.now and self.begin - DAY < r["start_time"] < self.now
                and self.host in ("", r["host"]) and (not self.pids or {r["pid"], r["host_pid"]} & set(self.pids))
                and r.get("path", "").startswith(path)]

    def parameters(self, by, top=1000):
        return {"from": timestamp(self.begin), "to": timestamp(self.now), "host": self.host, "pids": str(list(self.pids)), "apart": self.apart,
                "wakers": self.wakers, "mixed": self.mixed, "tracker": self.tracker, "path": self.path, "by": by, "top": top, "limit": top, "bytes": 1 << 40,
                "seconds": 3600, "slow": "[]", "table": "ebpf_off_cpu", "without": 1 - self.apart, "service": ASKED}


def windows(now):
    return [Window(now), Window(now, host="web-1", pids=(7, 5007, 6000), apart=1, wakers=1, mixed=1, tracker="handoff", path="/orders")]


def falling(column):
    return lambda row: -row[column]


def by_columns(*columns):
    return lambda row: [row[column] for column in columns]


def question(folder, rank, by="hidden_ms"):
    def enter(function):
        FILES[f"{folder}/{function.__name__.split('__')[-1]}.sql"] = function, rank, by
        return function
    return enter


def later_names(rows):
    """The largest name of each thread: for rows made before the name was read."""
    found = {}
    for r in rows:
        thread = r["host"], r["host_pid"], r["tid"]
        found[thread] = max(found.get(thread, ""), r["thread_name"])
    return lambda r: r["thread_name"] or found[r["host"], r["host_pid"], r["tid"]]


def process_of(r, w):
    return {"service": "" if w.apart else r["service"], "process": r["host"] if w.apart else "", "process_pid": r["host_pid"] if w.apart else 0}


def line_groups(keyed):
    """[(dict of the key, rows)] of pairs (dict, row)."""
    groups = {}
    for key, row in keyed:
        groups.setdefault(repr(key), (key, []))[1].append(row)
    return groups.values()


def total(rows, column):
    return float(weights(rows, column))


def most(rows, column):
    return max((r[column] for r in rows if r[column] is not None), default=None)


def threads_of(rows):
    return len({(r["host"], r["host_pid"], r["tid"]) for r in rows})


def any_of(rows, column):
    return {r[column] for r in rows}


# ---- gil ----

@question("gil", falling("held_ns"))
def holders(known, w):
    keyed = []
    for r in w.of(known["ebpf_gil_wait"]):
        for i, h in enumerate(r["holders"]):
            if h["tid"]:
                line = r["holder_py_stack"][0] if i == 0 and r["holder_py_stack"] else ""
                keyed.append(({**process_of(r, w), "thread_name": h["thread_name"] or f"thread {h['tid']}", "line": line}, {**r, "held": h["tid"], "ns": h["ns"]}))
    return [{**key, "threads": len({(r["host"], r["host_pid"], r["held"]) for r in rows}), "pid": any_of(rows, "pid"), "tid": any_of(rows, "held"),
             "host_pid": any_of(rows, "host_pid"), "waits": float(weights(rows)), "held_ns": total(rows, "ns")} for key, rows in line_groups(keyed)]


@question("gil", by_columns())
def rows(known, w):
    found = w.of(known["ebpf_gil_wait"])
    unheld = sum(max(0, r["duration_ns"] - sum(h["ns"] for h in r["holders"] if h["tid"])) * r["weight"] for r in found)
    return [{"row_count": len(found), "waits": float(weights(found)), "rows_ns": total(found, "duration_ns"), "unheld_ns": float(unheld), "methods": "sched"}]


@question("gil", falling("wait_ns"))
def waits(known, w):
    found = w.of(known["ebpf_gil_wait_profile"])
    name = later_names(found)
    return [{**key, "threads": threads_of(rows), **{c: any_of(rows, c) for c in ("pid", "tid", "host_pid", "host_tid")}, "waits": Truncated(rows, "waits"),
             "wait_ns": Truncated(rows, "wait_ns"), "runq_ns": Truncated(rows, "runq_ns"), "forced_ns": Truncated(rows, "forced_ns"), "max_ns": most(rows, "max_ns")}
            for key, rows in line_groups(({**process_of(r, w), "thread_name": name(r) or r["comm"]}, r) for r in found)]


class Truncated(NamedTuple):
    """A sum of whole numbers, each rounded down from the sum of a thread, in whatever order: less than one per row below the exact sum."""
    rows: list
    column: str

    def __eq__(self, got):
        exact = total(self.rows, self.column)
        return exact - len(self.rows) <= got <= exact * (1 + 1e-9)


# ---- offcpu ----

@question("offcpu", falling("off_ns"))
def stacks(known, w):
    found = w.of(known["ebpf_off_cpu_profile"])
    name, keyed = later_names(found), []
    for r in found:
        room = r["host_pid"] != 0
        keyed.append(({"smaller": 0, "service": r["service"] if room and not w.apart else "", "process": r["host"] if w.apart else "",
                       "host_pid": r["host_pid"] if w.apart or not room else 1, "thread_name": (name(r) or r["comm"]) if room else "", "cause": r["cause"],
                       "idle": r["idle"], "syscall": r["syscall"], "native": r["kernel_stack"] + r["user_stack"] if room and (w.mixed or not r["py_stack"]) else [],
                       "py_stack": r["py_stack"], "waker_host_tid": int(bool(r["waker_host_tid"]) and w.wakers), "waker_thread_name": w.wakers * (r["waker_thread_name"] or r["waker_comm"]),
                       "waker_stack": r["waker_stack"] if w.wakers else []}, r))
    return [{**key, "off_ns": Truncated(rows, "off_ns")} for key, rows in line_groups(keyed)]


@question("offcpu", falling("off_ns"))
def cpu(known, w):
    found = w.of(known["ebpf_on_cpu"])
    name = later_names(found)
    keyed = [({"smaller": 0, "service": "" if w.apart else r["service"], "process": r["host"] if w.apart else "", "host_pid": r["host_pid"] if w.apart else 1,
               "thread_name": name(r) or r["comm"], "cause": "cpu", "idle": 0, "syscall": "", "native": [], "py_stack": r["py_stack"], "waker_host_tid": 0,
               "waker_thread_name": "", "waker_stack": []}, r) for r in found]
    return [{**key, "off_ns": Truncated(rows, "duration_ns")} for key, rows in line_groups(keyed)]


@question("offcpu", by_columns("idle"))
def lock_waits(known, w):
    found = [r for r in w.of(known["ebpf_off_cpu"]) if r["cause"] == "lock"]
    waits = float(weights([r for r in found if not r["idle"]]))
    return [{"host": r["host"], "boot_id": r["boot_id"], "host_pid": r["host_pid"], "host_tid": r["host_tid"], "thread_name": r["thread_name"] or r["comm"],
             "waker_host_tid": r["waker_host_tid"], "lock": f"{r['lock_address']:#x}" if r["lock_address"] else "",
             "py_stack": r["py_stack"][:5], "user_stack": [] if r["py_stack"] else r["user_stack"][:6], "begin_us": r["start_time"], "end_us": r["end_time"],
             "runq_ns": r["runq_ns"], "weight": float(r["weight"]), "idle": r["idle"], "thread_named": int(bool(r["thread_name"])),
             "waker_thread_name": (r["waker_thread_name"] or r["waker_comm"]) + ("" if r["waker_pid"] in (0, r["pid"]) else f" of pid {r['waker_pid']}"),
             "waker_named": int(bool(r["waker_thread_name"])), "all_waits": waits} for r in found]


@question("offcpu", by_columns("cause", "no_room"))
def totals(known, w):
    keyed = [({"cause": r["cause"], "no_room": int(r["host_pid"] == 0)}, r) for r in w.of(known["ebpf_off_cpu_profile"])]
    return [{**key, "off_ns": Truncated(rows, "off_ns"), "row_count": len(rows), "begin_us": min(r["start_time"] for r in rows),
             "end_us": max(r["end_time"] for r in rows)} for key, rows in line_groups(keyed)]


# ---- requests ----

def server_ns(r):
    return r["duration_ns"] - (r["client_wait_ns"] or 0) - r["client_slow_ns"]


def endpoint(path):
    whole = r"[0-9]+|[0-9a-fA-F]{16,}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    return "/".join("*" if re.fullmatch(whole, part) else part for part in path.split("/"))


def unmeasured(rows):
    return {f"{part}_unmeasured": float(weights([r for r in rows if r[f"{part}_ns"] is None])) for part in NULLABLE}


@question("requests", falling("by_sum"))
def endpoints(known, w):
    keyed = [({"method": r["method"], "endpoint": endpoint(r["path"]), "server_port": r["server_port"]}, {**r, "server_ns": server_ns(r), "hidden_ns": COMPUTED["hidden_ms"](r)})
             for r in w.of(known["ebpf_request"], w.path)]
    groups, lines = line_groups(keyed), []
    for key, rows in groups:
        sums = {f"{part}_ns": total(there, f"{part}_ns") if (there := [r for r in rows if r[f"{part}_ns"] is not None]) else None for part in PARTS}
        quantile = {level: weighted_quantile(level, [(r["server_ns"], r["weight"]) for r in rows]) for level in (0.5, 0.99)}
        lines.append({**key, "requests": float(weights(rows)), "row_count": len(rows), "server_sum_ns": total(rows, "server_ns"), "server_p50_ns": quantile[0.5],
                      "server_p99_ns": quantile[0.99], "server_max_ns": most(rows, "server_ns"), "hidden_ns": total(rows, "hidden_ns"), **sums, **unmeasured(rows),
                      "by_sum": total(rows, "hidden_ns") / 1e6})
    lines = [line for line in lines if line["by_sum"] > 0 or not w.apart]
    return [{**line, "endpoints": len(lines)} for line in lines]


@question("requests", lambda row: -row["requests"] - row["on_loops"])
def listeners(known, w):
    lines = []
    for key, rows in line_groups(({"host": r["host"], "container_id": r["container_id"], "netns": r["netns"], "kind": "unix" if r["family"] == "unix" else "tcp",
                                   "server_port": r["server_port"], "comm": r["comm"]}, r) for r in w.of(known["ebpf_request"], w.path)):
        of_threads = [{**r, "waited": (r["accept_queue_ns"] or 0) + (r["queue_ns"] or 0) + r["pool_wait_ns"]} for r in rows if r["model"] != "loop"]
        seconds, minutes = {}, {}
        for r in of_threads:
            arrival = r["start_time"] + (((r["accept_queue_ns"] or 0) + r["client_wait_ns"]) // 1000 if r["client_wait_ns"] else 0)
            seconds[arrival // SECOND] = seconds.get(arrival // SECOND, 0) + r["weight"]
            minutes.setdefault(r["end_time"] // MINUTE, []).append(r)
        threads = [len({(r["host_pid"], r["tid"]) for r in there}) for there in minutes.values()]
        connections = [max(len({(r["host_pid"], r["tid"], r["peer_ip"], r["peer_port"], r["fd"]) for r in there}), sum(r["connection_request"] == 1 for r in there))
                       for there in minutes.values()]
        lines.append({**key, "requests": float(weights(of_threads)), "on_loops": float(weights([r for r in rows if r["model"] == "loop"])),
                      "service_sum_ns": float(sum((r["duration_ns"] - (r["client_wait_ns"] or 0) - r["waited"]) * r["weight"] for r in of_threads)),
                      "waited_sum_ns": total(of_threads, "waited"), "threads": max(threads, default=0), "thread_minutes": sum(threads), "connections": sum(connections),
                      "peak_arrivals": max(seconds.values(), default=0), "max_queue_depth": most(rows, "queue_depth")})
    return lines


@question("requests", lambda row: row["client_slow_ns"] + (row["client_wait_ns"] or 0) - row["duration_ns"], by="server_ms")
def slowest(known, w):
    columns = ("trace_id parent_span_id host container_id pod_uid pid tid host_pid host_tid comm thread_name duration_ns weight family server_port netns peer_ip peer_port "
               "method path status bytes_in bytes_out model link end_by outcome connection_request queue_depth busy_threads open_requests net_peer_ip net_peer_port net_peer_path net_peer_ns "
               "not_measured").split() + [f"{part}_ns" for part in PARTS]
    return [{"request_id": str(r["request_id"]), "start_us": r["start_time"], "end_us": r["end_time"], **{c: r[c] for c in columns}}
            for r in w.of(known["ebpf_request"], w.path)]


@question("requests", by_columns())
def requests__totals(known, w):
    found, reasons = w.of(known["ebpf_request"], w.path), {}
    for r in found:
        for reason in r["not_measured"]:
            reasons[reason] = reasons.get(reason, 0.0) + r["weight"]
    return [{"requests": float(weights(found)), "row_count": len(found), **unmeasured(found),
             "reasons": [sorted(reasons), [reasons[reason] for reason in sorted(reasons)]]}]


# ---- timeline ----

def timeline(table, columns="", frames=(), rank=lambda row: [-row["duration_ns"], row["start_us"], row["host_tid"]], **computed):
    def truth(known, w):
        return [{**{c: r[c] for c in ("host pid tid host_pid host_tid comm thread_name service duration_ns weight " + columns).split()}, "start_us": r["start_time"],
                 **{name: " < ".join(r[column][:40])[:4000] for name, column in frames}, **{name: of(r) for name, of in computed.items()}} for r in w.of(known["ebpf_" + table])]
    FILES[f"timeline/{table}.sql"] = truth, rank, ""


PY = [("py_frames", "py_stack")]
timeline("gc_pause", "generation reason collected uncollectable long_lived", PY)
timeline("gil_wait", "runq_ns forced_ns holders", [*PY, ("holder_py_frames", "holder_py_stack")])
timeline("handoff", "queue pickup client_wait_ns handoff_ns main_thread_name", PY)
timeline("loop_stall", "loop cpu_ns runq_ns gil_ns lock_ns net_ns disk_ns sleep_ns other_ns waiting", PY)
timeline("off_cpu", "runq_ns state cause idle syscall waker_host_tid waker_comm waker_thread_name",
         [*PY, ("kernel_frames", "kernel_stack"), ("user_frames", "user_stack")], rank=lambda row: [row["idle"], -row["duration_ns"], row["start_us"], row["host_tid"]])
timeline("on_cpu", "cpu", PY, rank=lambda row: [((row["start_us"] + row["duration_ns"] // 1000) * 2654435761 + row["host_tid"]) % 2**32, row["start_us"], row["host_tid"]])
timeline("request", "trace_id span_id method path status model outcome server_port busy_threads queue_depth " + " ".join(f"{part}_ns" for part in PARTS),
         request_id=lambda r: str(r["request_id"]))


@question("timeline", by_columns())
def all_rows(known, w):
    found = [r for r in w.of(known["ebpf_off_cpu"]) if r["host_pid"]]
    return [{"row_count": len(found), "all_ns": sum(r["duration_ns"] for r in found)}]


# ---- top ----

def of_application(stack):
    """The innermost frame outside of Python's own files; otherwise the innermost."""
    library = "/lib/python", "/lib64/python", "site-packages", "dist-packages", "(<frozen"
    return next((f for f in stack if "(" in f and not any(part in f for part in library)), stack[0]) if stack else "(no Python stack)"


def top(name, table, rank, of, *more):
    """`of`: the figures of rows. Names of threads are of the row, or of later rows; rows of both are not summed."""
    def truth(known, w):
        found = [r for r in w.of(known["ebpf_" + table]) if r["host_pid"]]
        named = later_names(found)
        keyed = [({"host": r["host"], "host_pid": r["host_pid"], "host_tid": r["host_tid"], "main": int(r["pid"] == r["tid"]), "comm": r["comm"], "service": r["service"],
                   "own": r["thread_name"], "thread_name": named(r), "line": of_application(r["py_stack"]), **{c: r[c] for c in more}}, r) for r in found]
        lines = [{**key, **of(rows)} for key, rows in line_groups(keyed)]
        for line in lines:
            del line["own"]
        return lines
    FILES[f"top/{name}.sql"] = truth, rank, ""


top("collections", "gc_pause", falling("gc_ns"), lambda rows: {"gc_ns": total(rows, "duration_ns")})
top("samples", "on_cpu", falling("cpu_ns"), lambda rows: {"cpu_ns": total(rows, "duration_ns")})
top("stalls", "loop_stall", falling("lag_ns"), lambda rows: {"lag_ns": most(rows, "duration_ns")})
top("waits", "off_cpu_profile", falling("off_ns"), lambda rows: {
    "off_ns": total(rows, "off_ns"), "runq_ns": float(sum(min(r["runq_ns"], r["off_ns"]) * r["weight"] for r in rows))}, "cause", "idle")


@question("top", falling("held_ns"))
def top__holders(known, w):
    keyed = [({"host": r["host"], "host_pid": r["host_pid"], "host_tid": r["holder_host_tid"]}, r) for r in w.of(known["ebpf_gil_wait_profile"]) if r["holder_host_tid"]]
    return [{**key, "held_ns": total(rows, "wait_ns")} for key, rows in line_groups(keyed)]


NULLABLE = "accept_queue", "client_wait", "queue", "gil", "gc_own", "gc_sibling"  # in the order of the answer


@question("top", falling("requests"))
def top__requests(known, w):
    lines = []
    for key, rows in line_groups(({"host": r["host"], "host_pid": r["host_pid"]}, r) for r in w.of(known["ebpf_request"]) if r["host_pid"]):
        known_of = {part: [r for r in rows if r[f"{part}_ns"] is not None] for part in PARTS}
        sums = {f"{part}_ns": float(sum(r[f"{part}_ns"] * r["weight"] for r in of)) if of else None for part, of in known_of.items()}
        lines.append({**key, "comm": any_of(rows, "comm"), "service": any_of(rows, "service"), "requests": float(weights(rows)), "busy_max": most(rows, "busy_threads") + 1,
                      "waiting_max": most(rows, "queue_depth"), **sums, "lacked": [part for part in NULLABLE if len(known_of[part]) < len(rows)]})
    return lines


def last_words(known, w, tracker):
    """The last word of each process, of each host (pid 0), and about each thing of the host that has no rows."""
    words = {}
    for r in sorted(known["ebpf_probe_health"], key=lambda r: r["time"]):
        if r["tracker"] == tracker and w.begin - DAY < r["time"] < w.now and w.host in ("", r["host"]):
            what = r["binary"] if not r["host_pid"] and r["live"] and r["reason"] else ""
            words[r["host"], r["host_pid"], what] = r
    return words


@question("top", by_columns("host_pid"))
def measured(known, w):
    words = {tracker: last_words(known, w, tracker) for tracker in ("gil_wait", "on_cpu")}
    live = {tracker: {process: r["live"] for process, r in of.items()} for tracker, of in words.items()}
    return [{"host_pid": process[1], "gil": live["gil_wait"].get(process, 0), "cpu": live["on_cpu"].get(process, 0)}
            for process in {**live["gil_wait"], **live["on_cpu"]} if process[1]]


# ---- window, doctor ----

@question("window", lambda row: [row["name"] != ASKED, -row["row_count"], row["name"]])
def services(known, w):
    found = collections.Counter(r["service"] for r in w._replace(pids=()).of(known["ebpf_off_cpu"]) if r["service"])
    assert len(found) < 10
    return [{"name": name, "row_count": n} for name, n in found.items()]


@question("window", lambda row: [-row["asked"], row["name"]])
def hosts(known, w):
    found = {r["host"] for r in known["ebpf_agent"] if w.begin - HOUR <= r["start_time"] < w.now and r["end_time"] > w.begin and r["host"]}
    assert len(found) < 10 and (w.host in found or not w.host)
    return [{"name": name, "asked": int(name == w.host)} for name in found]


@question("window", by_columns("host"))
def coverage(known, w):
    reports = [r for r in known["ebpf_agent"] if r["tracker"] == w.tracker and w.begin - HOUR <= r["start_time"] < w.now and r["end_time"] > w.begin - HOUR and w.host in ("", r["host"])]
    lines = []
    for host, rows in grouped(reports, lambda r: r["host"]):
        seconds = [max(0, min(r["end_time"], w.now) - max(r["start_time"], w.begin)) / SECOND for r in rows]
        rest = max(0, w.now - max(r["end_time"] for r in rows)) / SECOND
        length, last = max(r["end_time"] - r["start_time"] for r in rows), max((r["end_time"], r["end_time"] - r["start_time"]) for r in rows)[1]
        under_way = rest < 60 + length / SECOND and last >= 0.9 * length  # the window ends now
        lines.append({"host": host, "measured_s": sum(seconds) + (rest if under_way else 0.0), "rest": rest,
                      "lost": sum(r["lost_ring"] + r["lost_state"] + r["bad_event"] for r in rows),
                      "undelivered": sum(r["dropped_memory"] + r["dropped_spool"] + r["dropped_corrupt"] + r["dropped_refused"] + r["lost_crash"] for r in rows)})
    return lines


@question("window", by_columns("host", "of"))
def sampled(known, w):
    """Of rows and of their sums."""
    of = {w.tracker, w.tracker.removesuffix("_profile")}
    reports = [r for r in known["ebpf_agent"] if r["tracker"] in of and w.begin - HOUR <= r["start_time"] < w.now and r["end_time"] > w.begin and w.host in ("", r["host"])]
    return [{"host": host, "of": tracker, "one_in": 1 << shift} for (host, tracker), rows in grouped(reports, lambda r: (r["host"], r["tracker"]))
            if (shift := max(r["skip_shift"] for r in rows))]


@question("window", by_columns())
def known(known, w):
    return [{"known": sum(r["live"] for (_, pid, _), r in last_words(known, w, w.tracker).items() if pid in w.pids)}]


@question("window", by_columns("host", "reason"))
def refused(known, w):
    said = grouped([r for r in last_words(known, w, w.tracker).values() if r["reason"] and (not w.pids or r["host_pid"] in (0, *w.pids))], lambda r: (r["host"], r["reason"]))
    return [{"host": host, "reason": reason, "host_pids": sorted(r["host_pid"] for r in rows if r["host_pid"])} for (host, reason), rows in said]


@question("doctor", by_columns("service"))
def spans(known, w):
    """The spans of the last hour all join; test_doctor_spans.py has each reason why not."""
    of = grouped([s for s in known["otel_traces"] if s["SpanKind"] == "Server" and s["Timestamp"] // 1000 >= w.now - HOUR], lambda s: s["ServiceName"])
    return [{"service": service, "reason": "", "spans": len({(s["TraceId"], s["SpanId"]) for s in found}), "trace_id": min(s["TraceId"] for s in found)} for service, found in of]


@question("doctor", by_columns("host"))
def doubled(known, w):
    lines = []
    for host, rows in grouped([r for r in known["ebpf_agent"] if r["tracker"] == "agent" and w.begin <= r["end_time"] < w.now and w.host in ("", r["host"])], lambda r: r["host"]):
        reports = sorted({(r["start_time"], r["end_time"]) for r in rows})
        shared = [max(0, min(end, max(e for _, e in reports[:i])) - start) // 1000 for i, (start, end) in enumerate(reports) if i]
        lines.append({"host": host, "reports": sum(ms >= 100 for ms in shared), "overlap_s": sum(shared) / 1e3})
    return lines


@question("doctor", by_columns("spans"))
def no_server_spans(known, w):
    found = [s for s in known["otel_traces"] if s["Timestamp"] // 1000 >= w.now - HOUR]
    assert found
    return [{"spans": len(found), "services": len({s["ServiceName"] for s in found}), "trace_id": min(s["TraceId"] for s in found)}]


# ---- comparison ----

def plain(name, value):
    if name == "weight" and value is not None:
        from sql_known import float32
        return float32(value)
    return address(value) if name.endswith("_ip") else list(value) if isinstance(value, tuple) and not isinstance(value, Truncated) else value


def equal(got, expected):
    if isinstance(expected, set):
        return got in expected
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(equal, got, expected))
    if isinstance(expected, float):
        return isinstance(got, (int, float)) and abs(got - expected) <= 1e-9 * max(1, abs(expected))
    return expected == got


def check_whole(got, expected, rank, what):
    """Every row once with all columns, and in order: rows of equal rank in any. Matched by the values that are no sums."""
    assert expected, f"{what}: a result without rows proves nothing"
    assert len(got) == len(expected), f"{what}: {len(got)} rows, expected {len(expected)}"
    assert set(got[0]) == set(expected[0]), f"{what}: other columns: {set(got[0]) ^ set(expected[0])}"
    expected = [{name: plain(name, value) for name, value in row.items()} for row in expected]
    got = [{name: plain(name, value) for name, value in row.items()} for row in got]
    exact = [name for name in expected[0] if not any(isinstance(row[name], (set, float, Truncated, list)) for row in expected)]
    left = {}
    for row in expected:
        left.setdefault(repr([row[name] for name in exact]), []).append(row)
    for row in got:
        candidates = left.get(repr([row[name] for name in exact]), [])
        found = next((c for c in candidates if all(equal(row[name], c[name]) for name in c)), None)
        assert found is not None, f"{what}: an unexpected row\n{row}\nexpected of its kind:\n{candidates[:3]}"
        candidates.remove(found)
    ranks = [rank(row) for row in got]
    assert all(a <= b or (isinstance(a, (int, float)) and a - b <= 1e-9 * abs(a)) for a, b in zip(ranks, ranks[1:])), f"{what}: in another order"
