# SPDX-License-Identifier: Apache-2.0
"""`underspan doctor --spans`: spans of known identity beside rows of known processes; each span is counted once, as joined or under
the reason why not, with the fix."""
import json
import re
import subprocess
import time

import pytest

from store_fixture import ROOT, UNDERSPAN, Store

pytestmark = pytest.mark.engine

SECOND = 10**6
DOCKER = "0123456789ab" + "c" * 52
# host, container, pod, pid of the processes with rows
PROCESSES = [("web-1", "", "", 10), ("web-1", "c1", "p1", 7), ("web-1", "c2", "p2", 7), ("web-2", "", "", 10), ("web-2", "c3", "", 8),
             ("web-2", DOCKER, "", 5), ("db-1.example.com", "", "", 10)]
BOOTS = {"web-1": "aaaaaaaa-boot", "web-2": "bbbbbbbb-boot"}  # of the hosts with a known boot id
PIDNS = {"": 4026531836, "c1": 1, "c2": 2, "c3": 3, DOCKER: 4}
# service: (host, container, pod, pid, tid[, boot id, PID namespace]) of the server spans, the number that join, and the reasons for the
# rest
SPANS = {
    "joins": ([("web-1", "", "", 10, 11), ("web-1", "c1", "p1", 7, 7), ("web-1", "c2", "", 7, 7), ("", "", "p1", 7, 7), ("web-2", "c3", "", 8, 9),
               ("0123456789ab", "", "", 5, 5)], 6, {}),  # the host of the last span is a container's id, truncated by Docker
    "no pid": ([("web-1", "", "", 0, 11)] * 2, 0, {2: ["no process.pid", "install the wheel underspan-otel"]}),
    # Python's threading.get_ident() is a pointer
    "no thread": ([("web-1", "", "", 10, 0), ("web-1", "", "", 10, 140432912123904), ("web-1", "", "", 10, 10)], 1,
                  {2: ["no native thread.id", "install the wheel underspan-otel"]}),
    "several": ([("web-1", "", "", 7, 7)], 0, {1: ["pid 7 is in several containers of host web-1", "set container.id or k8s.pod.uid"]}),
    "several hosts": ([("", "", "", 10, 10)], 0, {1: ["pid 10 is on several hosts", "set host.name, container.id or k8s.pod.uid"]}),
    "full name": ([("web-1.example.com", "", "", 10, 10)], 0, {1: ["is web-1.example.com, its agent's web-1", "set host.name=web-1 ", "--host=web-1.example.com"]}),
    "short name": ([("db-1", "", "", 10, 10)], 0, {1: ["is db-1, its agent's db-1.example.com", "set host.name=db-1.example.com"]}),
    "no agent": ([("web-9", "", "", 10, 10)] * 3, 0, {3: ["no agent of host web-9", "there are: db-1.example.com, web-1, web-2)", "start one there"]}),
    "other container": ([("web-2", "c4", "", 8, 8)], 0, {1: ["host web-2 has rows of pid 8 in another container", "container.id c4"]}),
    "no process": ([("web-2", "", "", 99, 99)], 0, {1: ["no rows of pid 99 on host web-2", "underspan doctor -p PID"]}),
    "by kernel": ([("web-2.example.com", "", "", 10, 11, BOOTS["web-1"], PIDNS[""]), ("", "", "", 7, 7, BOOTS["web-1"], 2), ("web-1", "", "", 7, 7, BOOTS["web-1"], 1)],
                  3, {}),
    "other kernel": ([("web-1", "", "", 10, 11, "cccccccc-boot", PIDNS[""])], 0,
                     {1: ["no rows of the span's kernel (boot id cccccccc)", "no agent runs on its host web-1, or one older"]}),
    "no namespace": ([("", "", "", 10, 11, BOOTS["web-1"], 9)], 0, {1: ["no rows of pid 10 on its host", "underspan doctor -p PID"]}),
    "half": ([("web-1.example.com", "", "", 10, 11, BOOTS["web-1"], 0), ("web-1", "", "", 10, 11, BOOTS["web-1"], 0)], 1,
             {1: ["only one of boot_id and pidns", "raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"]}),
    "partly": ([("web-1", "", "", 10, 11, BOOTS["web-1"], PIDNS[""]), ("web-1.example.com", "", "", 10, 11), ("web-1", "", "", 10, 11)], 2,
               {1: ["no boot_id on the span, while other spans of the service have it", "host.name web-1.example.com", "underspan_otel.install()"]}),
    "mixed": ([("web-1", "", "", 10, 11), ("web-9", "", "", 10, 10), ("web-1", "", "", 0, 1), ("web-1", "", "", 0, 1)], 1,
              {1: ["no agent of host web-9"], 2: ["no process.pid"]}),
}


@pytest.fixture(scope="module", params=["map", "json"])
def store(request, tmp_path_factory):
    """Its collector writes attributes as maps, or as columns of the type JSON."""
    with Store(tmp_path_factory.mktemp("spans") / "db") as store:
        store.attributes = request.param
        yield store


