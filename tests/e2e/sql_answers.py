# SPDX-License-Identifier: Apache-2.0
"""The files of sql/views and sql/explain: how each is asked of the rows of sql_known.py, and what has to come back. VIEWS and
EXPLAIN: file name -> a question with its parameters, and a function of (rows by table, now) that returns the whole result, as in
sql_truth.py; None: it is executed, its figures are held elsewhere. A parameter may be a function of now."""
import collections
import pathlib

from sql_known import HOUR, PARTS, SECOND, Maker
from sql_truth import address, timestamp
from store_fixture import ROOT

PROCESS = {"pid": 7, "tid": 7, "host": "web-1", "container_id": "c-1", "from_us": 0, "to_us": 1 << 51}

WINDOW = "(from = now() - INTERVAL 1 HOUR, to = now())"


# ---- the request ledger ----

def handled(r):
    return r["start_time"] + sum(r[f"{part}_ns"] or 0 for part in PARTS[:4]) // 1000


def spans_of_requests(now):
    """How each request of Maker.requests_with_spans() is found, and its span, by its start and host."""
    for row, spans, how in Maker(now).requests_with_spans():
        yield (row["start_time"], row["host"]), (how, spans[0] if how in ("traceparent", "traceparent alone", "thread") else None)


WITHOUT_SPANS = {"thread": "the request carried no traceparent, and no server span began on its thread meanwhile",
                 "loop": "the request carried no traceparent, and its thread does not tell (an event loop)",
                 "pool": "the request carried no traceparent, and its thread does not tell (a pool behind the one that read it)"}
REQUEST = ("request_id, host, pid, tid, start_time, handled_time, end_time, method, path, status, duration_ms, "
           + ", ".join(f"{part}_ms" for part in PARTS) + ", net_peer_ip, net_peer_ms, not_measured, trace_id, span_id, service, span_name, span_ms, span_by, no_span, toFloat64(weight)")


