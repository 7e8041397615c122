# SPDX-License-Identifier: Apache-2.0
"""Rows of the demo's Python programs for the store: JSON over ClickHouse's HTTP interface."""

import json
import os
import urllib.parse
import urllib.request

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class Store:
    """The store that serves a directory; address and password are files there."""

    def __init__(self, directory):
        def read(name):
            with open(os.path.join(directory, name)) as file:
                return file.read().strip()

        self.url = read("endpoint")
        self.headers = {"X-ClickHouse-User": "default", "X-ClickHouse-Key": read("password")}
        # the store is on loopback: a proxy from the environment must not come between
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def insert(self, table, rows):
        query = urllib.parse.urlencode({"query": f"INSERT INTO {table} FORMAT JSONEachRow", "async_insert": 0})
        body = "\n".join(map(json.dumps, rows)).encode()
        request = urllib.request.Request(f"{self.url}/?{query}", body, self.headers)
        with self.opener.open(request, timeout=30) as reply:
            reply.read()


class StoreSpanExporter(SpanExporter):
    """Writes spans into otel_traces as the collector's ClickHouse exporter does: a collector less to start."""

    def __init__(self, store):
        self.store = store

    def export(self, spans):
        try:
            self.store.insert("otel_traces", [self.row(span) for span in spans])
        except OSError as error:
            print(f"spans lost: {error}", flush=True)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    @staticmethod
    def row(span):
        events, links = span.events, span.links
        return {
            "Timestamp": span.start_time,
            "TraceId": f"{span.context.trace_id:032x}",
            "SpanId": f"{span.context.span_id:016x}",
            "ParentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
            "TraceState": span.context.trace_state.to_header(),
            "SpanName": span.name,
            "SpanKind": span.kind.name.capitalize(),
            "ServiceName": span.resource.attributes.get("service.name", ""),
            "ResourceAttributes": texts(span.resource.attributes),
            "ScopeName": span.instrumentation_scope.name,
            "ScopeVersion": span.instrumentation_scope.version or "",
            "SpanAttributes": texts(span.attributes),
            "Duration": span.end_time - span.start_time,
            "StatusCode": span.status.status_code.name.capitalize(),
            "StatusMessage": span.status.description or "",
            "Events.Timestamp": [event.timestamp for event in events],
            "Events.Name": [event.name for event in events],
            "Events.Attributes": [texts(event.attributes) for event in events],
            "Links.TraceId": [f"{link.context.trace_id:032x}" for link in links],
            "Links.SpanId": [f"{link.context.span_id:016x}" for link in links],
            "Links.TraceState": [link.context.trace_state.to_header() for link in links],
            "Links.Attributes": [texts(link.attributes) for link in links],
        }


def texts(attributes):
    """Attributes in the form of the collector's table: every value a text, lists as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(list(value) if isinstance(value, tuple) else value)
        for key, value in (attributes or {}).items()
    }