def make_spans_table(store):
    for path in sorted((ROOT / "sql/otel").glob("*.sql")):
        text = path.read_text()
        if store.attributes == "json":
            text = re.sub(r"(Resource|Span)Attributes( +)Map\(LowCardinality\(String\), String\)( +)CODEC\(ZSTD\(1\)\)", r"\1Attributes\2JSON", text)
            text = re.sub(r"\n *INDEX idx_(res|span)_attr[^\n]*", "", text)
            assert text.count("Attributes JSON") + text.count("Attributes     JSON") == (2 if path.name == "otel_traces.sql" else 0), text
        store.ask(text)


def ask(store, *arguments):
    done = subprocess.run([UNDERSPAN, "doctor", "--spans", f"--clickhouse={store.url}", "--no-config", *arguments], text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={"UNDERSPAN_CLICKHOUSE_PASSWORD": store.password, "PATH": "/nowhere"})
    assert done.stderr == "", done
    return done


def checks(store, *arguments):
    done = ask(store, "--json", *arguments)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    return [(c["name"], c["ok"], c["detail"]) for c in found["checks"]]


def explain(store, trace):
    done = subprocess.run([UNDERSPAN, "explain", trace, f"--clickhouse={store.url}", "--no-config"], text=True, timeout=60, capture_output=True,
                          env={"UNDERSPAN_CLICKHOUSE_PASSWORD": store.password, "PATH": "/nowhere"})
    return done.returncode, done.stderr


def insert(store, table, rows):
    answer = store.insert(f"INSERT INTO {table} FORMAT JSONEachRow", "\n".join(map(json.dumps, rows)), async_insert=0)
    assert answer.status == 200, answer.text


def apply(store):
    subprocess.run([UNDERSPAN, "schema", "--apply", f"--clickhouse={store.url}", "--no-config"], check=True, timeout=60, stderr=subprocess.DEVNULL,
                   env={"UNDERSPAN_CLICKHOUSE_PASSWORD": store.password})


def seconds(us):
    return "%d.%06d" % divmod(us, SECOND)


# the processes, by index, that the spans of each service are of; None: unknown
OWNERS = {"joins": [0, 1, 2, 1, 4, 5], "by kernel": [0, 2, 1], "no thread": [None, None, 0], "half": [None, 0], "partly": [0, None, 0], "mixed": [0, None, None, None]}


def check_views(store):
    """`request_time` has of each span the collections of its own process, and of no other; of a span that is of nobody, none."""
    answer = store.ask("SELECT service, trace_id, gc_others_ms FROM request_time(from = now() - INTERVAL 10 MINUTE, to = now()) "
                       "ORDER BY trace_id FORMAT JSONCompact")
    found = [(service, None if gc is None else round(gc * 100)) for service, _, gc in json.loads(answer)["data"]]
    wanted = [(service, None if owner is None else owner + 1)
              for service, (of_it, _, _) in SPANS.items() for owner in OWNERS.get(service, [None] * len(of_it))]
    assert found == [(service, n) for service, n in wanted], found


