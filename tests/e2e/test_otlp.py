# SPDX-License-Identifier: Apache-2.0
"""`underspan store --otlp`: OpenTelemetry's own exporter writes into otel_traces without a collector; hostile requests are refused
with the reason, and bounded."""
import base64
import copy
import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import time
import zipfile

import pytest

import host
from agent import Agent, NO_ENGINE, plain_build
from servers import Server, free_port, read_response
from store_fixture import Store, underspan

pytestmark = plain_build(NO_ENGINE)
MIB = 1 << 20
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@pytest.fixture(scope="module")
def sdk():
    return subprocess.run([os.path.join(host.ROOT, "deploy/demo/fetch_otel.sh")], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def client(sdk):
    """Calls a function of workloads/otlp_client.py."""
    def call(*arguments):
        done = subprocess.run([host.DEBIAN_PYTHON, os.path.join(host.WORKLOADS, "otlp_client.py"), *map(str, arguments)],
                              env={**os.environ, "PYTHONPATH": sdk}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return call


class Otlp(Store):
    """A store with an OTLP listener at `port`."""

    def __init__(self, path, *arguments, otlp="127.0.0.1:0"):
        super().__init__(path, f"--otlp={otlp}", *arguments)
        of_this = rf"ClickHouse \S+ for \S+ at {self.url}\n.*OTLP at (http://[\d.]+:(\d+)/v1/traces)"
        found = host.wait_until(lambda: re.search(of_this, self.log.read_text()), 5, "OTLP's address is logged")
        self.traces, self.port = found[1], int(found[2])

    def post(self, body, type=JSON, path="/v1/traces", connection=None, **headers):
        """(status, body) of a request."""
        c = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request("POST", path, json.dumps(body) if isinstance(body, dict) else body, {"Content-Type": type, **{k.replace("_", "-"): v for k, v in headers.items()}})
        response = c.getresponse()
        return response.status, response.read()

    def spans(self):
        return json.loads(self.ask("SELECT *, toUnixTimestamp64Nano(Timestamp) AS ns FROM otel_traces ORDER BY ns, SpanName FORMAT JSON"))["data"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with Otlp(tmp_path_factory.mktemp("otlp") / "db") as s:
        yield s
        assert s.process.poll() is None, s.log.read_text()


@pytest.fixture
def store(shared):
    shared.ask("TRUNCATE TABLE otel_traces")
    return shared


def request(*spans, resource=()):
    return {"resourceSpans": [{"resource": {"attributes": list(resource)}, "scopeSpans": [{"spans": list(spans)}]}]}


def span(n=1, **more):
    return {"traceId": f"{n:032x}", "spanId": f"{n:016x}", "name": f"span {n}", "startTimeUnixNano": "1795460400000000000", "endTimeUnixNano": "1795460400000000005", **more}


def attribute(key, **value):
    return {"key": key, "value": value}


def test_the_schema_is_opentelemetrys(client, tmp_path):
    """Names, numbers and wire types of otlp.proto equal OpenTelemetry's descriptors."""
    path = tmp_path / "set"
    subprocess.run(["protoc", f"--proto_path={host.ROOT}/src/store/otlp", f"--descriptor_set_out={path}", "otlp.proto"], check=True)
    found = client("fields", path)
    assert len(found["ours"]) >= 13
    for message, fields in found["ours"].items():
        if message == "RpcStatus":  # google.rpc.Status
            continue
        assert fields.items() <= found["theirs"][message].items(), message


WHOLE = {"text": 'q"\\\n', "int": "-7", "big": str(2 ** 62), "double": "0.1", "whole": "2", "bool": "true", "texts": '["a","b"]',
         "ints": "[1,2]", "empty": "", "bytes": base64.b64encode(b"hello").decode()}


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_the_real_exporter(store, client, compression):
    sent = client("export", store.traces, compression)
    assert sent["ok"] == [True]
    server, child = store.spans()
    assert {k: v for k, v in server.items() if k not in ("Timestamp", "Events.Timestamp", "ResourceAttributes")} == {
        "TraceId": sent["trace"], "SpanId": sent["span"], "ParentSpanId": "", "TraceState": "", "SpanName": "GET /é", "SpanKind": "Server",
        "ServiceName": "shop", "ScopeName": "lib", "ScopeVersion": "1.2", "SpanAttributes": WHOLE, "Duration": 250_000_000,
        "StatusCode": "Error", "StatusMessage": "no stock", "Events.Name": ["cache miss"], "Events.Attributes": [{"key": "k"}],
        "Links.TraceId": [f"{0xabc:032x}"], "Links.SpanId": [f"{0xdef:016x}"], "Links.TraceState": [""], "Links.Attributes": [{"why": "retry"}],
        "ns": 1795460400000000123}
    assert server["Events.Timestamp"] == ["2026-11-23 19:00:00.000000133"]
    assert {"zone": "eu", "replicas": "3", "service.name": "shop"}.items() <= server["ResourceAttributes"].items()
    assert (child["SpanName"], child["ParentSpanId"], child["TraceId"], child["Duration"], child["StatusCode"]) == ("child 0", sent["span"], sent["trace"], 10, "Unset")
    assert int(store.ask("SELECT count() FROM otel_traces_trace_id_ts WHERE TraceId = '%s'" % sent["trace"])) == 1


def test_json_and_protobuf_give_equal_rows(store, client):
    found = client("bodies")
    found["protobuf"] = base64.b64decode(found["protobuf"])
    rows = {}
    for type, body in (PROTOBUF, found["protobuf"]), (JSON, found["json"]), (PROTOBUF, gzip.compress(found["protobuf"])):
        store.ask("TRUNCATE TABLE otel_traces")
        status, answer = store.post(body, type, **({"Content_Encoding": "gzip"} if type == PROTOBUF and body[:2] == b"\x1f\x8b" else {}))
        assert (status, answer) == (200, b"" if type == PROTOBUF else b"{}")
        rows[type] = rows.get(type) or store.spans()
        assert store.spans() == rows[type] == rows[PROTOBUF]
    assert len(rows[JSON]) == 2 and rows[JSON][0]["Links.TraceState"] == ["a=b"]
    assert rows[JSON][0]["ResourceAttributes"]["nested"] == '{"list":[1.5,null,"AP8=",false]}'


def test_a_repeated_request_adds_nothing(tmp_path, client):
    """Equal bytes, also after a kill of the store; different bytes are different rows."""
    with Otlp(tmp_path / "db") as s:
        assert client("export", s.traces, "gzip", 3)["ok"] == [True] * 3
        assert [s.post(request(span(7)))[0] for _ in range(2)] == [200, 200]
        assert len(s.spans()) == 3
        s.kill()
    with Otlp(tmp_path / "db") as s:
        assert s.post(request(span(7)))[0] == 200 and len(s.spans()) == 3
        assert s.post(request(span(7), span(8)))[0] == 200 and len(s.spans()) == 5  # split differently: a different block
        assert s.stop() == 0
        assert "2 spans stored, 0 rejected" not in s.log.read_text() and "3 spans stored, 0 rejected, 0 requests refused" in s.log.read_text()


def days(n):
    """A request with one span on each of so many days."""
    first = 1_600_000_000
    return request(*(span(i + 1, startTimeUnixNano=f"{first + i * 86400}000000000", endTimeUnixNano=f"{first + i * 86400}000000001") for i in range(n)))


def test_spans_of_many_days(store):
    """More than the engine takes in one INSERT by default: all are there, once, also if the request is repeated."""
    for _ in range(2):
        assert store.post(days(150)) == (200, b"{}")
        assert store.ask("SELECT count(), uniqExact(SpanId), uniqExact(toDate(Timestamp)) FROM otel_traces FORMAT CSV") == "150,150,150\n"
    assert store.ask("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts WHERE Start < '2022-01-01' FORMAT CSV") == "150\n"
    status, answer = store.post(days(1001))
    assert status == 400 and json.loads(answer)["message"] == "spans of more than 1000 days in one request: send fewer days at a time", answer
    assert store.ask("SELECT count() FROM otel_traces FORMAT CSV") == "150\n"


DEEP = {"stringValue": "x"}
for _ in range(40):
    DEEP = {"arrayValue": {"values": [DEEP]}}
REJECTED = {
    "a short trace id": (span(traceId="00ff"), "traceId is not 16 bytes"),
    "a trace id of zeros": (span(0, spanId="01" * 8), "traceId is not 16 bytes"),
    "no span id": (span(spanId=""), "spanId is not 8 bytes"),
    "a short parent": (span(parentSpanId="01"), "parentSpanId is not 8 bytes"),
    "no time": (span(startTimeUnixNano="0"), "not between the years 2001 and 2262"),
    "a time after 2262": (span(endTimeUnixNano=str(2 ** 64 - 1)), "not between the years 2001 and 2262"),
    "time backwards": (span(endTimeUnixNano="1795460399999999999"), "endTimeUnixNano is before startTimeUnixNano"),
    "a link to nothing": (span(links=[{}]), "a link's traceId or spanId is not an id"),
    "an event in 2300": (span(events=[{"timeUnixNano": str(2 ** 63)}]), "timeUnixNano of an event is after 2262"),
    "a large attribute": (span(attributes=[attribute("large", stringValue="x" * (MIB + 1))]), "attributes of more than 1048576 bytes"),
}


@pytest.mark.parametrize("what", REJECTED)
def test_a_span_is_rejected(store, client, what):
    """The remaining spans are stored; count and reason are in the response."""
    bad, reason = REJECTED[what]
    status, answer = store.post(request(span(1), bad, span(2), bad))
    partial = json.loads(answer)["partialSuccess"]
    assert status == 200 and partial["rejectedSpans"] == "2" and reason in partial["errorMessage"], answer
    assert [s["SpanName"] for s in store.spans()] == ["span 1", "span 2"]


def test_rejections_in_protobuf(store, client):
    body = base64.b64decode(client("bodies")["protobuf"])
    start = b"\x39" + (1795460400000000123).to_bytes(8, "little")  # field 7, 64 bits
    assert body.count(start) == 1
    status, answer = store.post(body.replace(start, b"\x39" + bytes(8)), PROTOBUF)
    assert status == 200
    rejected, message = client("response", base64.b64encode(answer).decode())
    assert rejected == 1 and "startTimeUnixNano" in message
    assert [s["SpanName"] for s in store.spans()] == ["child 0"]


def nested(depth):
    """AnyValue in ArrayValue in AnyValue..., as protobuf: each level is two tags and two lengths."""
    def field(number, data):
        length, out = len(data), b""
        while True:
            out += bytes([length & 0x7f | (0x80 if length > 0x7f else 0)])
            length >>= 7
            if not length:
                return bytes([number << 3 | 2]) + out + data
    value = field(1, b"x")
    for _ in range(depth):
        value = field(5, field(1, value))
    key_value = field(1, b"k") + field(2, value)
    the_span = field(1, bytes(15) + b"\1") + field(2, bytes(7) + b"\1") + b"\x39" + (10 ** 18).to_bytes(8, "little") + b"\x41" + (10 ** 18).to_bytes(8, "little") + field(9, key_value)
    return field(1, field(2, field(2, the_span)))


def test_nesting(store, client):
    assert store.post(nested(15), PROTOBUF) == (200, b"")
    assert store.spans()[0]["SpanAttributes"]["k"] == "[" * 15 + '"x"' + "]" * 15
    for depth in 17, 3000:
        status, answer = store.post(nested(depth), PROTOBUF)
        rejected, message = client("response", base64.b64encode(answer).decode())
        assert (status, rejected, message) == (200, 1, "an attribute's value is nested more than 16 deep")
    status, answer = store.post(request(span(attributes=[{"key": "k", "value": DEEP}])))
    assert status == 400 and "nested more than 16 deep" in json.loads(answer)["message"]
    assert len(store.spans()) == 1


REFUSED = {
    "no JSON": (400, b"{", {}, "not JSON: line 1"),
    "a list": (400, b"[]", {}, "expected an object"),
    "no protobuf": (400, b"\xff\xff", {"type": PROTOBUF}, "not an ExportTraceServiceRequest in protobuf"),
    "cut protobuf": (400, nested(3)[:-1], {"type": PROTOBUF}, "not an ExportTraceServiceRequest in protobuf"),
    "an id that is no hex": (400, request(span(traceId="g" * 32)), {}, "trace_id: expected hex digits"),
    "a name that is a number": (400, request(span(name=5)), {}, "name: expected a text"),
    "an enum by name": (400, request(span(kind="SPAN_KIND_SERVER")), {}, "enums are numbers"),
    "a time that is negative": (400, request(span(startTimeUnixNano=-1)), {}, "start_time_unix_nano: expected an unsigned integer of 64 bits"),
    "a time over 64 bits": (400, request(span(startTimeUnixNano="99999999999999999999")), {}, "expected an unsigned integer of 64 bits"),
    "no base64": (400, request(span(attributes=[attribute("k", bytesValue="!")])), {}, "bytes_value: expected base64"),
    "spans that are no list": (400, {"resourceSpans": {}}, {}, "resource_spans: expected a list"),
    "what is no gzip": (400, b"{}", {"Content_Encoding": "gzip"}, "not what its Content-Encoding says"),
    "cut gzip": (400, gzip.compress(b"{}")[:-9], {"Content_Encoding": "gzip"}, "not what its Content-Encoding says"),
    "zstd": (415, b"{}", {"Content_Encoding": "zstd"}, "Content-Encoding 'zstd'"),
    "text": (415, b"{}", {"type": "text/plain"}, "Content-Type 'text/plain'"),
    "metrics": (404, b"{}", {"path": "/v1/metrics"}, "OTEL_METRICS_EXPORTER=none"),
    "logs": (404, b"{}", {"path": "/v1/logs"}, "OTEL_LOGS_EXPORTER=none"),
    "another path": (404, b"{}", {"path": "/"}, "POST traces to /v1/traces"),
    "a large body": (413, b" " * (17 * MIB), {}, "over the limit of 16777216"),
    "a bomb": (413, gzip.compress(b" " * (40 * MIB)), {"Content_Encoding": "gzip"}, "over the limit of 16777216 bytes, unpacked"),
    "many empty spans": (413, b"", {"type": PROTOBUF}, "more than 134217728 bytes when decoded"),
    "many empty lists": (413, b'{"resourceSpans":[' + b"[]," * (5 * MIB) + b"[]]}", {}, "more than 134217728 bytes when decoded"),
    "a resource that many spans repeat": (413, request(*map(span, range(1, 201)), resource=[attribute("r", stringValue="x" * 900_000)]), {}, "as rows"),
}


def many_empty_spans(n):
    def sized(tag, size, rest):
        return bytes([tag, size & 0x7f | 0x80, size >> 7 & 0x7f | 0x80, size >> 14 & 0x7f | 0x80, size >> 21]) + rest
    scope = sized(0x12, 2 * n, b"\x12\x00" * n)
    return sized(0x0a, len(scope), scope)


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_is_refused(store, what):
    """The reason is in the body, in the request's encoding; the store goes on."""
    expected, body, more, reason = REFUSED[what]
    if what == "many empty spans":
        body = many_empty_spans(4 * MIB)
    try:
        status, answer = store.post(body, **more)
    except (BrokenPipeError, ConnectionResetError):  # a body over the limit is not read to the end
        assert what == "a large body"
        status, answer = 413, reason.encode()
    assert status == expected and reason in answer.decode(errors="replace"), (status, answer)
    if more.get("type") != PROTOBUF and b"message" in answer:
        assert reason in json.loads(answer)["message"]
    assert store.spans() == []
    with open(f"/proc/{store.process.pid}/status") as f:
        assert int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) < 1_500_000  # KiB; the engine's own limit is 1 GiB
    assert store.post(request(span(1)))[0] == 200 and len(store.spans()) == 1


def test_other_methods(store):
    for method in "GET", "PUT", "OPTIONS":  # OPTIONS: a browser asks before a page may send JSON
        c = http.client.HTTPConnection("127.0.0.1", store.port, timeout=10)
        c.request(method, "/v1/traces", headers={"Content-Type": JSON})
        response = c.getresponse()
        assert (response.status, response.headers["Allow"], json.loads(response.read())) == (405, "POST", {"message": "use POST"})
        assert not response.headers.get("Access-Control-Allow-Origin")


def test_a_connection_is_kept(store):
    c = http.client.HTTPConnection("127.0.0.1", store.port, timeout=10)
    for n in 1, 2, 3:
        assert store.post(request(span(n)), connection=c)[0] == 200
    assert len(store.spans()) == 3


def test_odd_texts(store):
    """Not UTF-8, NUL, controls: kept or replaced, never lost; a row stays a row."""
    body = json.dumps(request(span(1, name="NAME", attributes=[attribute("k\0\x1b\u202e", stringValue="a\0b\x1b[31m")]))).encode()
    assert store.post(body)[0] == 200
    assert store.spans()[0]["SpanAttributes"] == {"k\0\x1b\u202e": "a\0b\x1b[31m"}
    body = nested(0).replace(b"\x4a\x08\x0a\x01k\x12\x03\x0a\x01x", b"\x4a\x08\x0a\x01\xff\x12\x03\x0a\x01\xfe")
    assert body != nested(0) and store.post(body, PROTOBUF) == (200, b"")
    assert store.spans()[0]["SpanAttributes"] == {"\ufffd": "\ufffd"}


def test_what_protobufs_json_allows(store):
    """A parent of zeros is none; the first of equal keys counts, as in a map; numbers may be texts."""
    names = [attribute("service.name", stringValue="first"), attribute("service.name", stringValue="second")]
    numbers = [attribute(text, doubleValue=text) for text in ("1.5", "-2e3", "7", "NaN", "-Infinity")]
    assert store.post(request(span(1, parentSpanId="0" * 16, attributes=numbers), span(2, parentSpanId="00000000000000a0"), resource=names)) == (200, b"{}")
    one, two = store.spans()
    assert (one["ParentSpanId"], two["ParentSpanId"], one["ServiceName"]) == ("", "00000000000000a0", "first")
    assert store.ask("SELECT DISTINCT ResourceAttributes['service.name'] FROM otel_traces") == "first\n"
    assert one["SpanAttributes"] == {"1.5": "1.5", "-2e3": "-2000", "7": "7", "NaN": "NaN", "-Infinity": "-Infinity"}
    for key, text in ("doubleValue", "0x10"), ("doubleValue", " 1"), ("doubleValue", "1e999"), ("doubleValue", ""), ("doubleValue", "1\x002"), ("intValue", "5\x006"):
        status, answer = store.post(request(span(3, attributes=[attribute("k", **{key: text})])))
        assert status == 400 and b"expected" in answer, (text, status, answer)
    assert len(store.spans()) == 2


def test_silent_clients_keep_no_exporter_out(store):
    silent = [socket.create_connection(("127.0.0.1", store.port)) for _ in range(300)]
    for s in silent:
        s.send(b"P")
    began = time.monotonic()
    assert store.post(request(span(1)))[0] == 200 and time.monotonic() - began < 10
    for s in silent:
        s.close()


def test_beyond_loopback_asks_for_the_password(tmp_path):
    done = underspan("store", f"--path={tmp_path}/db", "--listen=127.0.0.1:0", "--otlp=0.0.0.0:0")
    assert done.returncode == 2 and "otlp: 0.0.0.0 is not a loopback address" in done.stderr and "--otlp_anywhere" in done.stderr
    with Otlp(tmp_path / "db", "--otlp_anywhere", otlp="0.0.0.0:0") as s:
        status, answer = s.post(request(span(1)))
        assert status == 401 and "OTEL_EXPORTER_OTLP_HEADERS" in json.loads(answer)["message"]
        assert s.post(request(span(1)), **s.basic(password="wrong"))[0] == 401
        assert s.post(request(span(1)), **s.basic())[0] == 200 and len(s.spans()) == 1


def test_the_bare_option(tmp_path):
    """--otlp takes no value; a port in use is named with the fix."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 4318))
            taken.listen()
        except OSError:
            pass  # by a second store: equally good
        done = underspan("store", f"--path={tmp_path}/db", "--listen=127.0.0.1:0", "--otlp", "--log_level=info")
    assert done.returncode == 1 and "127.0.0.1:4318 is in use by another program; choose another port with --otlp" in done.stderr


@pytest.mark.parametrize("arguments, said", [
    (["--otlp", "127.0.0.1:4318"], "unexpected argument '127.0.0.1:4318'; an option's value follows '=': underspan store --path=DIR --otlp=HOST:PORT"),
    (["--otlp=4318"], "otlp: '4318' is not HOST:PORT, as in 127.0.0.1:4318"), (["--otlp=localhost:99999"], "'localhost:99999' is not HOST:PORT"),
    (["--otlp="], "otlp: needs a value: --otlp=HOST:PORT"), (["--otpl"], "unknown option --otpl; did you mean --otlp?")])
def test_mistakes(tmp_path, arguments, said):
    done = underspan("store", f"--path={tmp_path}/db", "--listen=127.0.0.1:0", *arguments)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_it_ends_with_exporters_connected(tmp_path):
    with Otlp(tmp_path / "db") as s:
        idle = http.client.HTTPConnection("127.0.0.1", s.port, timeout=10)
        assert s.post(request(span(1)), connection=idle)[0] == 200
        began = time.monotonic()
        assert s.stop() == 0 and time.monotonic() - began < 5
        assert "1 span stored, 0 rejected, 0 requests refused" in s.log.read_text()


# ---- from a service to the answer ----

APP = """
import time
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware

def app(environ, start_response):
    time.sleep(0.3)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"{}"]

app = OpenTelemetryMiddleware(app)
"""


def install_wheel(tmp_path, distribution=True):
    """The wheel; and opentelemetry-distro, which Debian does not package, by its entry point."""
    wheel = subprocess.check_output([os.path.join(host.ROOT, "deploy/otel/wheel.sh"), str(tmp_path)], text=True).strip()
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    distro = tmp_path / "distro" / "distro-1.dist-info"
    distro.mkdir(parents=True, exist_ok=True)
    (distro / "METADATA").write_text("Metadata-Version: 2.1\nName: distro\nVersion: 1\n")
    (distro / "entry_points.txt").write_text("[opentelemetry_configurator]\nconfigurator = opentelemetry.sdk._configuration:_OTelSDKConfigurator\n" * distribution)


def instrumented(tmp_path, sdk, store, port, app, **env):
    """gunicorn under opentelemetry-instrument."""
    return Server([host.DEBIAN_PYTHON, os.path.join(sdk, "../../../bin/opentelemetry-instrument"), host.DEBIAN_PYTHON, "-m", "gunicorn",
                   f"--bind=127.0.0.1:{port}", app], cwd=str(tmp_path), env={
        "PYTHONPATH": f"{tmp_path}:{tmp_path}/distro:{tmp_path}/installed:{sdk}", "OTEL_SERVICE_NAME": "shop", "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{store.port}",
        "OTEL_BSP_SCHEDULE_DELAY": "200", **env})


def test_a_service_its_exporter_and_the_answer(tmp_path, sdk, cleanup):
    """gunicorn's single worker is busy for 300 ms: the second request's trace id shows 300 of 600 ms before the span."""
    store = Otlp(tmp_path / "db")
    cleanup.append(store)
    install_wheel(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    agent = Agent(f"--store={tmp_path}/db", "--flush_interval=0.3", stdout=False)
    cleanup.append(agent)
    port = free_port()
    service = instrumented(tmp_path, sdk, store, port, "app:app")
    cleanup.append(service)
    [booted] = service.wait_log(r"Booting worker with pid: (\d+)", 1, timeout=60)

    def watched():
        if "ebpf_probe_health" in store.ask("SHOW TABLES"):
            return store.ask(f"SELECT count() FROM ebpf_probe_health WHERE live AND tracker = 'request' AND host_pid = {booted[1]}").strip() != "0"
    host.wait_until(watched, 60, "the worker is watched")

    def send(trace):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(f"GET /orders HTTP/1.1\r\nHost: x\r\ntraceparent: 00-{trace:032x}-{trace:016x}-01\r\nConnection: close\r\n\r\n".encode())
        return s
    blocks = send(0xa)
    time.sleep(0.05)
    waits, sent = send(0xb), time.monotonic()
    assert read_response(blocks) == {}
    waited_ms = (time.monotonic() - sent) * 1e3
    assert read_response(waits) == {}
    for s in blocks, waits:
        s.close()

    def answer():
        done = underspan("explain", f"--store={tmp_path}/db", "--json", f"{0xb:032x}")
        found = json.loads(done.stdout)["requests"] if done.returncode == 0 else []
        return found and found[0]["span_id"] and found[0]
    host.wait_until(lambda: len(store.spans()) == 2, 20, "both spans were exported")
    told = host.wait_until(answer, 20, "the request and its span are explained")
    span = next(s for s in store.spans() if s["TraceId"] == f"{0xb:032x}")
    assert (span["SpanKind"], span["ServiceName"], span["SpanId"]) == ("Server", "shop", told["span_id"])
    assert (told["service"], told["span_by"], told["outcome"], told["status"]) == ("shop", "traceparent", "answered", 200), told
    assert 290 < told["sleep_ms"] < 320 and 295 < told["span_ms"] < 450
    # until the other request was answered
    assert told["accept_queue_ms"] == pytest.approx(waited_ms, abs=25) and 200 < waited_ms and told["hidden_ms"] >= told["accept_queue_ms"]
    assert "the connection waited in the listener's accept queue" in [c["said"].split(":")[0] for c in told["causes"]], told["causes"]


DJANGO = {
    "settings": 'SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS = "x", "mysite.urls", ["*"]',
    "urls": 'from django.http import HttpResponse\nfrom django.urls import path\nurlpatterns = [path("price", lambda request: HttpResponse("9"))]',
    "wsgi": 'import os\nfrom django.core.wsgi import get_wsgi_application\n'
            'os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")\napplication = get_wsgi_application()',
    "__init__": ""}


@pytest.mark.parametrize("settings, distribution, status, spans", [(True, True, 200, 3), (False, True, 500, 0), (True, False, 200, 0)],
                         ids=["as in the quick start", "without DJANGO_SETTINGS_MODULE", "without a distribution"])
def test_django_as_in_the_quick_start(settings, distribution, status, spans, tmp_path, store, sdk, cleanup):
    """deploy/README.md names the variable and the distribution; what comes without them is what it says."""
    with open(os.path.join(host.ROOT, "deploy/README.md")) as f:
        [variable] = set(re.findall(r"`(DJANGO_SETTINGS_MODULE=\S+)` before `opentelemetry-instrument`", f.read()))
    (tmp_path / "mysite").mkdir()
    for name, text in DJANGO.items():
        (tmp_path / "mysite" / f"{name}.py").write_text(text)
    port = free_port()
    install_wheel(tmp_path, distribution)
    service = instrumented(tmp_path, sdk, store, port, "mysite.wsgi", **dict([variable.split("=")] if settings else []))
    cleanup.append(service)
    service.wait_log("Booting worker with pid", 1, timeout=60)
    for _ in range(3):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/price")
        assert connection.getresponse().status == status
        connection.close()
    if spans:
        host.wait_until(lambda: len(store.spans()) == spans, 60, "the spans were exported")
        assert all(s["SpanName"] == "GET price" and s["SpanAttributes"]["boot_id"] for s in store.spans())
    else:
        time.sleep(2)
        assert not store.spans()
    said = [line for line in service.log if "no tracer provider is configured" in line]
    assert len(said) == (not distribution), service.log
