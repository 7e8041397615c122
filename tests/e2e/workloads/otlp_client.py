# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry's own SDK, exporter and messages, for tests of `underspan store --otlp`: otlp_client.py MODE ARGUMENT..., with the
SDK on PYTHONPATH. Prints a line of JSON."""
import base64
import json
import sys

from google.protobuf import descriptor_pb2, json_format
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

START = 1795460400000000123


def spans(n=2):
    """A server span with every possible field, and n - 1 children."""
    provider = TracerProvider(resource=Resource({"service.name": "shop", "zone": "eu", "replicas": 3}))
    provider.add_span_processor(SimpleSpanProcessor(memory := InMemorySpanExporter()))
    tracer = provider.get_tracer("lib", "1.2")
    linked = SpanContext(0xabc, 0xdef, is_remote=True, trace_state=trace.TraceState([("a", "b")]))
    span = tracer.start_span("GET /é", kind=SpanKind.SERVER, start_time=START, links=[Link(linked, {"why": "retry"})], attributes={
        "text": 'q"\\\n', "int": -7, "big": 2 ** 62, "double": 0.1, "whole": 2.0, "bool": True, "texts": ["a", "b"], "ints": [1, 2], "empty": "", "bytes": b"hello"})
    span.add_event("cache miss", {"key": "k"}, START + 10)
    span.set_status(Status(StatusCode.ERROR, "no stock"))
    context = trace.set_span_in_context(span)
    for i in range(n - 1):
        tracer.start_span(f"child {i}", context=context, start_time=START + 20).end(START + 30)
    span.end(START + 250_000_000)
    return memory.get_finished_spans()


def export(endpoint, compression, times="1"):
    """The result of each attempt by the real exporter, and the ids."""
    exporter = OTLPSpanExporter(endpoint=endpoint, compression=Compression(compression), timeout=20)
    sent = spans()
    ok = [exporter.export(sent) == SpanExportResult.SUCCESS for _ in range(int(times))]
    exporter.shutdown()
    return {"ok": ok, "trace": f"{sent[-1].context.trace_id:032x}", "span": f"{sent[-1].context.span_id:016x}"}


def bodies(n="2"):
    """A request as protobuf, and as OTLP/JSON: protobuf's JSON with hex ids and numbers for enums."""
    request = encode_spans(spans(int(n)))
    nested = common_pb2.AnyValue(kvlist_value=common_pb2.KeyValueList(values=[
        common_pb2.KeyValue(key="list", value=common_pb2.AnyValue(array_value=common_pb2.ArrayValue(values=[
            common_pb2.AnyValue(double_value=1.5), common_pb2.AnyValue(), common_pb2.AnyValue(bytes_value=b"\0\xff"),
            common_pb2.AnyValue(bool_value=False)])))]))
    for sent in request.resource_spans[0].scope_spans[0].spans:
        for link in sent.links:
            link.trace_state = "a=b"
    request.resource_spans[0].resource.attributes.append(common_pb2.KeyValue(key="nested", value=nested))
    as_json = json_format.MessageToDict(request, use_integers_for_enums=True)

    def hex_ids(node):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            if key in ("traceId", "spanId", "parentSpanId"):
                node[key] = base64.b64decode(value).hex()
            else:
                hex_ids(value)
    hex_ids(as_json)
    return {"protobuf": base64.b64encode(request.SerializeToString()).decode(), "json": as_json}


def fields(descriptor_set):
    """Our fields and OpenTelemetry's: {message: {name: [number, wire type, repeated]}}."""
    kinds = descriptor_pb2.FieldDescriptorProto
    wire = {**dict.fromkeys([kinds.TYPE_INT32, kinds.TYPE_INT64, kinds.TYPE_BOOL, kinds.TYPE_ENUM], "varint"),
            **dict.fromkeys([kinds.TYPE_FIXED64, kinds.TYPE_DOUBLE], "64 bits"),
            **dict.fromkeys([kinds.TYPE_STRING, kinds.TYPE_BYTES, kinds.TYPE_MESSAGE], "length")}

    def of_message(m, to):
        to[m.name] = {f.name: [f.number, wire.get(f.type), f.label == kinds.LABEL_REPEATED] for f in (m.fields if hasattr(m, "fields") else m.field)}
        for each in m.nested_types if hasattr(m, "fields") else m.nested_type:
            of_message(each, to)

    ours, theirs = {}, {}
    with open(descriptor_set, "rb") as f:
        for m in descriptor_pb2.FileDescriptorSet.FromString(f.read()).file[0].message_type:
            of_message(m, ours)
    pending = [trace_service_pb2.DESCRIPTOR]
    while pending:
        file = pending.pop()
        pending += file.dependencies
        for m in file.message_types_by_name.values():
            of_message(m, theirs)
    return {"ours": ours, "theirs": theirs}


def response(base64_body):
    message = trace_service_pb2.ExportTraceServiceResponse.FromString(base64.b64decode(base64_body))
    return [message.partial_success.rejected_spans, message.partial_success.error_message]


print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
