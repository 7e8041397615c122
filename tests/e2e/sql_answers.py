# SPDX-License-Identifier: Apache-2.0
"""The files of sql/views and sql/explain: the question about the rows of sql_known.py, and the expected answer. VIEWS and
EXPLAIN: file name -> a question with parameters, and a function of (rows by table, now) that returns the whole result, as in
sql_truth.py. A parameter may be a function of now."""
import collections
import re

import sql_loops
import sql_outbound
import sql_spans
from sql_known import HOUR, PARTS, SECOND, Maker
from sql_truth import address, timestamp
from store_fixture import sql_text

PROCESS = {"pid": 7, "tid": 7, "host": "web-1", "container_id": "c-1", "from_us": 0, "to_us": 1 << 51}

# ---- the request ledger ----

def handled(r):
    return r["start_time"] + sum(r[f"{part}_ns"] or 0 for part in PARTS[:4]) // 1000


def spans_of_requests(now):
    """How each request of Maker.requests_with_spans() is found, and the span, by start and host."""
    for row, spans, how in Maker(now).requests_with_spans():
        yield (row["start_time"], row["host"]), (how, spans[0] if how in ("traceparent", "traceparent alone", "thread") else None)


WITHOUT_SPANS = {"thread": "the request carried no traceparent, and no server span began on its thread meanwhile",
                 "loop": "the request carried no traceparent, and its thread does not tell (an event loop)",
                 "pool": "the request carried no traceparent, and its thread does not tell (a pool behind the one that read it)"}
REQUEST = ("request_id, host, pid, tid, start_time, handled_time, end_time, method, path, status, duration_ms, "
           + ", ".join(f"{part}_ms" for part in PARTS) + ", net_peer_ip, net_peer_port, net_peer_path, net_peer_ms, body_wait_ms, not_measured, trace_id, span_id, service, span_name, span_ms, span_by, no_span, toFloat64(weight)")


def request(known, now):
    of_spans, lines = dict(spans_of_requests(now)), []
    for r in sorted(known["ebpf_request"], key=lambda r: (r["start_time"], r["request_id"])):
        if not now - 60 * HOUR <= r["start_time"] < now + 60 * SECOND:
            continue
        how, span = of_spans.get((r["start_time"], r["host"]), (WITHOUT_SPANS[r["model"]], None))
        lines.append([r["request_id"], r["host"], r["pid"], r["tid"], timestamp(r["start_time"]), timestamp(handled(r)), timestamp(r["end_time"]),
                      r["method"], r["path"], r["status"], r["duration_ns"] / 1e6,
                      *(None if r[f"{part}_ns"] is None else r[f"{part}_ns"] / 1e6 for part in PARTS), r["net_peer_ip"], r["net_peer_port"], r["net_peer_path"], r["net_peer_ns"] / 1e6, r["body_wait_ns"] / 1e6,
                      r["not_measured"], r["trace_id"] or (span[0] if span else ""), *([span[1], "ledger", "GET /l", span[4] / 1e3, how, ""] if span else ["", "", "", None, "", how]),
                      r["weight"]])
    return lines


def of_process(known, pid, host, container=""):
    return [r for r in known["ebpf_request"] if (r["pid"], r["host"], r["container_id"]) == (pid, host, container)]


def ledger(known, now):
    rows = [r for r in known["ebpf_request"] if r["trace_id"] == f"{3002:032x}"]
    return [[str(r["request_id"]), r["trace_id"], r["pid"], r["start_time"]] for r in sorted(rows, key=lambda r: r["start_time"])]


def ledger_threads(known, now):
    rows = [r for r in known["ebpf_request"] if r["pid"] in (7, 90) and r["tid"] in (7, 8, 91) and not r["trace_id"]]
    rows = [r for r in rows if now - 5 * HOUR - 600 * SECOND <= r["start_time"] <= now - HOUR and r["end_time"] >= now - 5 * HOUR]
    return [[str(r["request_id"]), "", r["pid"], r["start_time"]] for r in sorted(rows, key=lambda r: r["start_time"])]


def meanwhile(known, now):
    groups, begin, end = collections.defaultdict(list), now - 24 * HOUR, now
    for r in of_process(known, 7, "web-1"):
        if begin - 600 * SECOND < r["start_time"] < end and r["end_time"] > begin and handled(r) < end:
            groups[r["method"], r["path"]].append(r)
    lines = []
    for (method, path), rows in groups.items():
        longest = max(rows, key=lambda r: r["duration_ns"])
        held = [(r["link"], r["weight"] * (min(r["end_time"], end) - max(handled(r), begin)) / 1000) for r in rows]
        lines.append([method, path, float(round(sum(r["weight"] for r in rows))), len({r["tid"] for r in rows}), sum(ms for _, ms in held),
                      sum(ms for link, ms in held if link != "same"), longest["duration_ns"] / 1e6, str(longest["request_id"])])
    return sorted(lines, key=lambda l: (-l[4], l[0], l[1]))[:20]