def test_each_span_joins_or_has_its_reason(store):
    (name, ok, detail), = checks(store)
    assert (name, ok) == ("spans", False) and "run `underspan schema --apply`" in detail
    apply(store)
    (name, ok, detail), = checks(store)
    assert not ok and "once the OpenTelemetry collector has made otel_traces" in detail
    make_spans_table(store)
    apply(store)
    (name, ok, detail), = checks(store)
    assert not ok and detail.startswith("none in otel_traces"), detail

    now = time.time_ns() // 1000
    spans = []

    def span(service, host, container, pod, pid, tid, boot="", pidns=0, kind="Server", ago=20):
        resource = {"service.name": service, "host.name": host, "container.id": container, "k8s.pod.uid": pod}
        ids = {"process.pid": pid, "thread.id": tid, "boot_id": boot, "pidns": pidns}
        spans.append({"Timestamp": seconds(now - ago * SECOND), "Duration": 10**7, "TraceId": "%032x" % (len(spans) + 1),
                      "SpanId": "%016x" % (len(spans) + 1), "ServiceName": service, "SpanName": "GET", "SpanKind": kind,
                      "ResourceAttributes": {k: v for k, v in resource.items() if v},
                      "SpanAttributes": {k: str(v) for k, v in ids.items() if v}})

    for service, (of_it, _, _) in SPANS.items():
        for one in of_it:
            span(service, *one)
        span(service, "web-9", "", "", 1, 1, kind="Client")  # not a server's
    spans.append(spans[0])  # delivered twice
    span("yesterday", "web-1", "", "", 10, 11, ago=7200)
    insert(store, "otel_traces", spans)
    (_, ok, detail), *others = [c for c in checks(store) if c[0] == "joins"]
    assert not ok and not others and "no agent has reported in this time" in detail
    insert(store, "ebpf_agent", [{"host": host, "tracker": "gc_pause", "start_time": seconds(now - 60 * SECOND), "end_time": seconds(now)}
                                 for host in sorted({p[0] for p in PROCESSES})])
    tables = ["ebpf_gc_pause", "ebpf_request_profile", "ebpf_off_cpu_profile"]  # each table makes a process known
    for i, process in enumerate(PROCESSES):
        row = dict(zip(("host", "container_id", "pod_uid", "pid"), process), boot_id=BOOTS.get(process[0], ""),
                   pidns=PIDNS[process[1]], start_time=seconds(now - 30 * SECOND), end_time=seconds(now - 29 * SECOND))
        insert(store, tables[i % 3], [row])
        # within each span: its length says whose it is
        begin, length = now - 20 * SECOND + 10 * (i + 1) ** 2, 10 * (i + 1)
        insert(store, "ebpf_gc_pause", [{**row, "host_pid": process[3], "tid": 10**6, "start_time": seconds(begin),
                                         "end_time": seconds(begin + length), "duration_ns": length * 1000, "weight": 1}])

    found = checks(store)
    assert {name for name, _, _ in found} == set(SPANS)
    spans = lambda of_it: "server span" if len(of_it) == 1 else "server spans"
    for service, (of_it, joined, reasons) in SPANS.items():
        said = [(ok, detail) for name, ok, detail in found if name == service]
        expected = [(True, f"{joined} of {len(of_it)} {spans(of_it)} {'joins' if joined == 1 else 'join'}")] * (joined > 0)
        assert said[:len(expected)] == expected and len(said) == len(expected) + len(reasons), (service, said)
        for n, words in reasons.items():
            detail, = (detail for ok, detail in said if not ok and detail.startswith(f"{n} of {len(of_it)} {spans(of_it)} {'does' if n == 1 else 'do'} not join (as in trace 0"))
            assert all(word in detail for word in words), (service, detail, words)
    check_views(store)
    half = store.ask("SELECT arrayStringConcat(not_measured) FROM request_time(from = now() - INTERVAL 10 MINUTE, to = now()) "
                     "WHERE service = 'half' AND isNull(gc_ms)")
    assert "no rows of pid 10 on host web-1.example.com; there are some under host.name" in half and "no agent runs" not in half, half
    for service, (of_it, _, _) in SPANS.items():
        assert checks(store, f"--service={service}") == [c for c in found if c[0] == service]
    (name, ok, detail), = checks(store, "--service=join")
    assert (name, ok) == ("join", False) and detail.startswith("no server span of that service in that time; there are ") and "joins" in detail, detail
    assert "yesterday" in {name for name, _, _ in checks(store, "--since=3h")}
    text = ask(store).stdout
    assert text.startswith("NO: ") and "ok   joins          6 of 6 server spans join" in text, text


def test_spans_that_no_view_finds(store):
    """Of no server, with a trace id in upper case, of a clock that is ahead: told as such, not as missing or joined."""
    make_spans_table(store)
    apply(store)
    store.ask("TRUNCATE TABLE otel_traces")
    now = time.time_ns() // 1000

    def span(n, service, kind, trace, at):
        return {"Timestamp": seconds(at), "Duration": 10**7, "TraceId": trace, "SpanId": "%016x" % n, "ServiceName": service, "SpanName": "GET",
                "SpanKind": kind, "ResourceAttributes": {"host.name": "web-1"}, "SpanAttributes": {"process.pid": "10", "thread.id": "11"}}

    insert(store, "otel_traces", [span(1, "batch", "Internal", "a" * 32, now - 9 * SECOND), span(2, "caller", "Client", "b" * 32, now - 9 * SECOND)])
    (name, ok, detail), = checks(store)
    assert (name, ok) == ("spans", False) and detail.startswith("2 in otel_traces, of 2 services (as in trace " + "a" * 32 + "), none of them a server's"), detail
    insert(store, "otel_traces", [span(3, "upper", "Server", "C" * 32, now - 9 * SECOND), span(4, "ahead", "Server", "d" * 32, now + 3600 * SECOND)])
    insert(store, "ebpf_agent", [{"host": "web-1", "tracker": "gc_pause", "start_time": seconds(now - 60 * SECOND), "end_time": seconds(now)}])
    insert(store, "ebpf_gc_pause", [{"host": "web-1", "pid": 10, "start_time": seconds(now - 30 * SECOND), "end_time": seconds(now - 29 * SECOND)}])
    (_, first, ahead), (_, second, upper) = checks(store)
    assert not first and "the clock of its host web-1 is ahead" in ahead, ahead
    assert not second and "the trace id is in upper case" in upper, upper
    code, said = explain(store, "C" * 32)
    assert code == 1 and "trace " + "c" * 32 + " is in upper case in otel_traces" in said and "no span" not in said, said
    code, said = explain(store, "e" * 32)
    assert code == 1 and "no span of trace" in said, said