def request(known, now):
    of_spans, lines = dict(spans_of_requests(now)), []
    for r in sorted(known["ebpf_request"], key=lambda r: (r["start_time"], r["request_id"])):
        if not now - 60 * HOUR <= r["start_time"] < now + 60 * SECOND:
            continue
        how, span = of_spans.get((r["start_time"], r["host"]), (WITHOUT_SPANS[r["model"]], None))
        lines.append([r["request_id"], r["host"], r["pid"], r["tid"], timestamp(r["start_time"]), timestamp(handled(r)), timestamp(r["end_time"]),
                      r["method"], r["path"], r["status"], r["duration_ns"] / 1e6,
                      *(None if r[f"{part}_ns"] is None else r[f"{part}_ns"] / 1e6 for part in PARTS), "::ffff:" + address(r["net_peer_ip"]), r["net_peer_ns"] / 1e6,
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
        held = sum(r["weight"] * (min(r["end_time"], end) - max(handled(r), begin)) for r in rows) / 1000
        lines.append([method, path, float(round(sum(r["weight"] for r in rows))), len({r["tid"] for r in rows}), held, longest["duration_ns"] / 1e6,
                      str(longest["request_id"])])
    return sorted(lines, key=lambda l: (-l[4], l[0], l[1]))[:20]


def threads(known, now):
    rows = [r for r in of_process(known, 7, "web-1") if now - 24 * HOUR - 600 * SECOND < r["start_time"] <= now]
    later = [r for r in of_process(known, 7, "web-1") if now < r["start_time"] <= now + 600 * SECOND]
    return [[len({r["tid"] for r in rows}), int(any(r["tid"] == 7 and r["model"] == "loop" for r in rows + later))]]


def kept(known, now):
    """Waits for the GIL of the process 90, by its first thread, which serves no requests itself."""
    begin = now - 60 * HOUR - 600 * SECOND
    lines, serving = [], {r["tid"] for r in of_process(known, 90, "ledger-1") if begin < r["start_time"] <= now}
    assert 91 in serving
    for r in known["ebpf_gil_wait"]:
        if (r["host"], r["container_id"], r["pid"]) != ("ledger-1", "", 90) or r["tid"] != 90 or 90 in serving:
            continue
        if now - 60 * HOUR - 60 * SECOND < r["start_time"] <= now and r["end_time"] >= now - 60 * HOUR:
            frame = next((f for f in r["holder_py_stack"] if f not in ("<gone>", "<unread>", "<cut>")), "").split("/app/")
            lines.append([r["tid"], r["thread_name"], r["holder_tid"], r["holder_thread_name"], "app/".join(frame), r["start_time"], r["end_time"]])
    return sorted(lines, key=lambda l: (l[5], l[0]))


def holders(known, now):
    """Who had the GIL, by thread."""
    held, names, places = collections.Counter(), {}, {}
    rows = [r for r in known["ebpf_gil_wait"] if (r["pid"], r["tid"], r["host"], r["container_id"]) == (7, 7, "web-1", "") and now - 60 * HOUR <= r["start_time"] <= now]
    for r in rows:
        for h in r["holders"]:
            held[h["tid"]] += h["ns"] * r["weight"]
            names.setdefault(h["tid"], set()).add(h["thread_name"])
            frame = next((f for f in r["holder_py_stack"] if f not in ("<gone>", "<unread>", "<cut>")), "") if h["tid"] == r["holder_tid"] else ""
            parts = frame.split("/app/")
            places[h["tid"]] = max(places.get(h["tid"], (False, 0, "")), (frame != "", h["ns"], f"{parts[0]}app/{parts[1]}" if frame else ""))
    return [[tid, ns / 1e6, places[tid][2]] for tid, ns in sorted(held.items(), key=lambda pair: (-pair[1], pair[0]))[:10]]


def stalls(known, now):
    """Of the process 7 of web-1 and its first thread in the last day; most of a stall, the first of equals in the order of the columns."""
    lines, parts = [], ["cpu", "runq", "gil", "lock", "net", "disk", "sleep", "other"]
    for r in sorted(known["ebpf_loop_stall"], key=lambda r: r["start_time"]):
        if (r["host"], r["container_id"], r["pid"], r["tid"]) != ("web-1", "", 7, 7) or not r["start_time"] > now - 24 * HOUR - 600 * SECOND:
            continue
        if r["start_time"] <= now and r["end_time"] >= now - 24 * HOUR:
            frame = next((f for f in r["py_stack"] if f not in ("<gone>", "<unread>", "<cut>")), "").split("/app/")
            lines.append([max(parts, key=lambda part: r[f"{part}_ns"] or 0), "app/".join(frame), r["start_time"], r["end_time"]])
    return lines


def requests_of_trace(known, now):
    [r] = [r for r in known["ebpf_request"] if r["trace_id"] == f"{3000:032x}"]
    parts = [(part, r[f"{part}_ns"]) for part in PARTS]
    there = [(part, ns / 1e6) for part, ns in parts if ns is not None]
    return [[str(r["request_id"]), [part for part, _ in there], [ms for _, ms in there], [sum(ms for _, ms in there[:i]) for i in range(len(there))],
             [part for part, ns in parts if ns is None], r["start_time"], handled(r), handled(r), f"{4000:015x}a"]]


def file(name):
    return pathlib.Path(ROOT, "sql/explain", name).read_text()


def hidden_spans(rows, now):
    """The ledger's requests that carried a trace id, each followed by its parts, one after the other."""
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
    """Names of parts are words: they differ, and that is all that is known of them here."""
    return [[*row[:4], row[4] or "words", *row[5:]] for row in sorted(hidden_spans(rows, now), key=lambda r: (r[0], r[1], r[6] != "", r[5]))]


BEGIN = {"from": "1970-01-02 00:00:00", "to": "2100-01-01 00:00:00"}
NO_REQUEST = {"trace_id": "", "request_id": "0"}
# their figures are held in test_answer.py
VIEWS = {"request.sql": (f"SELECT {REQUEST} FROM request(from = now() - INTERVAL 60 HOUR, to = now() + INTERVAL 1 MINUTE) ORDER BY start_time, request_id",
                         {}, request),
         "hidden_span.sql": ("SELECT toUnixTimestamp64Nano(Timestamp) AS at, leftPad(lower(hex(toUInt64(SpanAttributes['underspan.request_id']))), 16, '0') AS own, "
                             "TraceId, ParentSpanId, if(SpanAttributes['underspan.part'] = '', SpanName, 'words'), Duration, SpanAttributes['underspan.part'] AS part, "
                             "SpanAttributes['underspan.order'], ResourceAttributes['process.pid'] FROM hidden_span ORDER BY at, own, part != '', Duration",
                             {}, hidden_span),
         "otel_span.sql": ("SELECT * FROM otel_span", {}, None),
         "request_time.sql": (f"SELECT * FROM request_time{WINDOW}", {}, None),
         "request_time_parts.sql": (f"SELECT * FROM request_time_parts{WINDOW}", {}, None)}
EXPLAIN = {name: (None, PROCESS, None) for name in ("gc.sql", "handoff.sql", "throttle.sql", "waits.sql")}
EXPLAIN |= {
    "no_spans.sql": (None, {}, None), "ledger.sql": (None, {**NO_REQUEST, "trace_id": f"{3002:032x}"}, ledger),
    "ledger_threads.sql": (None, {"pids": "[7,90]", "tids": "[7,8,91]", "from_us": lambda now: now - 5 * HOUR, "to_us": lambda now: now - HOUR}, ledger_threads),
    "requests.sql": (f"SELECT request_id, part, part_ms, part_at_ms, part_missing, from_us, handled_us, waited_to_us, span_id FROM ({file('requests.sql')})",
                     {**BEGIN, **NO_REQUEST, "trace_id": f"{3000:032x}"}, requests_of_trace),
    "meanwhile.sql": (None, {**PROCESS, **NO_REQUEST, "container_id": "", "from_us": lambda now: now - 24 * HOUR, "to_us": lambda now: now}, meanwhile),
    "threads.sql": (None, {**PROCESS, "container_id": "", "from_us": lambda now: now - 24 * HOUR, "to_us": lambda now: now}, threads),
    "kept.sql": (None, {**PROCESS, "pid": 90, "host": "ledger-1", "container_id": "", "from_us": lambda now: now - 60 * HOUR, "to_us": lambda now: now}, kept),
    "stalls.sql": (None, {**PROCESS, "container_id": "", "from_us": lambda now: now - 24 * HOUR, "to_us": lambda now: now}, stalls),
    "holders.sql": (f"SELECT tid, held_ms, place FROM ({file('holders.sql')})", {**PROCESS, "container_id": "", "from_us": lambda now: now - 60 * HOUR, "to_us": lambda now: now}, holders)}
EXPLAIN["spans.sql"] = (None, {"trace_id": f"{0:032x}", "first": "2026-01-01 00:00:00", "last": "2100-01-01 00:00:00"}, None)
EXPLAIN["when.sql"] = (None, {"trace_id": f"{0:032x}"}, None)