def threads(known, now):
    """Threads of a process with a request per second, within 20 seconds."""
    begin, end = now - 5 * HOUR, now - 5 * HOUR + 20 * SECOND
    rows = [r for r in of_process(known, 90, "ledger-1") if begin - 600 * SECOND < r["start_time"] <= end + 600 * SECOND]
    held, sampled = {r["tid"]: 0 for r in rows if r["start_time"] <= end}, False
    assert len(held) < 3  # of three with a connection each, the server would be one that makes a thread per connection
    for r in (r for r in rows if r["tid"] in held):
        overlap = min(r["end_time"], end) - max(handled(r), begin)
        held[r["tid"]] += r["weight"] * max(overlap, 0)
        sampled = sampled or (overlap > 0 and r["weight"] > 1)
    share = sum(held.values()) / (len(held) * (end - begin))
    assert share > 0
    return [[0, len(held), int(is_loop([r for r in rows if r["tid"] == 91])), share,
             int(share >= 0.75 if sampled else min(held.values()) >= (end - begin) / 2)]]


def is_loop(rows):
    """Requests of a thread: from one on, all are a loop's, or nine of ten are, or some were open at once."""
    times = {model: [r["start_time"] for r in rows if r["model"] == model] for model in ("loop", "thread")}
    loop, thread = times["loop"], times["thread"]
    return bool(loop) and (not thread or max(thread) < min(loop) or 10 * len(thread) <= len(loop)
                          or max(r["open_requests"] for r in rows if r["model"] != "pool") > 1)


def longest_holder(r):
    """Of a wait for the GIL: id, name, and the code, which is known of the one at the wait's begin."""
    longest = max(r["holders"], key=lambda h: h["ns"], default={"tid": r["holder_tid"], "thread_name": r["holder_thread_name"]})
    return longest["tid"], longest["thread_name"], place(r["holder_py_stack"]) if longest["tid"] == r["holder_tid"] else ""


def kept(known, now):
    """Waits for the GIL of process 90, by the first thread, which serves no requests, and by the thread 91 after its requests."""
    begin = now - 60 * HOUR - 600 * SECOND
    served = [r for r in of_process(known, 90, "ledger-1") if begin < r["start_time"] <= now]
    lines, serving, last = [], {r["tid"] for r in served}, max(r["end_time"] for r in served if r["tid"] == 91)
    for r in known["ebpf_gil_wait"]:
        if (r["host"], r["container_id"], r["pid"]) != ("ledger-1", "", 90):
            continue
        if not (r["tid"] == 90 and 90 not in serving or r["tid"] == 91 and r["start_time"] >= last):
            continue
        if now - 60 * HOUR - 60 * SECOND < r["start_time"] <= now and r["end_time"] >= now - 60 * HOUR:
            lines.append([r["tid"], r["thread_name"], *longest_holder(r), r["start_time"], r["end_time"]])
    return sorted(lines, key=lambda l: (l[5], l[0]))


def asleep(known, now):
    """Sleeps of the only thread of process 70 that accepts; process 72 has two."""
    begin = now - 2 * HOUR + 50_000
    rows = [r for r in known["ebpf_off_cpu"] if (r["host"], r["pid"], r["tid"]) == ("kept-1", 70, 70) and r["cause"] != "gil" and not r["idle"]]
    return sorted(([r["tid"], r["thread_name"], cause_of(r), place(r["py_stack"]), r["start_time"], r["end_time"]] for r in rows
                   if begin - 600 * SECOND < r["start_time"] <= begin + 300_000 and r["end_time"] >= begin), key=lambda line: line[4])


def holders(known, now):
    """Holders of the GIL, by thread."""
    held, names, places = collections.Counter(), {}, {}
    rows = [r for r in known["ebpf_gil_wait"] if (r["pid"], r["tid"], r["host"], r["container_id"]) == (7, 7, "web-1", "") and now - 60 * HOUR <= r["start_time"] <= now]
    for r in rows:
        for h in r["holders"]:
            held[h["tid"]] += h["ns"] * r["weight"]
            names.setdefault(h["tid"], set()).add(h["thread_name"])
            held_in = place(r["holder_py_stack"]) if h["tid"] == r["holder_tid"] else ""
            places[h["tid"]] = max(places.get(h["tid"], (False, 0, "")), (held_in != "", h["ns"], held_in))
    return [[tid, ns / 1e6, places[tid][2]] for tid, ns in sorted(held.items(), key=lambda pair: (-pair[1], pair[0]))[:10]]


def stalls(known, now):
    """Of the process 7 of web-1 and its first thread in the last day; most of a stall, the first of equals in the order of the columns. Of
    what is none of them, the kind of the thread's own waits in that time, if these are most of it."""
    lines, parts, refined = [], ["cpu", "runq", "gil", "lock", "net", "disk", "sleep", "other"], set()
    own, later = ([r for r in of_days(known, "ebpf_off_cpu", "", to) if r["tid"] == 7 and r["duration_ns"] >= 1_000_000] for to in (now, now + 60 * SECOND))
    waits = [r for r in later if r["cause"] in ("lock", "net", "disk", "sleep", "child", "pipe")]
    own = [(cause_of(r), r) for r in own if cause_of(r) in ("child", "pipe", "poll", "page_fault", "stopped", "frozen")]
    for r in sorted(known["ebpf_loop_stall"], key=lambda r: r["start_time"]):
        if (r["host"], r["container_id"], r["pid"], r["tid"]) != ("web-1", "", 7, 7) or not r["start_time"] > now - 24 * HOUR - 600 * SECOND:
            continue
        if r["start_time"] <= now and r["end_time"] >= now - 24 * HOUR:
            most, sums = max(parts, key=lambda part: r[f"{part}_ns"] or 0), collections.Counter()
            for cause, wait in own:
                sums[cause] += max(0, min(wait["end_time"], r["end_time"]) - max(wait["start_time"], r["start_time"]))
            cause, us = max(sums.items(), key=lambda item: item[1], default=("", 0))
            if most == "other" and us * 2000 > r["other_ns"]:
                most = cause
                refined.add(cause)
            where = collections.Counter()
            for wait in waits:
                if most in (cause_of(wait), "other") and place(wait["py_stack"]):
                    where[place(wait["py_stack"])] += max(0, min(wait["end_time"], r["end_time"]) - max(wait["start_time"], r["start_time"]))
            us, longest = max(((us, name) for name, us in where.items()), default=(0, ""))
            longest = longest if us * 2 >= r["end_time"] - r["start_time"] else ""
            lines.append([r["loop"], most, longest or place(r["py_stack"]), r["start_time"], r["end_time"]])
    assert refined == {"child", "pipe", "poll", "stopped"}, refined
    return lines


def requests_of_trace(known, now):
    [r] = [r for r in known["ebpf_request"] if r["trace_id"] == f"{3000:032x}"]
    parts = [(part, r[f"{part}_ns"]) for part in PARTS]
    there = [(part, ns / 1e6) for part, ns in parts if ns is not None]
    return [[str(r["request_id"]), [part for part, _ in there], [ms for _, ms in there], [sum(ms for _, ms in there[:i]) for i in range(len(there))],
             [part for part, ns in parts if ns is None], r["start_time"], handled(r), handled(r), f"{4000:015x}a"]]


def file(name):
    return sql_text(f"sql/explain/{name}")


def hidden_spans(rows, now):
    """The ledger's requests with a trace id, each followed by the parts, in sequence."""
    for r in rows["ebpf_request"]:
        if not r["trace_id"]:
            continue
        at, own = r["start_time"] * 1000, f"{r['request_id']:016x}"
        yield [at, own, r["trace_id"], r["parent_span_id"], f"request {r['method']} {r['path']}", r["duration_ns"], "", "time", str(r["pid"])]
        for i, part in enumerate(PARTS):
            if r[f"{part}_ns"]:
                yield [at, own, r["trace_id"], own, None, r[f"{part}_ns"], part, "time" if i < 4 else "share", str(r["pid"])]
                at += r[f"{part}_ns"]


def hidden_span(rows, now):
    """Names of parts are free text: only presence is compared here."""
    return [[*row[:4], row[4] or "words", *row[5:]] for row in sorted(hidden_spans(rows, now), key=lambda r: (r[0], r[1], r[6] != "", r[5]))]


def request_time(known, now):
    return sql_spans.whole("request_time", Maker(now), timestamp)


def request_time_parts(known, now):
    return sql_spans.whole("request_time_parts", Maker(now), timestamp)


# ---- spans and related rows ----

def identity(span):
    """A span's process, as named by the span, and the remaining columns of otel_span."""
    resource, own = span["ResourceAttributes"], span["SpanAttributes"]
    host = resource.get("k8s.node.name") or resource.get("host.name", "")
    pid = int(own.get("process.pid") or resource.get("process.pid") or 0)
    boot, pidns = own.get("boot_id", ""), int(own.get("pidns") or 0)
    container, pod = resource.get("container.id", ""), resource.get("k8s.pod.uid", "")
    return (boot, pidns, pid) if boot and pidns else (host, container, pod, pid), [host, container, pod, pid, int(own.get("thread.id") or 0), boot, pidns]


def otel_span(known, now):
    lines, firsts = [], {}
    for span in sorted(known["otel_traces"], key=lambda s: (s["TraceId"], s["SpanId"], s["Timestamp"])):
        said, ids = identity(span)
        start = span["Timestamp"] // 1000
        kind = span["SpanKind"].lower() if span["SpanKind"] in ("Server", "Client") else ""
        port = next((span["SpanAttributes"][name] for name in ("network.peer.port", "net.sock.peer.port", "net.peer.port") if span["SpanAttributes"].get(name)), 0)
        firsts[said] = min(firsts.get(said, span["SpanId"]), span["SpanId"])
        lines.append((said, [span["TraceId"], span["SpanId"], span["ParentSpanId"], span["ServiceName"], span["SpanName"], kind,
                             f"{timestamp(start)}{span['Timestamp'] % 1000:03d}", start, start + span["Duration"] // 1000, *ids, int(port),
                             int(span["SpanAttributes"].get("client.port") or 0)]))
    return [[*line, firsts[said]] for said, line in lines]


def place(stack):
    known = "app/".join(next((f for f in stack if f not in ("<gone>", "<unread>", "<cut>")), "").split("/app/"))
    return f"code of unknown name, called from {known}" if known and stack[0] in ("<gone>", "<unread>") else known


# stacks of waits -> the library function that waited, of the frames that the application's innermost function called
LIBRARIES = {
    "import": ["acquire (<frozen importlib._bootstrap>:120)", "_find_and_load (<frozen importlib._bootstrap>:1164)", "report (/srv/shop/views.py:8)", "<module> (/srv/shop/main.py:1)"],
    "log": ["acquire (/usr/lib/python3.11/logging/__init__.py:930)", "handle (/usr/lib/python3.11/logging/__init__.py:974)", "pay (/srv/shop/pay.py:3)"],
    "pool": ["Condition.wait (/usr/lib/python3.11/threading.py:331)", "Queue.get (/usr/lib/python3/dist-packages/sqlalchemy/util/queue.py:180)",
             "QueuePool._do_get (/usr/lib/python3/dist-packages/sqlalchemy/pool/impl.py:139)", "orders (/srv/shop/db.py:44)"],
    "  pool": ["wait (/usr/lib/python3.9/threading.py:316)", "get (/usr/lib/python3.9/queue.py:180)", "get_connection (/opt/venv/lib/python3.9/site-packages/redis/connection.py:1453)", "orders (/srv/shop/db.py:44)"],
    " pool": ["<gone>", "wait (/usr/local/lib/python3.8/threading.py:302)", "getconn (/opt/venv/lib/python3.8/site-packages/psycopg_pool/pool.py:1)"],
    "": ["acquire (/usr/lib/python3.11/threading.py:1)", "save (/srv/shop/db.py:3)", "_do_get (/usr/lib/python3/dist-packages/sqlalchemy/pool/impl.py:139)"],
    " ": ["compute (/srv/shop/pool/whirl.py:3)"], "  ": [], "   ": ["<gone>"],
    "child": ["_PollLikeSelector.select (/usr/lib/python3.11/selectors.py:415)", "Popen._communicate (/usr/lib/python3.11/subprocess.py:2059)", "render (/srv/shop/pdf.py:9)"],
    "future": ["Condition.wait (/usr/lib/python3.11/threading.py:320)", "Future.result (/usr/lib/python3.11/concurrent/futures/_base.py:451)", "render (/srv/shop/pdf.py:9)"],
    " future": ["wait (/usr/lib/python3.8/threading.py:302)", "wait (/usr/lib/python3.8/threading.py:558)", "wait (/usr/lib/python3.8/concurrent/futures/_base.py:302)", "render (/srv/shop/pdf.py:9)"],
    "result": ["Condition.wait (/usr/lib/python3.11/threading.py:320)", "Event.wait (/usr/lib/python3.11/threading.py:622)", "ApplyResult.get (/usr/lib/python3.11/multiprocessing/pool.py:768)", "render (/srv/shop/pdf.py:9)"],
    "queue": ["Condition.wait (/usr/lib/python3.13/threading.py:359)", "Queue.get (/usr/lib/python3.13/queue.py:202)", "render (/srv/shop/pdf.py:9)"],
    " queue": ["<gone>", "wait (/usr/lib/python3.8/threading.py:302)", "get (/usr/lib/python3.8/queue.py:170)", "<module> (/srv/shop/main.py:1)"],
    "full_queue": ["Condition.wait (/usr/lib/python3.11/threading.py:324)", "Queue.put (/usr/lib/python3.11/queue.py:149)", "render (/srv/shop/pdf.py:9)"],
    "barrier": ["Condition.wait (/usr/lib/python3.11/threading.py:320)", "Condition.wait_for (/usr/lib/python3.11/threading.py:355)", "Barrier._wait (/usr/lib/python3.11/threading.py:725)", "Barrier.wait (/usr/lib/python3.11/threading.py:690)", "render (/srv/shop/pdf.py:9)"],
    "semaphore": ["Condition.wait (/usr/lib/python3.11/threading.py:320)", "Semaphore.acquire (/usr/lib/python3.11/threading.py:503)", "render (/srv/shop/pdf.py:9)"],
    "start": ["Condition.wait (/usr/lib/python3.11/threading.py:320)", "Event.wait (/usr/lib/python3.11/threading.py:622)", "Thread.start (/usr/lib/python3.11/threading.py:962)", "render (/srv/shop/pdf.py:9)"],
    "join": ["Thread._wait_for_tstate_lock (/usr/lib/python3.11/threading.py:1132)", "Thread.join (/usr/lib/python3.11/threading.py:1112)", "render (/srv/shop/pdf.py:9)"],
    " join": ["Thread.join (/usr/lib/python3.13/threading.py:1094)", "render (/srv/shop/pdf.py:9)"],
    "event": ["Condition.wait (/usr/lib/python3.11/threading.py:320)", "Event.wait (/usr/lib/python3.11/threading.py:622)", "render (/srv/shop/pdf.py:9)"],
    " event": ["wait (/usr/lib/python3.8/threading.py:302)", "wait (/usr/lib/python3.8/threading.py:558)", "render (/srv/shop/pdf.py:9)"],
    "condition": ["Condition.wait (/usr/lib/python3.11/threading.py:324)", "render (/srv/shop/pdf.py:9)"],
    # locks that these are made of, and the application's own wait()
    "     ": ["Condition.__enter__ (/usr/lib/python3.11/threading.py:273)", "Queue.get (/usr/lib/python3.11/queue.py:164)", "render (/srv/shop/pdf.py:9)"],
    "      ": ["Queue.qsize (/usr/lib/python3.11/queue.py:97)", "render (/srv/shop/pdf.py:9)"],
    "       ": ["Room.wait (/srv/shop/threading.py:9)", "Queue.get (/usr/lib/python3.11/queue.py:164)", "render (/srv/shop/pdf.py:9)"]}


def library(stack):
    assert all("/app/" in frame or "(" not in frame for frame in stack[:1])
    return ""


def of_days(known, table, container, now):
    rows = [r for r in known[table] if (r["pid"], r["host"], r["container_id"]) == (7, "web-1", container) and now - 60 * HOUR <= r["end_time"]]
    return sorted((r for r in rows if now - 60 * HOUR - 60 * SECOND < r["start_time"] <= now), key=lambda r: r["start_time"])


def gc(known, now):
    return [[r["tid"], r["thread_name"], r["generation"], r["collected"], r["long_lived"], r["frozen_threads"], place(r["py_stack"]), r["start_time"], r["end_time"]]
            for r in of_days(known, "ebpf_gc_pause", "", now)]


def throttle(known, now):
    return [[r["cgroup"], r["quota_us"], r["period_us"], r["throttled_ns"] // 1000, r["throttled_periods"], r["start_time"], r["end_time"]]
            for r in of_days(known, "ebpf_cpu_throttle", "c1" * 32, now)]


def connections(known, now):
    """Of the thread 7, whose requests come to port 8000, and of the client's port 50000 at 10.0.0.9."""
    lines = [["connect", r["outcome"], 0, r["remote_ip"], r["remote_port"], r["total_retrans"], r["duration_ns"] // 1000, r["start_time"], r["end_time"]]
             for r in of_days(known, "ebpf_tcp_connect", "", now) if r["tid"] == 7 and (r["duration_ns"] >= 1_000_000 or r["outcome"] != "success")]
    for r in of_days(known, "ebpf_tcp_loss", "", now):
        own = (r["local_port"], r["remote_port"], r["remote_ip"]) == (8000, 50000, "::ffff:10.0.0.9")
        if r["kind"] in ("retransmit", "rto", "loss_recovery", "tlp", "zero_window_sent", "zero_window_received") and (own or (r["tid"] == 7 and r["local_port"] != 8000)):
            lines.append([r["kind"], "", int(own), r["remote_ip"], r["remote_port"], r["segments"], r["stalled_ns"] // 1000, r["start_time"], r["end_time"]])
    assert {line[2] for line in lines} == {0, 1} and len({line[0] for line in lines}) > 5
    return sorted(([*line[:3], line[3].replace("::ffff:", ""), *line[4:]] for line in lines), key=lambda line: (line[7], line[8], line[0]))


def dropped(known, now):
    """In the ten seconds until half an hour ago."""
    rows = [r for r in known["ebpf_tcp_accept"] if (r["host"], r["netns"], r["local_port"], r["kind"]) == ("shop-1", 9, 8000, "dropped")]
    rows = [r for r in rows if r["start_time"] <= now - 30 * 60 * SECOND <= r["end_time"] + 10 * SECOND]
    assert len(rows) == 2
    return [[sum(r["drops"] for r in rows), sum(r["overflows"] for r in rows)]]


def allowances(known, now):
    """Of the host's last readings, from the first of ens5 on."""
    sums = collections.Counter()
    for r in known["ebpf_ena"]:
        if r["host"] == "web-1" and now - 30 * 60 * SECOND <= r["end_time"] and now - 31 * 60 * SECOND < r["start_time"] <= now:
            for name in ("bw_in", "bw_out", "pps", "conntrack", "linklocal"):
                sums[r["interface"], name] += r[f"{name}_allowance_exceeded"] or 0
    lines = [[*key, packets] for key, packets in sums.items() if packets]
    assert len(lines) > 1
    return sorted(lines, key=lambda line: (-line[2], line[0], line[1]))


def cause_of(r):
    return {"T": "stopped", "t": "stopped", "F": "frozen"}.get(r["state"], r["cause"])


def waits(known, now):
    """Of the thread 7, from a millisecond on."""
    lines = [["gil", "", "", *longest_holder(r), "", r["start_time"], r["end_time"], r]
             for r in of_days(known, "ebpf_gil_wait", "", now)]
    lines += [[cause_of(r), lock_of(r), r["syscall"], r["waker_tid"], waker_of(r), place(r["py_stack"]), library(r["py_stack"]), r["start_time"], r["end_time"], r]
              for r in of_days(known, "ebpf_off_cpu", "", now) if r["cause"] != "gil"]
    lines = [line[:9] for line in lines if line[9]["tid"] == 7 and line[9]["duration_ns"] >= 1_000_000]
    assert {line[0] for line in lines} > {"gil"} and {line[2] for line in lines} > {""}
    return sorted(lines, key=lambda line: (line[7], line[8]))


def waker_of(r):
    """With the process where that is another one."""
    if r["waker_pid"] in (0, r["pid"]):
        return r["waker_thread_name"]
    return f"{(r['waker_thread_name'] or str(r['waker_tid']))[:24]} of {r['waker_comm'] + ', ' if r['waker_comm'] else ''}pid {r['waker_pid']}"


def profile(known, now):
    rows = [r for r in known["ebpf_off_cpu_profile"]
            if (r["pid"], r["tid"], r["host"], r["container_id"]) == (7, 7, "web-1", "") and not r["idle"]
            and now - 60 * HOUR - 5 * 60 * SECOND < r["start_time"] <= now and r["end_time"] >= now - 60 * HOUR]
    sums, of_cause = collections.Counter(), collections.Counter()
    for r in rows:
        sums[cause_of(r), place(r["py_stack"])] += r["off_ns"] * r["weight"]
        of_cause[cause_of(r)] += r["off_ns"] * r["weight"]
    first, last = min(r["start_time"] for r in rows), max(r["end_time"] for r in rows)
    seconds = round((last - first) / 1e6, 1)
    most = {}
    for (cause, where), ns in sorted(sums.items(), key=lambda one: (-one[1], one[0])):
        if where:
            most.setdefault(cause, [cause, where, round(100 * ns / of_cause[cause], 1), seconds, ns / 1e6, of_cause[cause] / 1e6, 0])  # of no request: see test_answer_causes.py
    assert len(most) > 2 and any(not where for _, where in sums)
    return sorted(most.values(), key=lambda line: (-line[2], line[0], line[1]))


def places(known, now):
    """Of the thread 7, waits of any length."""
    sums = collections.Counter()
    for r in of_days(known, "ebpf_off_cpu", "", now):
        if r["tid"] == 7 and r["cause"] != "gil" and place(r["py_stack"]):
            sums[cause_of(r), place(r["py_stack"])] += min(r["end_time"], now) - r["start_time"]
    assert sums
    return [[cause, where, -us] for us, cause, where in sorted((-us, cause, where) for (cause, where), us in sums.items())]


def computed(known, now):
    """Of the thread 7, samples by function, with the line that has most."""
    lines = collections.defaultdict(collections.Counter)
    for r in of_days(known, "ebpf_on_cpu", "", now):
        if r["tid"] == 7 and r["end_time"] <= now and (where := place(r["py_stack"])):
            lines[re.sub(r":\d+\)", ")", where)][where] += 1
    assert lines
    found = [[max(of, key=lambda where: (of[where], where)), sum(of.values())] for of in lines.values()]
    return sorted(found, key=lambda line: (-line[1], line[0]))


def crowd(known, now):
    """Of each process of the host its thread and code with most, without the thread 7 of process 7."""
    lines, processes = collections.Counter(), collections.Counter()
    comms = {}
    for r in known["ebpf_on_cpu"]:
        if r["host"] == "web-1" and (r["pid"], r["tid"], r["container_id"], r["host_pid"]) != (7, 7, "", 7) and now - 60 * HOUR <= r["end_time"] <= now \
                and r["start_time"] >= now - 60 * HOUR - SECOND:
            process = r["pid"], r["container_id"], r["host_pid"]
            line = *process, r["thread_name"], place(r["py_stack"])
            lines[line] += r["duration_ns"] * r["weight"]
            processes[process] += r["duration_ns"] * r["weight"]
            comms[line] = max(comms.get(line, ""), r.get("comm", ""))
    found = []
    for process in sorted(processes, key=lambda p: (-processes[p], p[0], p[2])):
        line = min((line for line in lines if line[:3] == process), key=lambda line: (-lines[line], *line[3:]))
        found.append([int(process == (7, "", 7)), process[0], comms[line], *line[3:], lines[line] / 1e6, processes[process] / 1e6])
    assert found
    return found[:10]


def crowd_total(known, now):
    """Of web-1, whose agent has no rows of on_cpu."""
    return [[sum(r["duration_ns"] * r["weight"] for r in known["ebpf_on_cpu"] if r["host"] == "web-1" and r["end_time"] <= now <= r["end_time"] + 60 * HOUR
                 and r["start_time"] >= now - 60 * HOUR - SECOND and (r["pid"], r["tid"], r["container_id"], r["host_pid"]) != (7, 7, "", 7)) / 1e6,
             sum(min(r["end_time"], now) - max(r["start_time"], now - 60 * HOUR) for r in known["ebpf_agent"] if (r["host"], r["tracker"]) == ("web-1", "on_cpu")
                 and now - 60 * HOUR - 600 * SECOND < r["start_time"] < now and r["end_time"] > now - 60 * HOUR
                 and not any(r[name] for name in ("lost_ring", "lost_state", "bad_event", "dropped_memory", "dropped_spool", "dropped_corrupt", "dropped_refused"))) / (60 * HOUR)]]


def lock_of(r):
    return f"{r['lock_address']:#x}" if r["lock_address"] else ""


def lock_waits(known, now):
    """Of all threads of the process 7, from a millisecond on."""
    rows = [r for r in of_days(known, "ebpf_off_cpu", "", now) if r["cause"] != "gil" and not r["idle"] and r["duration_ns"] >= 1_000_000]
    lines = [[r["tid"], r["thread_name"], r["cause"], lock_of(r), r["waker_tid"], waker_of(r), place(r["py_stack"]), r["start_time"], r["end_time"]] for r in rows]
    return sorted(lines, key=lambda line: (line[8], line[0]))


def pool(known, now):
    """Of the threads of the process 7 that the thread 1 woke from a lock: waits by cause and place, without those that thread 1 ended. Of the pools
    that had work: their threads' names differ only in digits."""
    def of(table, since):
        return [r for r in known[table] if (r["pid"], r["host"], r["container_id"]) == (7, "web-1", "") and r["start_time"] > since]

    there = {r["tid"] for r in of("ebpf_off_cpu", now - 60 * HOUR - 600 * SECOND) if r["start_time"] < now + 60 * SECOND and r["end_time"] > now - 60 * HOUR}
    given = {r["tid"] for r in of("ebpf_off_cpu_profile", now - 60 * HOUR - 600 * SECOND) if r["cause"] == "lock" and r["start_time"] <= now + 60 * SECOND
             and (r["idle"] or not r["py_stack"] and r["tid"] in there)}
    names = {}
    for r in of("ebpf_off_cpu_profile", now - 60 * HOUR - 600 * SECOND):
        if r["tid"] in given and r["start_time"] <= now + 60 * SECOND and r["cause"] == "lock" and (r["idle"] or not r["py_stack"]):
            names[r["tid"]] = max(names.get(r["tid"], ""), r["thread_name"])
    worked = {re.sub("[0-9]+", "", names[r["tid"]]) for r in of("ebpf_off_cpu", now - 60 * HOUR - 600 * SECOND)
              if r["tid"] in given and r["start_time"] < now and r["end_time"] > now - 60 * HOUR
              and (r["waker_tid"] == 1 and r["end_time"] <= now if r["cause"] == "lock" else not r["idle"])}
    given = {tid for tid in given if re.sub("[0-9]+", "", names[tid]) in worked}
    lines, longest = {}, 0
    for r in of("ebpf_off_cpu", now - 60 * HOUR - 600 * SECOND):
        if r["tid"] in given and not r["idle"] and r["cause"] != "lock" and r["start_time"] < now and r["end_time"] > now - 60 * HOUR:
            line = lines.setdefault((r["cause"], place(r["py_stack"])), [set(), [], 0])
            line[0].add(r["tid"])
            line[1].append(r["thread_name"])
            line[2] += min(r["end_time"], now) - max(r["start_time"], now - 60 * HOUR)
            longest = max(longest, r["end_time"] - r["start_time"])
    assert len(given) > 1 and len(lines) > 1
    found = sorted((-us, cause, where, tids, names) for (cause, where), (tids, names, us) in lines.items())
    return [[cause, where, "", len(tids), max(names), -us / 1000, len(given), sum(-line[0] for line in found) / 1000, longest / 1000]
            for us, cause, where, tids, names in found]


def sampled(known, now):
    shifts = {}
    for r in known["ebpf_agent"]:
        if r["host"] == "web-3" and r["tracker"] in ("gc_pause", "gil_wait", "loop_stall", "off_cpu") and r["start_time"] < now and r["end_time"] > now - 8 * 60 * SECOND:
            shifts[r["tracker"]] = max(r["skip_shift"], shifts.get(r["tracker"], 0))
    assert shifts and max(shifts.values()) > 0
    return [[tracker, 1 << shift] for tracker, shift in sorted(shifts.items()) if shift]


def spans(known, now):
    """Delivered twice each."""
    at = now - 10 * HOUR
    return [["c1", "", "GET x", "client", "svc", "span-1", "", 0, 0, at, at + 300_000], ["s1", "c1", "GET x", "server", "svc", "span-1", "", SPANS, SPANS + 1, at + 100_000, at + 290_000]]


NO_SPANS = {**dict.fromkeys("trace_id span_id parent_id service span_name kind host container_id pod_uid".split(), "String"), "time": "DateTime64(9)",
            "start_us": "Int64", "end_us": "Int64", "pid": "UInt32", "tid": "UInt32", "said": "UInt64"}
BEGIN = {"from": "1970-01-02 00:00:00", "to": "2100-01-01 00:00:00"}
NO_REQUEST = {"trace_id": "", "request_id": "0"}
VIEWS = {"request.sql": (f"SELECT {REQUEST} FROM request(from = now() - INTERVAL 60 HOUR, to = now() + INTERVAL 1 MINUTE) ORDER BY start_time, request_id",
                         {}, request),
         "hidden_span.sql": ("SELECT toUnixTimestamp64Nano(Timestamp) AS at, leftPad(lower(hex(toUInt64(SpanAttributes['underspan.request_id']))), 16, '0') AS own, "
                             "TraceId, ParentSpanId, if(SpanAttributes['underspan.part'] = '', SpanName, 'words'), Duration, SpanAttributes['underspan.part'] AS part, "
                             "SpanAttributes['underspan.order'], ResourceAttributes['process.pid'] FROM hidden_span ORDER BY at, own, part != '', Duration",
                             {}, hidden_span),
         "otel_span.sql": ("SELECT * EXCEPT (said), min(span_id) OVER (PARTITION BY said) FROM otel_span ORDER BY trace_id, span_id, start_us, kind", {}, otel_span),
         "request_time.sql": (sql_spans.question("request_time"), {}, request_time),
         "request_time_parts.sql": (sql_spans.question("request_time_parts"), {}, request_time_parts)}
EXPLAIN = {}
EXPLAIN |= {
    "ledger.sql": (None, {**NO_REQUEST, "trace_id": f"{3002:032x}"}, ledger),
    "ledger_threads.sql": (None, {"pids": "[7,90]", "tids": "[7,8,91]", "from_us": lambda now: now - 5 * HOUR, "to_us": lambda now: now - HOUR}, ledger_threads),
    "requests.sql": (f"SELECT request_id, part, part_ms, part_at_ms, part_missing, from_us, handled_us, waited_to_us, span_id FROM ({file('requests.sql')})",
                     {**BEGIN, **NO_REQUEST, "trace_id": f"{3000:032x}"}, requests_of_trace),
    "meanwhile.sql": (None, {**PROCESS, **NO_REQUEST, "container_id": "", "from_us": lambda now: now - 24 * HOUR, "to_us": lambda now: now}, meanwhile),
    "threads.sql": (None, {**PROCESS, **NO_REQUEST, "pid": 90, "tid": 91, "host": "ledger-1", "container_id": "", "from_us": lambda now: now - 5 * HOUR,
                           "to_us": lambda now: now - 5 * HOUR + 20 * SECOND}, threads),
    "kept.sql": (None, {**PROCESS, **NO_REQUEST, "pid": 90, "tid": 91, "host": "ledger-1", "container_id": "", "from_us": lambda now: now - 60 * HOUR, "to_us": lambda now: now}, kept),
    "asleep.sql": (None, {**PROCESS, "host": "kept-1", "container_id": "", "pid": 70, "tid": 8, "from_us": lambda now: now - 2 * HOUR + 50_000,
                          "to_us": lambda now: now - 2 * HOUR + 350_000}, asleep),
    "stalls.sql": (None, {**PROCESS, "container_id": "", "from_us": lambda now: now - 24 * HOUR, "to_us": lambda now: now}, stalls),
    "holders.sql": (f"SELECT tid, held_ms, place FROM ({file('holders.sql')})", {**PROCESS, "container_id": "", "from_us": lambda now: now - 60 * HOUR, "to_us": lambda now: now}, holders)}
OF_DAYS = {**PROCESS, "container_id": "", "from_us": lambda now: now - 60 * HOUR, "to_us": lambda now: now}
SPANS = sql_spans.SCENARIOS.index(sql_spans.delivered_twice) * 10 + 310
EXPLAIN |= {
    # 5007 was refused, and then it was not
    "refused.sql": (None, {**OF_DAYS, "host_pid": 6000, "from_us": lambda now: now - 10 * SECOND}, lambda known, now: [["gc_pause", "free-threaded"]]),
    "unfollowed.sql": (None, {}, lambda known, now: [["web-1", "6 of TLS"], ["web-1", "5 of unread"]]),  # upgraded ones have a row
    "sampled.sql": (None, {**OF_DAYS, "host": "web-3", "from_us": lambda now: now - 8 * 60 * SECOND}, sampled),
    "pool.sql": (f"SELECT cause, place, library, threads, thread_name, waited_ms, pool_threads, pool_ms, longest_ms FROM ({file('pool.sql')})",
                 {**OF_DAYS, "tid": 1}, pool),
    "client.sql": (None, {**OF_DAYS, "host": "out-1", "peer_ip": "10.3.0.1", "peer_port": 5002, "server_port": 80, "netns": 1, "from_us": lambda now: now - sql_outbound.AGO + 50_000},
                   lambda known, now: [["out-1", *{r["service"] or r["comm"] for r in known["ebpf_tcp_connect"] if (r["host"], r["local_port"]) == ("out-1", 5002)}, 400, 1]]),
    "pending.sql": (None, {**OF_DAYS, "host": "loop-4", "from_us": lambda now: now - 5 * SECOND, "to_us": lambda now: now - 3 * SECOND}, lambda known, now: [[now - 4 * SECOND, 8]]),
    "last_worker.sql": (None, {**OF_DAYS, "host": "loop-4", "tid": 1, "request_id": 5, "from_us": lambda now: now - 602 * SECOND,
                               "to_us": lambda now: now - 600 * SECOND}, sql_loops.last_worker),
    "gc.sql": (None, OF_DAYS, gc), "waits.sql": (None, OF_DAYS, waits), "places.sql": (None, OF_DAYS, places), "profile.sql": (None, {**OF_DAYS, "tid": 7, "request_id": "0"}, profile), "computed.sql": (None, OF_DAYS, computed), "crowd.sql": (None, {**OF_DAYS, "host_pid": 7}, crowd), "crowd_total.sql": (None, {**OF_DAYS, "host_pid": 7}, crowd_total), "lock_waits.sql": (None, OF_DAYS, lock_waits), "throttle.sql": (None, {**OF_DAYS, "container_id": "c1" * 32}, throttle),
    "connections.sql": (None, {**OF_DAYS, "server_port": 8000, "peer_port": 50000, "peer_ip": "10.0.0.9"}, connections),
    "dropped.sql": (None, {**OF_DAYS, "host": "shop-1", "from_us": lambda now: now - 30 * 60 * SECOND, "netns": 9, "server_port": 8000}, dropped),
    "outbound.sql": (None, sql_outbound.PARAMETERS, sql_outbound.truth),
    "allowances.sql": (None, {**OF_DAYS, "from_us": lambda now: now - 30 * 60 * SECOND}, allowances),
    "handoff.sql": (None, {"host": "span-1", "container_id": "", "pid": 310, "tid": 311, "to_us": lambda now: now - 10 * HOUR + 390_000},
                    lambda known, now: [["accept", 311, "worker", "take (app/take.py:3)"]]),
    # digits are in both cases
    "upper_case.sql": (None, {"trace_id": f"{3:032x}"}, lambda known, now: [[sum(s["TraceId"] == f"{3:032x}" for s in known["otel_traces"])]]),
    "no_spans.sql": (f"SELECT count(), {', '.join(f'toTypeName(any({name}))' for name in NO_SPANS)} FROM ({file('no_spans.sql')})", {},
                     lambda known, now: [[0, *NO_SPANS.values()]]),
    "spans.sql": (None, {"trace_id": f"{SPANS:032x}", "first": "86400", "last": "4102444800"}, spans),
    "when.sql": (None, {"trace_id": f"{SPANS:032x}"}, lambda known, now: [[(now - 10 * HOUR) // SECOND - 1, (now - 10 * HOUR + 100_000) // SECOND + 1]]),
    "when_spans.sql": (None, {"trace_id": f"{SPANS:032x}"}, lambda known, now: [[(now - 10 * HOUR) // SECOND, (now - 10 * HOUR + 100_000) // SECOND + 1]])}
